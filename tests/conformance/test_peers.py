"""Backends that share no equation with fedref, and the README's example as it is written.

Skipped where torch or JAX is not installed: pip install 'fedref[peers]'.
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
from fedref.conformance.backends import INSTALL, load_backend
from fedref.conformance.errata import MISTAKES
from fedref.conformance.suite import FAILED, NOT_OFFERED, PASSED
from reproduce.vectors import make

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
CASES = vectors.read()
MODULES = {"torch": "torch", "jax": "jax"}


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
    assert [report.failure_text(r) for r in results if r.status == FAILED] == []
    assert [r.case for r in results if r.status == NOT_OFFERED] == []


@pytest.mark.parametrize("name", MODULES)
def test_what_is_not_installed_is_said(name, capsys):
    if importlib.util.find_spec(MODULES[name]) is not None:
        pytest.skip("it is installed")
    assert main(["conformance", name]) == 2
    assert INSTALL[name] in capsys.readouterr().err


def test_the_peers_import_nothing_of_fedrefs_equations():
    for name in ("papers", "torch", "jax"):
        source = (ROOT / "fedref" / "conformance" / "backends" / f"{name}.py").read_text("utf-8")
        found = set(re.findall(r"^\s*(?:from|import) (fedref\S*)", source, re.M))
        assert found <= {"fedref.conformance.backends.papers"}


def example():
    """Return the shell block of the README's section, and its answer."""
    section = README.split("### You write a faster backend")[1]
    block = section.split("```sh\n")[1].split("```")[0]
    answer = section.split("It answers\n")[1].split("\nWith `create_graph")[0]
    return block, [line[4:] for line in answer.strip("\n").splitlines()]


def test_the_readmes_example_is_short_and_installs_torch_for_the_cpu_alone():
    block, _ = example()
    assert len([line for line in block.splitlines() if line.strip()]) == 12
    assert re.findall("^pip install.*", block, re.M) == [INSTALL["torch"]]
    assert "whl/cpu" in INSTALL["torch"]


def test_the_readmes_example_runs_as_written(tmp_path, monkeypatch, capsys):
    """The block in a shell, without the install line; variants of its file in this process."""
    need("torch")
    block, answer = example()
    block = re.sub("^pip install .*\n", "", block)
    script = block.replace("fedref conformance", f"{sys.executable} -m fedref conformance")
    found = subprocess.run(
        ["bash", "-c", script],
        capture_output=True, text=True, timeout=300, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert found.stdout.splitlines() == answer, found.stderr
    assert found.returncode == 1

    monkeypatch.syspath_prepend(tmp_path)
    source = (tmp_path / "my_backend.py").read_text("utf-8")
    right = source.replace("loss(model, w, D), w)", "loss(model, w, D), w, create_graph=True)")
    assert right != source
    for name, text in (("first_order", source), ("of_one_batch", right)):
        (tmp_path / f"{name}.py").write_text(text, "utf-8")
    results = {
        name: suite.name_mistakes(suite.run(load_backend(name), CASES), CASES, "float64")
        for name in ("first_order", "of_one_batch")
    }
    for name, mistake in (
        ("first_order", "first order: the inner step's graph was cut"),
        ("of_one_batch", "the Hessian is taken on D, not on D″"),
    ):  # all that is imported, or another variant, is not offered
        offered = [r for r in results[name] if r.status != NOT_OFFERED]
        assert {r.case for r in offered} == {c.name for c in CASES if is_offered(c)}
        assert {found for r in offered for found in r.mistakes} == {mistake}
    assert [r.case for r in results["of_one_batch"] if r.status == PASSED] == [
        "meta-per-fedavg-one-batch-no-l2",
        "meta-per-fedavg-one-batch",
    ]


def is_offered(case):
    return case.call == "meta_gradient" and case.algorithm == "per-fedavg"


def test_the_readmes_have_the_protocol_and_the_numbers_of_cases():
    text = (vectors.folder() / "README.md").read_text("utf-8")
    assert make.update_readme(text) == text
    assert make.update_readme(text.replace("ReLU′(0) = 0", "ReLU′(0) = 1")) == text
    for words in (
        "without the L2 term",
        "an empty support set",
        "first in row-major",
        "−1 = padding",
    ):
        assert words in text
    assert f"{len(CASES)} small cases" in README
    assert f"{len(MISTAKES)} known mistakes" in README
