"""APFL's Figure 3: average accuracy for four values of E and four of η."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from fedref.experiments.results import Run
from reproduce.catalogue import find
from reproduce.claims import Place, claims_of, judge, report_claims
from reproduce.measures import at_point, average, count_tested
from reproduce.pictures import Panel, draw_panels
from reproduce.tables import Number, markdown, spread, write_numbers

QUICK = {
    "rounds": 4,
    "mnist-epochs": {"rounds": 12, "sweep.epochs": [1, 5]},
    "femnist-epochs": {"sweep.epochs": [1, 5]},
    "mnist-rate": {"sweep.lr": [0.01, 0.1]},
    "femnist-rate": {"sweep.lr": [0.01, 0.1]},
}

FIGURE_1 = find("apfl-figure-1").module
NAMES: dict[str, str] = FIGURE_1.NAMES
RIVALS = ("fedavg", "fedprox")
METHODS = {m: FIGURE_1.METHODS[m] for m in (*RIVALS, *FIGURE_1.APFL)}
#: Experiment file → (data, which key is swept, its symbol).
PANELS = {
    "femnist-epochs": ("femnist", "epochs", "E"),
    "mnist-epochs": ("mnist", "epochs", "E"),
    "femnist-rate": ("femnist", "lr", "η"),
    "mnist-rate": ("mnist", "lr", "η"),
}


def more_epochs(few: int, many: int) -> Callable[[Place, str], np.ndarray]:
    """Return what measures the change of the average accuracy from one of the values of E to another."""

    def change(place: Place, label: str) -> np.ndarray:
        values = sorted(place.run.experiment.sweep["epochs"])
        one, other = (average(at_point(place.run, epochs=values[i]), label) for i in (few, many))
        return other - one

    return change


gain_from_1_to_5, gain_from_5_to_20 = more_epochs(0, 1), more_epochs(1, -1)


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> dict[str, str]:
    files = {file: panel for file, panel in PANELS.items() if file in runs}
    places = [
        Place(
            file, NAMES[data], at_point(runs[file], **{key: x}), FIGURE_1.INITS, f"{symbol} = {x:g}",
            kinds=[symbol], **count_tested(runs[file]),
        )
        for file, (data, key, symbol) in files.items()
        for x in sorted(runs[file].experiment.sweep[key])
    ]  # fmt: skip
    swept = [
        Place("swept", NAMES[data], runs[file], METHODS, **count_tested(runs[file]))
        for file, (data, key, _) in files.items()
        if key == "epochs"
    ]
    found = {file: averages(runs[file], key) for file, (_, key, _) in files.items()}
    numbers = [
        Number((NAMES[data], symbol, f"{x:g}", METHODS[m]), y)
        for file, (data, _, symbol) in files.items()
        for m, each in found[file].items()
        for x, y in each.items()
    ]
    write_numbers(out / "numbers.csv", ("data", "varied", "value", "method"), numbers)
    draw_panels(
        out / "average.png",
        [
            Panel(
                NAMES[data],
                "epochs E" if symbol == "E" else "learning rate η",
                {METHODS[m]: each for m, each in found[file].items()},
                sorted(runs[file].experiment.sweep[key]),
                logarithmic=True,
            )
            for file, (data, key, symbol) in files.items()
        ],
        "average test accuracy (%)",
    )
    rest = [f"{NAMES[d]} over {symbol}" for f, (d, _, symbol) in PANELS.items() if f not in files]
    rows = [["data", "setting", *METHODS.values(), f"{METHODS['apfl-paper']}, above the others"]]
    for place in places:
        each = [average(place.run, m) for m in METHODS]
        cells = [spread(x) for x in (*each, each[2] - np.maximum(*each[:2]))]
        rows.append([place.name, place.setting, *cells])
    return {
        "missing": f" Not run: {', '.join(rest)}." if rest else "",
        "averages": markdown(rows, left=2),
        "claims": report_claims(judge(claims_of("apfl-figure-3", globals()), places + swept), out),
    }


def averages(run: Run, key: str) -> dict[str, dict[float, np.ndarray]]:
    """Return method → value of E or η → average accuracy in %: (seeds,)."""
    values = run.experiment.sweep[key]
    return {m: {float(x): average(at_point(run, **{key: x}), m) for x in values} for m in METHODS}
