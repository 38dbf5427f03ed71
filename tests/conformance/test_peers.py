"""The specification on torch's tensors, and the README's example as it is written.

Skipped where torch is not installed: pip install 'fedref[peers]'.
"""

import importlib.util
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from golden import CASES

from fedref.boundary.errors import ConfigError
from fedref.conformance import report, suite, vectors
from fedref.conformance.backends import INSTALL, load_backend
from fedref.judge.errata import MISTAKES
from fedref.judge.verdicts import FAILED, NOT_OFFERED, PASSED
from reproduce.vectors import make

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def need_torch():
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch: pip install 'fedref[peers]'")


slow = partial(pytest.param, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("dtype", "step"), [("float64", 4), slow("float64", 1), slow("float32", 1)]
)
def test_the_specification_passes_on_torch(dtype, step):
    """Every case that the specification answers, and no other; every fourth, and with -m slow all."""
    need_torch()
    cases = CASES[::step]
    with suite.BackendProcess("torch") as process:
        results = list(suite.grade_all(process, cases, dtype))
    assert [report.failure_text(r) for r in results if r.status == FAILED] == []
    alone = [case.name for case in cases if "specification" not in case.digits]
    assert [r.case for r in results if r.status == NOT_OFFERED] == alone


def test_torch_differentiates_by_itself(monkeypatch):
    """Neither dual numbers nor complex steps run; each of torch's layers is used."""
    need_torch()
    backend = load_backend("torch")

    def refuse(*_):
        raise AssertionError("dual numbers")

    monkeypatch.setattr(backend.spec.Dual, "__init__", refuse)
    monkeypatch.setattr(backend.spec, "gradient_of_dual", refuse)
    for name in ("hvp-mlp", "hvp-cnn", "hvp-lstm"):
        (case,) = vectors.select(CASES, name)
        assert backend.answer_case(case)


def test_what_is_not_installed_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "fedref.conformance.backends.torch", raising=False)
    with pytest.raises(ConfigError, match=re.escape(INSTALL["torch"])):
        load_backend("torch")


def example():
    """Return the shell block of the README's section, and its answer."""
    section = README.split("### You write a faster backend")[1]
    block = section.split("```sh\n")[1].split("```")[0]
    answer = section.split("It answers\n")[1].split("\nWith `create_graph")[0]
    return block, [line[4:] for line in answer.strip("\n").splitlines()]


def test_the_readmes_example_runs_as_written(tmp_path, monkeypatch):
    """The block in a shell, without the install line; with its mistake mended all that it offers passes."""
    need_torch()
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
    right = source.replace("theta, S), theta)", "theta, S), theta, create_graph=True)")
    assert right != source
    (tmp_path / "mended.py").write_text(right, "utf-8")
    results = list(suite.run(load_backend("mended"), CASES))
    passed = {result.case for result in results if result.status == PASSED}
    assert passed == {case.name for case in CASES if is_offered(case)}
    assert {result.status for result in results} == {PASSED, NOT_OFFERED}


def is_offered(case):
    """Neither what is imported nor another variant."""
    is_maml = (case.call, case.algorithm) == ("meta_gradient", "fedmeta-maml")
    return is_maml and case.hyper["inner_steps"] == 1


def test_the_readmes_have_the_protocol_and_the_numbers_of_cases():
    """The first case of those that have the same outputs is enough to say whose they are."""
    text = (vectors.folder() / "README.md").read_text("utf-8")
    wrong = text.replace("ReLU′(0) = 0", "ReLU′(0) = 1").replace("w of apfl,", "w of")
    assert wrong != text
    outputs = [frozenset(re.sub(r"^\d+", "", name) for name in case.outputs) for case in CASES]
    firsts = {(c.call, c.algorithm, has): c for c, has in reversed([*zip(CASES, outputs)])}
    assert make.update_readme(wrong, [c for c in CASES if c in firsts.values()]) == text
    assert f"{len(CASES)} cases" in README
    assert f"{len(MISTAKES)} known mistakes" in README
