"""APFL's Figure 3: average accuracy for four values of E and four of η."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.lines import Line2D

from fedref.experiments.results import Run
from fedref.plots.style import COLOURS, LINES, MARKERS, STYLE, frame, save
from fedref.reproduction import Number, claim, find, markdown, spread, write_numbers

TITLE = "APFL: the effect of E and η"
PAPER = (
    "APFL, §4.2.2 and Figure 3: average test accuracy of APFL, FedAvg and FedProx for E of 1, 5, 10, 20 "
    "(paper: FEMNIST and CIFAR-10) and, with E = 5, η of 0.0001 to 0.1 (paper: FEMNIST and MNIST). "
    "Here: FEMNIST's rule on MNIST's ten digits, which stand in for the letters a to j, and MNIST for "
    "both; all else as in Figure 1."
)
QUICK = {
    "rounds": 4,
    "mnist-epochs": {"rounds": 12, "sweep.epochs": [1, 5]},
    "femnist-epochs": {"sweep.epochs": [1, 5]},
    "mnist-rate": {"sweep.lr": [0.01, 0.1]},
    "femnist-rate": {"sweep.lr": [0.01, 0.1]},
}

FIGURE_1 = find("apfl-figure-1").module
NAMES: dict[str, str] = FIGURE_1.NAMES
METHODS = {m: FIGURE_1.METHODS[m] for m in ("fedavg", "fedprox", *FIGURE_1.APFL)}
LITERAL, *BESIDE = FIGURE_1.APFL
#: Experiment file → (data, which key is swept, its symbol).
PANELS = {
    "femnist-epochs": ("femnist", "epochs", "E"),
    "mnist-epochs": ("mnist", "epochs", "E"),
    "femnist-rate": ("femnist", "lr", "η"),
    "mnist-rate": ("mnist", "lr", "η"),
}

#: (file, method, value) → average accuracy in %, a seed each
Found = dict[tuple[str, str, float], np.ndarray]


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> str:
    found = averages(runs)
    heads = ("data", "varied", "value", "method")
    write_numbers(out / "numbers.csv", heads, [number(key, found[key]) for key in found])
    draw(found, out / "average.png")
    rows = [["data", "setting", *METHODS.values(), f"{METHODS[LITERAL]}, above the others"]]
    for file, (data, _, symbol) in panels_of(found).items():
        for value in values_of(found, file):
            each = [found[file, m, value] for m in METHODS]
            gain = gains(found, file, LITERAL)[f"{symbol} = {value:g}"]
            cells = [spread(x) for x in (*each, gain)]
            rows.append([NAMES[data], f"{symbol} = {value:g}", *cells])
    return "\n\n".join(
        [
            "Average test accuracy in %, over all rounds. The paper prints no numbers for Figure 3."
            f"{missing(found)}",
            markdown(rows, left=2),
            "![Average test accuracy for four values of E and of η](average.png)",
            claims(found),
        ]
    )


def averages(runs: Mapping[str, Run]) -> Found:
    return {
        (file, label, float(value)): 100 * runs[file].curve(label, **{key: value})[1].mean(1)
        for file, (_, key, _) in PANELS.items()
        if file in runs
        for label in METHODS
        for value in runs[file].experiment.sweep[key]
    }


def panels_of(found: Found) -> dict[str, tuple[str, str, str]]:
    """Those that were run."""
    return {file: panel for file, panel in PANELS.items() if any(key[0] == file for key in found)}


def missing(found: Found) -> str:
    """Those that were not."""
    rest = [
        f"{NAMES[data]} over {s}"
        for file, (data, _, s) in PANELS.items()
        if file not in panels_of(found)
    ]
    return f" Not run: {', '.join(rest)}." if rest else ""


def values_of(found: Found, file: str) -> list[float]:
    return sorted({key[2] for key in found if key[0] == file})


def number(key: tuple[str, str, float], values: np.ndarray) -> Number:
    file, label, value = key
    data, _, symbol = PANELS[file]
    return Number((NAMES[data], symbol, f"{value:g}", METHODS[label]), values)


def gains(found: Found, file: str, label: str) -> dict[str, np.ndarray]:
    """Points of one method above the better of FedAvg and FedProx, at each value."""
    symbol = PANELS[file][2]
    return {
        f"{symbol} = {value:g}": found[file, label, value]
        - np.maximum(found[file, "fedavg", value], found[file, "fedprox", value])
        for value in values_of(found, file)
    }


def claims(found: Found) -> str:
    lines = [
        "What the paper says of it, and what was measured. A claim holds if it does in every seed, at every "
        "value. APFL is judged with the literal init, which is the paper's; the continuous one stands "
        "beside it.",
        "",
    ]
    for file, (data, _, symbol) in panels_of(found).items():
        beside = {
            f"{FIGURE_1.INITS[m]}, {value}": x
            for m in BESIDE
            for value, x in gains(found, file, m).items()
        }
        text = f"APFL has the highest accuracy for every {symbol}, {NAMES[data]}"
        unit = "points above the better of FedAvg and FedProx"
        lines.append(claim(text, gains(found, file, LITERAL), above=0, unit=unit, beside=beside))
    return "\n".join(lines)


def draw(found: Found, path: Path) -> None:
    """A panel for each experiment: average accuracy over E or η."""
    looks: dict[str, dict[str, Any]] = {
        m: {"color": COLOURS[i], "marker": MARKERS[i], "linestyle": LINES[i]}
        for i, m in enumerate(METHODS)
    }
    with style.context(STYLE):
        handles = [Line2D([], [], **look, label=METHODS[m]) for m, look in looks.items()]
        figure, panels = frame((1, len(panels_of(found))), (2.5, 3.2), "", handles)
        for axes, (file, (data, _, symbol)) in zip(panels, panels_of(found).items()):
            x = values_of(found, file)
            for label, look in looks.items():
                y = [found[file, label, value].mean() for value in x]
                axes.plot(x, y, **look)
            axes.set_title(NAMES[data])
            axes.set_xscale("log")
            axes.set_xticks(x, [f"{value:g}" for value in x])
            axes.minorticks_off()
            axes.set_xlabel("epochs E" if symbol == "E" else "learning rate η")
        panels[0].set_ylabel("average test accuracy (%)")
        save(figure, path)


def apfl_above_fedavg(runs: Mapping[str, Run]) -> tuple[bool, str]:
    found, file = averages(runs), "mnist-epochs"
    gain = {
        m: float((found[file, m, 5.0] - found[file, "fedavg", 5.0]).mean()) for m in FIGURE_1.APFL
    }
    return min(gain.values()) > 0, ", ".join(
        f"{METHODS[m]} {x:+.2f} points" for m, x in gain.items()
    )


CHECKS = {"APFL's average accuracy on MNIST is above FedAvg's at E = 5": apfl_above_fedavg}
