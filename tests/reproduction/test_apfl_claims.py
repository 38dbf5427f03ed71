"""How APFL's sentences are judged: by whom, where, and on which rounds."""

from collections.abc import Sequence

import numpy as np
import pytest
from reproducing import small

from fedref import run
from fedref.experiments.results import Run
from fedref.reproduction import catalogue, coverage
from fedref.rounds.evaluation import Scores

FIGURE_1, FIGURE_2, FIGURE_3, TABLE_2, ABLATIONS = (
    catalogue.find(f"apfl-{name}").module
    for name in ("figure-1", "figure-2", "figure-3", "table-2", "ablations")
)
LABELS = ("fedavg", "fedprox", "fedcurv", "fedmeta-maml", *FIGURE_1.APFL, "centralised")


@pytest.fixture(scope="module")
def short() -> Run:
    """Two rounds of FedAvg under every label."""
    same = {label: {"algorithm": "fedavg", "lr": 0.1} for label in LABELS}
    return run(small(same), rounds=2)


def with_curves(of: Run, grain: int = 1, **columns: dict[str, Sequence[float]]) -> Run:
    """The same with these values, of one seed, at rounds 0, grain, 2 grain ..."""
    records = []
    for unit, record in zip(of.units, of.records):
        length = max(len(curves.get(unit.label, ())) for curves in columns.values())
        rows = [
            record.rows[0]
            | {"round": grain * i}
            | {c: curves[unit.label][i] for c, curves in columns.items() if unit.label in curves}
            for i in range(length)
        ]
        records.append(record._replace(rows=rows or record.rows, round=grain * max(length - 1, 0)))
    made = of.experiment.__class__(**{**vars(of.experiment), "eval_every": grain})
    return of._replace(experiment=made, records=records)


def verdict(report, text: str, found: Run, stem: str = "mnist") -> str:  # type: ignore[no-untyped-def]
    (said,) = (said for said in report.SAID if said.text.startswith(text))
    line: str = FIGURE_1.verdict(said, FIGURE_1.Place(stem, found))
    return line


def with_scores(of: Run, label: str, accuracy: Sequence[float], loss: Sequence[float]) -> Run:
    """The same with these last scores of four clients, the last of which has no test rows."""
    nan = np.zeros(4)
    scores = Scores(np.array([5, 5, 5, 0]), np.array(accuracy), np.array(loss), nan, nan)
    records = [
        r._replace(scores=[scores]) if unit.label == label else r
        for unit, r in zip(of.units, of.records)
    ]
    return of._replace(records=records)


def test_most_clients_are_most_of_all_of_them(short: Run) -> None:
    """One gains, none loses, two are the same: not most, but more than lose. By loss it is two."""
    found = with_scores(short, "fedavg", [0.2, 0.4, 0.6, np.nan], [1, 1, 1, np.nan])
    found = with_scores(found, "apfl-paper", [0.4, 0.4, 0.6, np.nan], [0.5, 0.5, 2, np.nan])
    found = with_scores(found, "apfl-continuous", [0.4, 0.6, 0.8, np.nan], [2, 2, 2, np.nan])
    line = verdict(FIGURE_1, "Most clients are more accurate", found)
    assert line.startswith("- Does not hold (one seed: above 50)")
    assert "APFL, literal init 33.33 % of the clients with test rows; beside it" in line
    assert line.endswith("continuous init 100.00; 0.00 % are less accurate, and 66.67 % the same.")
    assert verdict(FIGURE_1, "More clients gain", found).startswith("- Holds (one seed: above 0)")
    line = verdict(FIGURE_1, "Most clients have a lower test loss", found)
    assert line.startswith("- Holds (one seed: above 50)")
    assert "literal init 66.67 %" in line


@pytest.mark.parametrize(("literal", "said"), [(0.9, "Holds"), (0.5, "Does not hold")])
def test_the_literal_init_decides_and_the_other_is_beside_it(
    literal: float, said: str, short: Run
) -> None:
    """Whatever the continuous one does, it is 0.7 that the literal one has to be above."""
    for continuous in (0.1, 1.0):
        curves = {label: [0.7, 0.7] for label in LABELS}
        curves |= {"apfl-paper": [literal, literal], "apfl-continuous": [continuous, continuous]}
        line = verdict(
            FIGURE_1, "APFL has the highest average", with_curves(short, accuracy=curves)
        )
        assert line.startswith(f"- {said} (one seed: above 0)")
        assert f"beside it, APFL, continuous init {'30' if continuous == 1 else '−60'}.00" in line
    found = {("mnist-rate", m, 0.1): np.array([0.0]) for m in ("fedavg", "fedprox")}
    found |= {("mnist-rate", m, 0.1): np.array([literal - 0.7]) for m in FIGURE_1.APFL[:1]}
    found[("mnist-rate", "apfl-continuous", 0.1)] = np.array([0.7 - literal])
    lines = [line for line in FIGURE_3.claims(found).splitlines() if line.startswith("- ")]
    assert len(lines) == 1
    assert lines[0].startswith(f"- {said} (one seed: above 0): *APFL has the highest accuracy for")


def test_table_2_has_a_verdict_for_a_data_set_and_e(short: Run) -> None:
    """The literal init gains by λ, and by E; the continuous one does the contrary."""
    found = {}
    for E, gain in ((5, 0.2), (20, 1.5)):
        for label, sign in (("apfl-paper", 1), ("apfl-continuous", -1)):
            found |= {("mnist", label, E, lam): np.array([sign * lam * gain]) for lam in (0.0, 1.0)}
    lines = TABLE_2.claims({"mnist": with_renewals(short)}, found).splitlines()
    judged = [line.partition(": *")[0] + line.split("*")[1] for line in lines if ": *" in line]
    assert judged == [
        "- Holds (one seed: above 0)A larger λ is better in general, MNIST, E = 5",
        "- Holds (one seed: above 0)A larger λ is better in general, MNIST, E = 20",
        "- Does not hold (one seed: below 1)APFL is robust to the choice of λ, MNIST",
        "- Holds (one seed: above 0)A larger λ helps more at a larger E, MNIST",
    ]


def with_renewals(of: Run) -> Run:
    records = [r._replace(rows=[row | {"renewed": 0} for row in r.rows]) for r in of.records]
    return of._replace(records=records)


def test_faster_is_fewer_rounds_to_the_others_final_loss(short: Run) -> None:
    loss = {"fedavg": [4, 3, 1, 2, 2], "fedprox": [4, 3, 3, 3, 1.5], "apfl-paper": [4, 2, 2, 2, 2]}
    loss["apfl-continuous"] = [4, 4, 4, 4, 4]
    found = with_curves(short, train_loss=loss)
    line = verdict(FIGURE_2, "APFL reaches FedAvg's final", found)
    assert line.startswith("- Holds (one seed: above 0)")
    assert (
        "literal init 1.00 rounds fewer; beside it, APFL, continuous init −3.00" in line
    )  # 2, 1, 5
    line = verdict(FIGURE_2, "FedAvg and FedProx converge slowly", found)
    assert line.startswith("- Does not hold (one seed: above 0)")  # FedProx's is never reached
    assert "FedAvg 1.00, FedProx −1.00 rounds fewer" in line


@pytest.mark.parametrize(("grain", "said"), [(1, "Holds (one seed"), (5, "Not judged: ")])
def test_smoothness_is_judged_where_every_round_is_evaluated(
    grain: int, said: str, short: Run
) -> None:
    steady, wild = [0.5] * 8, [0.5, 0.6] * 4
    curves = dict.fromkeys(LABELS, wild) | {"apfl-paper": steady, "apfl-continuous": wild}
    found = with_curves(short, grain, accuracy=curves)
    for text in (
        "APFL converges more smoothly than FedAvg",
        "The accuracy of FedAvg and FedProx oscillates",
        "FedMeta is less steady than APFL",
    ):
        line = verdict(FIGURE_2, text, found)
        assert line.startswith(f"- {said}")
        assert "10.00" in line
        assert ("evaluated every 5 rounds only" in line) == (grain == 5)
        assert "a round less" not in line


def test_fedmeta_is_set_beside_both_in_the_later_rounds(short: Run) -> None:
    """Its changes are between FedAvg's and APFL's."""
    curves = {"fedavg": [0.5, 0.7] * 4, "fedmeta-maml": [0.5, 0.6] * 4, "apfl-paper": [0.5] * 8}
    found = with_curves(short, accuracy=curves)
    assert verdict(FIGURE_2, "FedMeta is less steady than APFL", found).startswith("- Holds")
    line = verdict(FIGURE_2, "FedMeta is less steady than FedAvg", found)
    assert line.startswith("- Does not hold")
    assert "FedMeta (MAML) −10.00 points more change" in line


def test_what_helps_training_is_not_the_untrained_start(short: Run) -> None:
    """After adaptation FedMeta is 50 points ahead before any training, and behind from then on."""
    curves = {"fedavg": [0.2] + [0.6] * 19, "fedmeta-maml": [0.7] + [0.5] * 10 + [0.9] * 9}
    line = verdict(FIGURE_2, "FedMeta is more accurate", with_curves(short, accuracy=curves))
    assert line.startswith("- Does not hold (one seed: above 0)")
    assert (
        "FedMeta (MAML) −10.00 points of average accuracy above FedAvg in the rounds 1 to" in line
    )
    assert line.endswith("with that round −4.55.")  # (50 − 10 · 10) / 11


def test_rounds_of_fedavg_before_help_at_first_but_not_in_all(short: Run) -> None:
    high, low = {m: [0.5] + [0.7] * 10 + [0.4] * 20 for m in FIGURE_1.APFL}, [0.5] + [0.6] * 30
    runs = {
        "mnist": with_curves(short, accuracy=high),
        "ablation-mnist-z": with_curves(short, accuracy=dict.fromkeys(FIGURE_1.APFL, low)),
    }
    found = ABLATIONS.later_start(runs)
    assert [float(n.more[1][0]) for n in found["the first rounds"]] == pytest.approx([10, 10])
    assert float(found["all rounds"][0].more[1][0]) == pytest.approx((10 * 10 - 20 * 20) / 31)
    lines = ABLATIONS.starts_text(found)[-1].splitlines()
    assert lines[0].startswith("- Holds (one seed: above 0): *Rounds of FedAvg before")
    assert lines[1].startswith("- Does not hold (one seed: above 0): *Rounds of FedAvg before")


def test_robustness_to_mu_is_the_range_over_it_without_what_diverged() -> None:
    apfl = {m: {"algorithm": "apfl", "init": m.removeprefix("apfl-")} for m in FIGURE_1.APFL}
    mu = run(small(apfl, seeds=[0, 1], sweep={"mu": [0.1, 1.0]}), rounds=3)
    sweep = {"lam": [0.0, 1.0, 1e200]}
    with np.errstate(all="ignore"):
        lam = run(small({"fedcurv": {"lr": 0.1}}, seeds=[0, 1], sweep=sweep), rounds=3)
    found = ABLATIONS.penalties({"ablation-vehicle-mu": mu, "ablation-vehicle-curv": lam})
    assert [n.what[2] for n in found] == [*["μ = 0.1", "μ = 1"] * 2, "λ = 0", "λ = 1", "λ = 1e+200"]
    assert found[-1].comment.startswith("diverged in 2 of 2 seeds")
    text = ABLATIONS.strengths_text(found)[-1]
    y = [100 * lam.curve("fedcurv", lam=x)[1].mean(1) for x in (0.0, 1.0)]
    assert f"FedCurv {np.abs(y[1] - y[0]).mean():.2f} ± " in text
    y = [100 * mu.curve("apfl-paper", mu=x)[1].mean(1) for x in (0.1, 1.0)]
    assert f"*; APFL, literal init {np.abs(y[1] - y[0]).mean():.2f} ± " in text


@pytest.mark.parametrize("name", ["apfl-figure-1", "apfl-figure-2"])
def test_every_sentence_of_a_figure_has_a_row_of_its_own(name: str) -> None:
    """And CIFAR-10's verdicts are in the same row, where the sentence is about CIFAR-10."""
    rows = [item for item in coverage.items(catalogue.root()) if name in coverage.sections(item)]
    claims = {item["claim"]: coverage.sections(item) for item in rows if "claim" in item}
    texts = {said.text: said.stems for said in catalogue.find(name).module.SAID}
    for text, stems in texts.items():
        (sections,) = (found for claim, found in claims.items() if text.startswith(claim))
        assert ("apfl-cifar10" in sections) == ("cifar10" in stems), text
    assert len(claims) == len(texts)
