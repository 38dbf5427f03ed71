"""Mistakes of projects: the specification with known ones of the suite's, or of errata.txt beside.

A row of projects.toml names the mistakes under `equals`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedref import spec
from fedref.algorithms import ALGORITHMS
from fedref.conformance import naming
from fedref.conformance.trials import Trials
from fedref.judge import errata, verdicts
from fedref.judge.case import Case, build_model
from reproduce.peers.situations import answer

Outputs = dict[str, Any]
_, *BLOCKS = Path(__file__).with_name("errata.txt").read_text("utf-8").split("\n\n")
MORE = {mistake.name: mistake for mistake in map(errata.parse, BLOCKS)}
#: No mistake: the specification's client begins with what it kept, which comes in the place of α.
KEPT = MORE.pop("a client of Deng's APFL in the middle of a run")


def adam_afresh(case: Case) -> Case:
    """Begin the server's Adam anew: no moments, no count of steps."""
    kept = ("server.theta", "server.w")
    zero = {n: 0 * x for n, x in case.inputs.items() if n.startswith("server.") and n not in kept}
    return case._replace(inputs=case.inputs | zero)


def adam_with_corrected_rate(case: Case) -> Case:
    """Give FedAdam Adam's correction of the bias, that of the second step."""
    h = case.hyper
    rate = h["server_lr"] * np.sqrt(1 - h["beta2"] ** 2) / (1 - h["beta1"] ** 2)
    return case._replace(hyper={**h, "server_lr": rate})


#: Mistakes that are the right answer to another case.
CASES: dict[str, Callable[[Case], Case]] = {
    "the server's Adam starts afresh every round": adam_afresh,
    "FedOpt with Adam's corrected rate, a round ahead": adam_with_corrected_rate,
}


def outputs_with(case: Case, *names: str) -> Outputs:
    """Return what a program with these mistakes answers."""
    both = "; ".join(names)
    if both in CASES:
        return answer(CASES[both](case))
    found = (MORE[both],) if both in MORE else [MORE.get(name, name) for name in names]
    return deng(case, *found) if case.algorithm == "apfl-deng" else errata.answer(case, *found)


def deng(case: Case, *names: Any) -> Outputs:
    """Return what a client of Deng's APFL with these mistakes sends and keeps."""
    judge, given = errata.build_judge(*names, KEPT), case.arguments()
    own, kept, h = judge.batch(given["data"]), given["client"], case.hyper
    client = spec.Client(0, own, judge.steps_of(own, given["rows"], len(given["rows"]["D"])))
    state = (kept["v"], kept["a"]), h["adaptive_alpha"]
    f = judge.risk_of(build_model(case.model))
    w, personal = next(judge.spec.apfl_deng(f, given["server"]["w"], [[client]], h["lr"], *state))
    return {"upload.w": w, "client.v": personal[0][0]}


def find_names(outputs: Mapping[str, Any], case: Case) -> tuple[str, ...]:
    """Return the suite's mistakes with which the specification answers what a project did: some that each
    explain it, or the one text of two that do so together."""
    paper = ALGORITHMS[case.algorithm].__module__.rpartition(".")[2].replace("_", "-")
    tags = {name: mistake.tag.partition(" ")[0] for name, mistake in errata.MISTAKES.items()}
    near = case.catches or tuple(name for name in tags if tags[name] == paper)
    if one := tuple(name for name in near if naming.explains(outputs, case, "float64", name)):
        return one
    if case.call != "round":
        return ()
    result = verdicts.Result(
        case.name, "", verdicts.FAILED, output=case.required[-1], outputs=outputs
    )
    case = case._replace(catches=near, tag=f"{paper} ")
    search = naming.Search([result], [case], "float64", Trials(naming.EVIDENCE))
    pair = search.pair([(case, result)], (), 0)
    return (naming.BOTH.join(pair),) if pair else ()
