"""How APFL's sentences are judged: by whom, where, and on which rounds."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from reproducing import small, with_curves

from fedref import run
from fedref.experiments.results import Run
from fedref.rounds.evaluation import Scores
from reproduce import catalogue
from reproduce.claims import judge

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


def verdict(report: ModuleType, text: str, found: Run) -> str:
    """Judge the claim that begins so, on MNIST."""
    (claim,) = (claim for claim in report.CLAIMS if claim.text.startswith(text))
    return judge([claim], FIGURE_1.places({"mnist": found}))


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


@pytest.mark.parametrize(("literal", "said"), [(0.9, "Holds"), (0.5, "Does not hold")])
def test_so_it_does_at_every_value_of_a_sweep(
    literal: float, said: str, short: Run, tmp_path: Path
) -> None:
    curves = {label: [0.7, 0.7] for label in LABELS}
    curves |= {"apfl-paper": [literal] * 2, "apfl-continuous": [1.4 - literal] * 2}
    run = with_curves(short, accuracy=curves)
    units = [unit._replace(point={"lr": lr}) for lr in (0.1, 1.0) for unit in run.units]
    made = replace(run.experiment, sweep={"lr": [0.1, 1.0]})
    swept = Run(made, units, [*run.records, *run.records])
    found = FIGURE_3.report({"mnist-rate": swept}, tmp_path, None)
    gain, other = ("20.00", "−20.00") if said == "Holds" else ("−20.00", "20.00")
    assert found["claims"] == (
        f"- {said} (one seed: above 0): *APFL has the highest accuracy for every η, MNIST*; η = 0.1 "
        f"{gain}, η = 1 {gain} points above the better of FedAvg and FedProx; beside it, continuous "
        f"init, η = 0.1 {other}, continuous init, η = 1 {other}."
    )
    assert "Not run: FEMNIST's rule, digits over E, MNIST over E, FEMNIST's" in found["missing"]


def test_table_2_has_a_verdict_for_a_data_set_and_e() -> None:
    """The literal init gains by λ, and by E; the continuous one does the contrary."""
    blocks = [
        TABLE_2.Block(
            "mnist",
            E,
            {
                label: {lam: np.array([sign * lam * gain]) for lam in (0.0, 1.0)}
                for label, sign in (("apfl-paper", 1), ("apfl-continuous", -1))
            },
        )
        for E, gain in ((5, 0.2), (20, 1.5))
    ]
    lines = "\n".join(TABLE_2.claims(blocks)).splitlines()
    assert [line.partition(": *")[0] + line.split("*")[1] for line in lines] == [
        "- Holds (one seed: above 0)A larger λ is better in general, MNIST, E = 5",
        "- Holds (one seed: above 0)A larger λ is better in general, MNIST, E = 20",
        "- Does not hold (one seed: below 1)APFL is robust to the choice of λ, MNIST",
        "- Holds (one seed: above 0)A larger λ helps more at a larger E, MNIST",
    ]
    assert "E = 20 less E = 5 1.30 points; beside it, continuous init −1.30; paper" in lines[-1]


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
    lines = "\n".join(ABLATIONS.claims_of_starts(found)).splitlines()
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
    text = ABLATIONS.claim_of_strengths(found)
    y = [100 * lam.curve("fedcurv", lam=x)[1].mean(1) for x in (0.0, 1.0)]
    assert f"FedCurv {np.abs(y[1] - y[0]).mean():.2f} ± " in text
    y = [100 * mu.curve("apfl-paper", mu=x)[1].mean(1) for x in (0.1, 1.0)]
    assert f"*; APFL, literal init {np.abs(y[1] - y[0]).mean():.2f} ± " in text
