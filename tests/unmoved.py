"""Whether a change moved a number: `python -m tests.unmoved DIR` keeps, `--compare` tells them apart.

Every algorithm with every model on two seeds, `fedref run` as it is, and one experiment of each
reproduction with `--quick` (it needs FEDREF_DATA). DIR/numbers.json then has the SHA-256 of
metrics.csv and clients.csv, and of every array of each checkpoint. It calls nothing but the command
line, so that the same script serves before and after a change of the layout.
"""

import argparse
import io
import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np

ALGORITHMS = [
    "fedavg",
    "fedavg-update",
    "fedavg-meta",
    "fedprox",
    "per-fedavg",
    "per-fedavg-fo",
    "per-fedavg-hf",
    "fedmeta-maml",
    "fedmeta-fomaml",
    "fedmeta-sgd",
    "fedmaml",
    "fedcurv",
    "apfl",
    "centralised",
]
VARIANTS = """
[algorithms.adaptive]
algorithm = "fedprox"
adaptive-mu = true
mu = 0.3
[algorithms.until]
algorithm = "fedprox"
until-gamma = 0.9
[algorithms.flag]
algorithm = "apfl"
z = 1
delta-mu = 9.0
delta-sigma = 9.0
window = 2
init = "continuous"
importance = "si"
[algorithms.fisher]
algorithm = "apfl"
importance = "fisher"
z = 1
[algorithms.mas]
algorithm = "apfl"
importance = "mas"
z = 1
[algorithms.adam]
algorithm = "fedmeta-sgd"
server = "adam"
inner-steps = 2
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
    tables = "\n".join(f"[algorithms.{name}]" for name in ALGORITHMS)
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
{tables}
{VARIANTS}"""


def fedref(*words: object) -> None:
    """The command; its output is only shown where it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "fedref", *map(str, words)], capture_output=True, text=True
    )
    if done.returncode not in (0, 3):  # 3: an algorithm diverged
        raise SystemExit(f"fedref {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")


def hashes(run: Path) -> dict[str, str]:
    """The tables' hashes, and those of the arrays in each checkpoint (not of its format)."""
    found = {
        name: sha256((run / name).read_bytes()).hexdigest()
        for name in ("metrics.csv", "clients.csv")
    }
    for path in sorted((run / "checkpoints").glob("*.ckpt")):
        digest = sha256()
        _, _, body = path.read_bytes().partition(b"\n")
        with np.load(io.BytesIO(body)) as arrays:
            for name in arrays.files:
                if name != "tree":
                    array = arrays[name]
                    digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
        found[path.name] = digest.hexdigest()
    return found


def keep(directory: Path) -> None:
    """Run everything and write numbers.json."""
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
    runs = {name: directory / name for name in (*MODELS, "run")}
    if os.environ.get("FEDREF_DATA"):
        fedref("reproduce", "all", "--quick", "--out", directory / "quick" / "results")
        for path in sorted((directory / "quick").rglob("metrics.csv")):
            runs[str(path.parent.relative_to(directory))] = path.parent
    numbers = {name: hashes(run) for name, run in runs.items()}
    (directory / "numbers.json").write_text(json.dumps(numbers, indent=1), encoding="utf-8")


def different(one: Path, other: Path) -> list[str]:
    """What is not the same in two directories that were kept."""
    a, b = (json.loads((path / "numbers.json").read_text("utf-8")) for path in (one, other))
    return [
        f"{run}: {name}"
        for run in sorted({*a, *b})
        for name in sorted({*a.get(run, {}), *b.get(run, {})})
        if a.get(run, {}).get(name) != b.get(run, {}).get(name)
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--compare", type=Path, metavar="OTHER", help="an earlier DIR")
    arguments = parser.parse_args()
    if not (arguments.directory / "numbers.json").exists():
        keep(arguments.directory)
    if arguments.compare:
        found = different(arguments.compare, arguments.directory)
        print("\n".join(found) or "nothing moved")
        sys.exit(bool(found))
