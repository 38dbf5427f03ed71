"""APFL's reports: how its sentences are judged, on which rounds, and what its bytes are."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from reproducing import as_sure, claims_in, judge_lines, small, with_curves

from fedref import run
from fedref.experiments.results import Run
from fedref.rounds.evaluation import Scores
from reproduce import catalogue
from reproduce.claims import claim_lines, judge
from reproduce.measures import bytes_sent
from reproduce.writing import fill

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


def verdict(report: str, text: str, found: Run) -> str:
    """Judge the claim with these words, on MNIST."""
    (claim,) = (claim for claim in claims_in(report) if text in claim.text)
    return judge_lines([claim], FIGURE_1.places({"mnist": found}))


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
    line = verdict("apfl-figure-1", "% with a higher accuracy", found)
    assert line.startswith("- Contradicted (above 50)")
    assert "APFL, literal init 33.33 % of the clients with test rows; beside it" in line
    assert line.endswith("continuous init 100.00; 0.00 % are less accurate, and 66.67 % the same.")
    assert verdict(
        "apfl-figure-1",
        "more clients gain accuracy than lose it",
        found,
    ).startswith("- Holds (above 0)")
    line = verdict(
        "apfl-figure-1",
        "read by test loss",
        found,
    )
    assert line.startswith("- Holds (above 50)")
    assert "literal init 66.67 %" in line


HIGHEST = "APFL has the highest average"
FLAT = {label: [0.7, 0.7] for label in LABELS}
LOSS = {
    "fedavg": [4, 3, 1, 2, 2], "fedprox": [4, 3, 3, 3, 1.5], "apfl-paper": [4, 2, 2, 2, 2],
    "apfl-continuous": [4] * 5,
}  # fmt: skip
WILD = {label: [0.5, 0.6] * 4 for label in LABELS} | {"apfl-paper": [0.5] * 8}
BETWEEN = {"fedavg": [0.5, 0.7] * 4, "fedmeta-maml": [0.5, 0.6] * 4, "apfl-paper": [0.5] * 8}
#: After adaptation FedMeta is 50 points ahead before any training, and behind from then on.
START = {"fedavg": [0.2] + [0.6] * 18 + [0.8], "fedmeta-maml": [0.7] + [0.5] * 10 + [0.9] * 9}
#: It is already above FedAvg's end.
EASY = START | {"fedavg": [0.2] + [0.6] * 19}
STEADY = (
    "APFL converges more smoothly than FedAvg",
    "the accuracy of FedProx oscillates more than APFL's as well",
    "less steady than APFL",
)


@pytest.mark.parametrize(
    ("report", "text", "curves", "said", "part"),
    [
        # the literal init has to be above 0.7, and the continuous one is beside it
        *(
            (
                "apfl-figure-1", HIGHEST,
                FLAT | {"apfl-paper": [literal] * 2, "apfl-continuous": [continuous] * 2},
                f"{said} (above 0)",
                f"beside it, APFL, continuous init {'30' if continuous == 1 else '−60'}.00",
            )
            for literal, said in ((0.9, "Holds"), (0.5, "Contradicted"))
            for continuous in (0.1, 1.0)
        ),
        # there in rounds 2, 1 (FedAvg itself) and 5; FedProx's final loss is never reached
        (
            "apfl-figure-2", "APFL is faster", LOSS, "Holds (above 0)",
            "literal init 1.00 rounds fewer; beside it, APFL, continuous init −3.00",
        ),
        (
            "apfl-figure-2", "FedProx is slow as well", LOSS, "Contradicted (above 0)",
            "*; FedProx −1.00 rounds fewer",
        ),
        *(("apfl-figure-2", text, WILD, "Holds (", "10.00 points") for text in STEADY),
        ("apfl-figure-2", "less steady than APFL", BETWEEN, "Holds", "10.00 points more change"),
        (
            "apfl-figure-2", "less steady than FedAvg", BETWEEN, "Contradicted",
            "FedMeta (MAML) −10.00 points more change",
        ),
        (
            "apfl-figure-2", "FedMeta helps early", START, "Contradicted (above 0)",
            "−10.00 points of average accuracy above FedAvg in the rounds 1 to 10;",
        ),
        (
            "apfl-figure-2", "FedMeta helps early", EASY, "Not judged: ",
            "adapted by one step, has 70.00 %, which is above FedAvg's final 60.00 %.",
        ),
        ("apfl-figure-2", "FedMeta helps early", START, "", "with that round −4.55."),  # (50 − 10·10)/11
    ],
)  # fmt: skip
def test_claims(
    report: str, text: str, curves: dict[str, list[float]], said: str, part: str, short: Run
) -> None:
    column = "train_loss" if curves is LOSS else "accuracy"
    line = verdict(report, text, with_curves(short, **{column: curves}))
    assert line.startswith(f"- {said}")
    assert part in line


@pytest.mark.parametrize("text", STEADY)
def test_smoothness_is_judged_only_where_every_round_is_evaluated(text: str, short: Run) -> None:
    line = verdict("apfl-figure-2", text, with_curves(short, 5, accuracy=WILD))
    assert line.startswith("- Not judged: ")
    assert line.endswith("; evaluated every 5 rounds only.")
    assert "10.00 points" in line


@pytest.mark.parametrize(("literal", "said"), [(0.9, "Holds"), (0.5, "Contradicted")])
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
        "- Undecided (above 0; one seed): *Figure 3 (b): APFL is the highest of three at every η, MNIST*; "
        f"η = 0.1 {gain}, η = 1 {gain} points above the better of FedAvg and FedProx; beside it, continuous "
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
    lines = as_sure(TABLE_2.findings(blocks)).splitlines()
    assert [line.partition(": *")[0] + line.split("*")[1] for line in lines] == [
        "- Contradicted (below 1)APFL is robust to λ (a range below 1 point, our size), MNIST",
        "- Holds (above 0)a larger λ is better in general, MNIST, E = 5",
        "- Holds (above 0)a larger λ is better in general, MNIST, E = 20",
        "- Holds (above 0)a larger λ helps more at a larger E, MNIST",
    ]
    assert lines[-1].endswith("E = 20 less E = 5 1.30 points; beside it, continuous init −1.30.")


def test_rounds_of_fedavg_before_help_at_first_but_not_in_all(short: Run) -> None:
    high, low = {m: [0.5] + [0.7] * 10 + [0.4] * 20 for m in FIGURE_1.APFL}, [0.5] + [0.6] * 30
    runs = {
        "mnist": with_curves(short, accuracy=high),
        "ablation-mnist-z": with_curves(short, accuracy=dict.fromkeys(FIGURE_1.APFL, low)),
    }
    found = ABLATIONS.later_start(runs)
    assert [float(n.more[1][0]) for n in found["the first rounds"]] == pytest.approx([10, 10])
    assert float(found["all rounds"][0].more[1][0]) == pytest.approx((10 * 10 - 20 * 20) / 31)
    lines = judge_lines(
        claims_in("apfl-ablations"), ABLATIONS.places_of_starts(found, runs)
    ).splitlines()
    assert lines[0].startswith("- Holds (above 0): *rounds of FedAvg before")
    assert lines[1].startswith("- Contradicted (above 0): *rounds of FedAvg before")


def test_kinds_of_importance_are_set_beside_the_same_seeds() -> None:
    apfl = {"apfl-paper": {"algorithm": "apfl", "lr": 0.1, "mu": 300.0}}
    base = run(small(apfl, seeds=[0, 1], steps=3), rounds=4)
    sweep = {"importance": ["fisher", "si"]}
    swept = run(small(apfl, seeds=[1], steps=3, sweep=sweep), rounds=4)
    (place,) = ABLATIONS.places_of_kinds({"mnist": base, "ablation-mnist-importance": swept})
    (one,) = 100 * swept.curve("apfl-paper", importance="si")[1].mean(1)
    other, same = 100 * base.curve("apfl-paper")[1].mean(1)
    assert ABLATIONS.gain_of_importance(place, "si") == pytest.approx([one - same])
    assert len({one, same, other}) == 3


def test_the_penalty_is_judged_against_the_same_without_it(short: Run) -> None:
    """Accuracies rise by 10 points a round with it; they jump up and down by 20 without."""
    steady, jumping = [0.5, 0.6, 0.7, 0.8, 0.9], [0.5, 0.3, 0.5, 0.3, 0.5]
    with_it, without = (
        with_curves(short, accuracy=dict.fromkeys(FIGURE_1.APFL, y)) for y in (steady, jumping)
    )
    (place,) = ABLATIONS.places_of_penalty({"mnist": with_it, "ablation-mnist-penalty": without})
    n = len(short.experiment.seeds)
    assert ABLATIONS.gain_of_penalty(place, "apfl-paper") == pytest.approx([28.0] * n)
    assert ABLATIONS.change_saved_by_penalty(place, "apfl-paper") == pytest.approx([10.0] * n)
    assert ABLATIONS.places_of_penalty({"mnist": with_it}) == []


def test_a_loss_is_left_high_above_half_of_the_start(short: Run) -> None:
    """One of four clients is: the start is at 2."""
    found = with_curves(short, train_loss={m: [2.0, 1.0] for m in LABELS})
    nan = np.zeros(4)
    scores = Scores(nan, nan, nan, nan, np.array([1.0, 1.1, 0.5, np.nan]))
    records = [record._replace(scores=[scores]) for record in found.records]
    line = verdict("apfl-figure-2", "bring the loss low", found._replace(records=records))
    assert line.startswith("- Holds (above 0)")
    assert "FedAvg 25.00, FedProx 25.00 % of the clients; beside it, APFL, literal init 25" in line


def test_robustness_to_mu_is_the_range_over_it_without_what_diverged() -> None:
    apfl = {m: {"algorithm": "apfl", "init": m.removeprefix("apfl-")} for m in FIGURE_1.APFL}
    mu = run(small(apfl, seeds=[0, 1], sweep={"mu": [0.1, 1.0]}), rounds=3)
    sweep = {"lam": [0.0, 1.0, 1e200]}
    with np.errstate(all="ignore"):
        lam = run(small({"fedcurv": {"lr": 0.1}}, seeds=[0, 1], sweep=sweep), rounds=3)
    found = ABLATIONS.penalties({"ablation-vehicle-mu": mu, "ablation-vehicle-curv": lam})
    assert [n.what[2] for n in found] == [*["μ = 0.1", "μ = 1"] * 2, "λ = 0", "λ = 1", "λ = 1e+200"]
    assert found[-1].comment.startswith("diverged in 2 of 2 seeds")
    places = ABLATIONS.place_of_strengths(found, {"vehicle": mu})
    text = claim_lines(judge(claims_in("apfl-ablations"), places))
    y = [100 * lam.curve("fedcurv", lam=x)[1].mean(1) for x in (0.0, 1.0)]
    assert f"FedCurv {np.abs(y[1] - y[0]).mean():.2f} ± " in text
    y = [100 * mu.curve("apfl-paper", mu=x)[1].mean(1) for x in (0.1, 1.0)]
    assert f"*; APFL, literal init {np.abs(y[1] - y[0]).mean():.2f} ± " in text


# ---- bytes, and what has not ended --------------------------------------------------------------


def test_bytes_of_rounds_that_renew_the_importance() -> None:
    """F is new after rounds 2, 3 and 4: w_S and F travel down and up, but for the first round of F."""
    algorithms = {"fedavg": {"lr": 0.1}, "apfl-paper": {"algorithm": "apfl", "z": 2}}
    found = run(small(algorithms, clients=4, seeds=[0, 1]), rounds=6)
    assert [row["renewed"] for row in found.records[1].rows] == [0, 1, 1, 1, 0, 0, 0]
    always = bytes_sent(found, "apfl-paper") / bytes_sent(found, "fedavg")
    assert always == pytest.approx(np.full(2, (6 + 4 + 6 + 3) / 12))
    (here,) = FIGURE_1.places({"mnist": found})
    assert FIGURE_1.bytes_of_renewals(here, "apfl-paper") == pytest.approx([2, 2])
    found.records[1].rows[5]["renewed"] = 1  # those around z are preset, and do not count
    assert FIGURE_2.count_renewals(found, "apfl-paper").tolist() == [1, 0]


def test_what_was_not_run_is_named_and_judges_no_claim(tmp_path: Path) -> None:
    """FedMeta and FedProx were not run: nothing is said of them, but that."""
    cifar10 = catalogue.find("apfl-cifar10")
    algorithms = {"fedavg": {"lr": 0.1}, "apfl-paper": {"algorithm": "apfl", "z": 2}}
    found = run(small({**algorithms, "centralised": {"lr": 0.1}}), rounds=4)
    text = fill(cifar10, cifar10.module.report({"cifar10": found}, tmp_path, None))
    lines = [line for line in text.splitlines() if line.startswith("- ")]
    absent = [line for line in lines if "; not run: " in line]
    assert all(line.startswith("- Not judged: ") for line in absent)
    assert not any("Not judged" in line for line in lines if line not in absent)
    judged = "\n".join(line for line in lines if line not in absent)
    for words in ("APFL generalises better", "APFL needs hardly any", "APFL renews", "faster"):
        assert words in judged
    for words in ("highest average", "FedCurv costs twice", "FedMeta helps", "FedProx is slow"):
        assert words not in judged
        assert words in "\n".join(absent)
    rows = {line.split(" | ")[1] for line in text.splitlines() if line.startswith("| CIFAR-10")}
    assert rows == {"FedAvg", "APFL, literal init", "IID, centralised"}


def test_figure_3_on_cifar_is_judged_for_each_number_of_epochs_that_was_run(tmp_path: Path) -> None:
    report = catalogue.find("apfl-cifar10").module
    algorithms = {
        "fedavg": {"lr": 0.1},
        "fedprox": {"lr": 0.1},
        "apfl-paper": {"algorithm": "apfl", "z": 2},
    }
    five, one = (run(small(algorithms, steps=None, epochs=E), rounds=3) for E in (5, 1))
    runs = {"cifar10": five, "cifar10-1": one}
    text = "\n".join(
        [
            *report.epochs(runs, tmp_path).values(),
            judge_lines(report.CLAIMS, report.places_of_epochs(runs)),
        ]
    )
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| E = ")]
    assert [row[0] for row in rows] == ["| E = 1"] * 3 + ["| E = 5"] * 3
    shown = [float(row[2].rstrip(" |")) for row in rows]
    averages = [100 * found.curve(m)[1].mean() for found in (one, five) for m in algorithms]
    assert shown == pytest.approx(averages, abs=0.005)
    for E, found in zip(("E = 1", "E = 5"), (averages[:3], averages[3:])):
        verdict = next(line for line in text.splitlines() if f", {E}*" in line)
        assert verdict.startswith("- Holds") == (found[2] > max(found[:2]))
        assert f"{found[2] - max(found[:2]):.2f}".replace("-", "−") in verdict
