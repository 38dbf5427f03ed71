"""Whether a change moved a number: `python -m tests.unmoved DIR` keeps; with `--compare EARLIER` it tells.

Every algorithm with every model on two seeds, `fedref run` as it is, and one experiment of each
reproduction with `--quick` (it needs FEDREF_DATA). What is compared is every column of metrics.csv
and clients.csv, and the arrays of each checkpoint. It calls nothing but the command line and states
every value, so that the same script serves before and after a change of layout or defaults.
"""

import csv
import io
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np

#: One experiment: uneven batches, stragglers and every algorithm; every value is stated.
DOCUMENT = """
rounds = {rounds}
clients-per-round = 3
epochs = 2
batch-size = 9
stragglers = 0.4
seeds = [3, 8]
dissimilarity = true
data.name = "{data}"
split = {{{split}, users = {users}}}
model = {{{model}}}
[algorithms]
{usual}
adaptive = {{algorithm = "fedprox", lr = 0.05, adaptive-mu = true, mu = 0.3}}
until = {{algorithm = "fedprox", lr = 0.05, until-gamma = 0.9}}
flag = {{algorithm = "apfl", lr = 0.05, z = 1, delta-mu = 9.0, delta-sigma = 9.0, window = 2, \
init = "continuous", importance = "si"}}
fisher = {{algorithm = "apfl", lr = 0.05, importance = "fisher", z = 1}}
mas = {{algorithm = "apfl", lr = 0.05, importance = "mas", z = 1}}
adam = {{algorithm = "fedmeta-sgd", alpha = 0.01, beta = 0.01, server = "adam", inner-steps = 2}}
"""
#: The values of an algorithm's table → those that have it.
USUAL = {
    "lr = 0.05": "fedavg fedprox fedcurv apfl centralised",
    "lr = 0.05, alpha = 0.01": "fedavg-update fedavg-meta",
    "alpha = 0.01, beta = 0.001": "per-fedavg per-fedavg-fo per-fedavg-hf",
    "alpha = 0.01, beta = 0.01": "fedmeta-maml fedmeta-fomaml fedmeta-sgd fedmaml",
}
DIGITS = {"data": "digits", "split": 'rule = "dirichlet", alpha = 1.0', "rounds": 4, "users": 12}
DIGITS["usual"] = "\n".join(f"{x} = {{{v}}}" for v, names in USUAL.items() for x in names.split())
TWO = {**DIGITS, "data": "synthetic-iid(users=3,features=7,classes=2)", "split": 'rule = "iid"'}
CNN = {"model": 'name = "cnn", channels = [2, 3], kernel = 2', "rounds": 2, "users": 6}
RUNS = {name: {**DIGITS, "model": f'name = "{name}"'} for name in ("logistic", "mlp")}
RUNS |= {name: {**TWO, "model": f'name = "{name}"'} for name in ("svm", "binary-logistic")}
RUNS["cnn"] = {**DIGITS, **CNN}


def run(directory: Path, *words: str) -> None:
    """Run `python -m WORDS` there; its output is only shown where it fails."""
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=directory, env=here, capture_output=True, text=True)
    if done.returncode not in (0, 3):  # 3: an algorithm diverged
        raise SystemExit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")


def keep(directory: Path) -> None:
    """Run everything."""
    directory.mkdir(parents=True)
    for name, values in RUNS.items():
        (directory / f"{name}.toml").write_text(DOCUMENT.format(**values), encoding="utf-8")
        run(directory, "fedref", "run", f"{name}.toml", "--out", name)
    run(directory, "fedref", "run", "--out", "run")
    if os.environ.get("FEDREF_DATA"):
        run(directory, "reproduce", "all", "--quick", "--out", "quick/results")


def hashes(root: Path) -> dict[str, str]:
    """The hash of every column of the tables, and of the arrays in each checkpoint (not of its format)."""
    kept: dict[str, object] = {}
    for path in (*root.rglob("metrics.csv"), *root.rglob("clients.csv")):
        for column, *cells in zip(*csv.reader(path.read_text("utf-8").splitlines())):
            kept[f"{path.relative_to(root)}: {column}"] = cells
    for path in root.rglob("checkpoints/*.ckpt"):
        name = path.stem[:-13]  # the unit, without the hash of its settings
        with np.load(io.BytesIO(path.read_bytes().partition(b"\n")[2])) as file:
            arrays = [file[name] for name in file.files if name != "tree"]
        values = [(x.dtype, x.shape, x.tobytes()) for x in arrays]
        kept[f"{path.parents[1].relative_to(root)}: {name}"] = values
    return {name: sha256(repr(values).encode()).hexdigest() for name, values in kept.items()}


if __name__ == "__main__":
    directory, *earlier = (Path(word) for word in sys.argv[1:] if word != "--compare")
    if not directory.exists():
        keep(directory)
    if earlier:
        a, b = hashes(earlier[0]), hashes(directory)
        found = sorted({name for name, _ in a.items() ^ b.items()})  # in one only, or not the same
        print("\n".join(found) or "nothing moved")
        sys.exit(bool(found))
