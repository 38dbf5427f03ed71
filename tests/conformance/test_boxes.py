"""Where a box differs from FedAvg's: there FedAvg in its place, with other states as they were, fails."""

from pathlib import Path
from types import SimpleNamespace

from golden import GOLDEN

from fedref.conformance import suite
from fedref.conformance.backends.reference import LOOP
from fedref.judge.verdicts import FAILED

README = (Path(__file__).parents[2] / "data" / "vectors" / "README.md").read_text("utf-8")
CALLS = "client", "aggregate", "round", "evaluate"


def main_of(server):
    """The name of the parameters: the first that a server holds."""
    return next(iter(server))


def rates(hyper):
    """FedAvg's settings with the step size that is at hand."""
    return {"lr": hyper.get("lr", hyper.get("beta")), **hyper}


def client(algorithm, model, hyper, server, data, rows, client=None):
    role = next(iter(rows))
    given = {"w": server[main_of(server)]}
    out = LOOP.client("fedavg", model, rates(hyper), given, data, {"D": rows[role]})
    w = out["upload"]["w"]
    return {"upload": dict.fromkeys(("w", "theta", "dy", "d", "g_theta", "g"), w), "client": client}


def aggregate(algorithm, model, hyper, server, uploads, n, counts, N=None):
    name = main_of(server)
    given = {"w": server[name]}, {"w": uploads[main_of(uploads)]}
    out = LOOP.aggregate("fedavg", model, rates(hyper), *given, n, counts)
    return {"server": {**server, name: out["server"]["w"]}}


def one_round(algorithm, model, hyper, state, data, plan):
    name = main_of(state["server"])
    roles = {"rows": {"D": next(iter(plan["rows"].values()))}}
    given = {"server": {"w": state["server"][name]}, "clients": {}}
    out = LOOP.round("fedavg", model, rates(hyper), given, data, {**plan, **roles})
    server = {**state["server"], name: out["server"]["w"]}
    return {"server": server, "clients": state.get("clients", {})}


def evaluate(algorithm, model, hyper, server, tests, client=None, D=None):
    return LOOP.evaluate("fedavg", model, rates(hyper), {"w": server[main_of(server)]}, tests)


FEDAVG = SimpleNamespace(client=client, aggregate=aggregate, round=one_round, evaluate=evaluate)


def boxes():
    """Algorithm → the functions in which FedAvg in its place fails, of those that have a case."""
    found = {}
    for call in CALLS:
        cases = [c for c in GOLDEN.values() if c.call == call]
        for case, result in zip(cases, suite.run(FEDAVG, cases), strict=True):
            row = found.setdefault(case.algorithm, {})
            row[call] = row.get(call, False) or result.status == FAILED
    return found


def table():
    """The table of data/vectors/README."""
    signs = {True: "≠", False: "=", None: ""}
    lines = ["| | client | aggregate | round | evaluate |", "|---|:-:|:-:|:-:|:-:|"]
    for name, row in boxes().items():
        lines.append(f"| {name} | {' | '.join(signs[row.get(call)] for call in CALLS)} |")
    return "\n".join(lines)


def test_the_readme_says_where_fedavg_in_an_algorithms_place_fails():
    assert table() in README
