"""Whether a change moved a number: `python -m tests.unmoved DIR` keeps, `--compare` tells them apart.

Every algorithm with every model on two seeds, `fedref run` as it is, and one experiment of each
reproduction with `--quick` (it needs FEDREF_DATA). What is compared is every column of metrics.csv
and clients.csv, and the arrays of each checkpoint. It calls nothing but the command line and states
every value, so that the same script serves before and after a change of layout or defaults.
"""

import argparse
import csv
import io
import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np

#: Every value is stated, so that a change of defaults does not look like one of numbers.
ALGORITHMS = """
fedavg = {lr = 0.05}
fedavg-update = {lr = 0.05, alpha = 0.01}
fedavg-meta = {lr = 0.05, alpha = 0.01}
fedprox = {lr = 0.05}
per-fedavg = {alpha = 0.01, beta = 0.001}
per-fedavg-fo = {alpha = 0.01, beta = 0.001}
per-fedavg-hf = {alpha = 0.01, beta = 0.001}
fedmeta-maml = {alpha = 0.01, beta = 0.01}
fedmeta-fomaml = {alpha = 0.01, beta = 0.01}
fedmeta-sgd = {alpha = 0.01, beta = 0.01}
fedmaml = {alpha = 0.01, beta = 0.01}
fedcurv = {lr = 0.05}
apfl = {lr = 0.05}
centralised = {lr = 0.05}
adaptive = {algorithm = "fedprox", lr = 0.05, adaptive-mu = true, mu = 0.3}
until = {algorithm = "fedprox", lr = 0.05, until-gamma = 0.9}
flag = {algorithm = "apfl", lr = 0.05, z = 1, delta-mu = 9.0, delta-sigma = 9.0, window = 2, \
        init = "continuous", importance = "si"}
fisher = {algorithm = "apfl", lr = 0.05, importance = "fisher", z = 1}
mas = {algorithm = "apfl", lr = 0.05, importance = "mas", z = 1}
adam = {algorithm = "fedmeta-sgd", alpha = 0.01, beta = 0.01, server = "adam", inner-steps = 2}
"""
MODELS = {
    "logistic": "digits",
    "mlp": "digits",
    "cnn": "digits",
    "svm": "two.npz",
    "binary-logistic": "two.npz",
}


def document(model: str, data: str) -> str:
    """One experiment: 6 clients, stragglers, uneven batches, float64 and every algorithm."""
    rounds, size = (2, 6) if model == "cnn" else (4, 12)
    split = f'rule = "dirichlet"\nusers = {size}\nalpha = 1.0'
    split = split if data == "digits" else f'rule = "iid"\nusers = {size}'
    return f"""
name = "unmoved"
rounds = {rounds}
clients-per-round = 3
epochs = 2
batch-size = 9
stragglers = 0.4
seeds = [3, 8]
dissimilarity = true
[data]
name = {json.dumps(data)}
[split]
{split}
[model]
name = "{model}"
{"channels = [2, 3]" if model == "cnn" else ""}
{"kernel = 2" if model == "cnn" else ""}
[algorithms]{ALGORITHMS}"""


def fedref(*words: object) -> None:
    """The command; its output is only shown where it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "fedref", *map(str, words)], capture_output=True, text=True
    )
    if done.returncode not in (0, 3):  # 3: an algorithm diverged
        raise SystemExit(f"fedref {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")


def hashes(run: Path) -> dict[str, str]:
    """The hash of every column of the tables, and of the arrays in each checkpoint (not of its format)."""
    found = {}
    for name in ("metrics.csv", "clients.csv"):
        with open(run / name, newline="", encoding="utf-8") as file:
            for column, *cells in zip(*csv.reader(file)):
                found[f"{name} {column}"] = sha256("\n".join(cells).encode()).hexdigest()
    for path in sorted((run / "checkpoints").glob("*.ckpt")):
        digest = sha256()
        _, _, body = path.read_bytes().partition(b"\n")
        with np.load(io.BytesIO(body)) as arrays:
            for name in arrays.files:
                if name != "tree":
                    array = arrays[name]
                    digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
        found[path.stem[:-13]] = digest.hexdigest()  # the unit, without the hash of its settings
    return found


def keep(directory: Path) -> None:
    """Run everything."""
    directory.mkdir(parents=True)
    rng = np.random.default_rng(5)
    X = rng.normal(size=(150, 7))
    np.savez(directory / "two.npz", X=X, y=np.where(X @ rng.normal(size=7) > 0, 1, -1))
    for model, data in MODELS.items():
        path = directory / f"{model}.toml"
        path.write_text(
            document(model, data if data == "digits" else str(directory / data)), encoding="utf-8"
        )
        fedref("run", path, "--out", directory / model)
    fedref("run", "--out", directory / "run")
    if os.environ.get("FEDREF_DATA"):
        fedref("reproduce", "all", "--quick", "--out", directory / "quick" / "results")


def different(one: Path, other: Path) -> list[str]:
    """What is not the same in two directories that were kept, or is in one of them only."""
    runs = {
        str(path.parent.relative_to(root))
        for root in (one, other)
        for path in root.rglob("metrics.csv")
    }
    found = []
    for run in sorted(runs):
        if not all((root / run / "metrics.csv").exists() for root in (one, other)):
            found.append(f"{run}: in one of them only")
            continue
        a, b = hashes(one / run), hashes(other / run)
        found += [f"{run}: {name}" for name in sorted({*a, *b}) if a.get(name) != b.get(name)]
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--compare", type=Path, metavar="OTHER", help="an earlier DIR")
    arguments = parser.parse_args()
    if not arguments.directory.exists():
        keep(arguments.directory)
    if arguments.compare:
        found = different(arguments.compare, arguments.directory)
        print("\n".join(found) or "nothing moved")
        sys.exit(bool(found))
