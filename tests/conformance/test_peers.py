"""Backends that share no equation with fedref, and the README's example as it is written.

Skipped where torch, JAX or Flower is not installed: pip install 'fedref[peers]'.
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedref.commands import main
from fedref.conformance import report, suite, vectors
from fedref.conformance.suite import FAILED, NOT_OFFERED

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
CASES = vectors.read()
MODULES = {"torch": "torch", "jax": "jax", "flower": "flwr"}


def need(name):
    if importlib.util.find_spec(MODULES[name]) is None:
        pytest.skip(f"needs {MODULES[name]}: pip install 'fedref[peers]'")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("torch", "float64"),
        pytest.param("torch", "float32", marks=pytest.mark.slow),
        pytest.param("jax", "float64", marks=pytest.mark.slow),
        pytest.param("jax", "float32", marks=pytest.mark.slow),
    ],
)
def test_code_from_the_papers_passes(name, dtype):
    """All algorithms and models. JAX compiles for minutes."""
    need(name)
    results = list(suite.run_in_process(name, CASES, dtype, timeout=300))
    assert [report.failed(r) for r in results if r.status == FAILED] == []
    assert [r.case for r in results if r.status == NOT_OFFERED] == []


@pytest.mark.parametrize("dtype", vectors.DTYPES)
def test_flowers_strategies_aggregate_the_uploads(dtype):
    need("flower")
    results = list(suite.run_in_process("flower", CASES, dtype))
    offered = [result for result in results if result.status != NOT_OFFERED]
    assert [report.failed(r) for r in offered if r.status == FAILED] == []
    names = {"aggregate-fedavg", "aggregate-fedprox", "aggregate-drawn-twice"}
    assert names <= {result.case for result in offered}


@pytest.mark.parametrize("name", MODULES)
def test_what_is_not_installed_is_said(name, capsys):
    if importlib.util.find_spec(MODULES[name]) is not None:
        pytest.skip("it is installed")
    assert main(["conformance", name]) == 2
    assert "pip install 'fedref[peers]'" in capsys.readouterr().err


def test_the_peers_import_nothing_of_fedrefs_equations():
    for name in ("papers", "torch", "jax", "flower"):
        source = (ROOT / "fedref" / "conformance" / "backends" / f"{name}.py").read_text("utf-8")
        found = set(re.findall(r"^\s*(?:from|import) (fedref\S*)", source, re.M))
        assert found <= {"fedref.conformance.backends.papers"}


def example():
    """(the shell block, what it answers) of the README's section."""
    section = README.split("### You write a faster backend")[1]
    block = section.split("```sh\n")[1].split("```")[0]
    said = section.split("It answers\n")[1].split("\nWith `create_graph")[0]
    return block, [line[4:] for line in said.strip("\n").splitlines()]


def test_the_readmes_example_is_ten_lines():
    assert len([line for line in example()[0].splitlines() if line.strip()]) == 10


def test_the_readmes_example_runs_as_written(tmp_path):
    need("torch")
    block, said = example()
    block = re.sub("^pip install .*\n", "", block)
    block = block.replace("fedref conformance", f"{sys.executable} -m fedref conformance")

    def answer(script):
        return subprocess.run(
            ["bash", "-c", script],
            capture_output=True, text=True, timeout=300, cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip

    found = answer(block)
    assert found.stdout.splitlines() == said, found.stderr
    assert found.returncode == 1
    right = block.replace("loss(model, w, D), w)", "loss(model, w, D), w, create_graph=True)")
    assert right != block
    assert answer(right).returncode == 0
    more = answer(right.replace("per-fedavg eq.3", "meta-per-fedavg-mlp"))
    assert "the Hessian is taken on D, not on D″" in more.stdout


def test_the_tables_are_those_of_the_vectors():
    text = (vectors.folder() / "README.md").read_text("utf-8")
    assert report.table(CASES) in text
    assert report.mistakes() in text
    assert f"{len(CASES)} small cases" in README
    assert f"{len(report.MISTAKES)} known mistakes" in README
