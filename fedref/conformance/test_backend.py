"""One test a case: `pytest --pyargs fedref.conformance --fedref-backend MODULE:BACKEND` (plugin.py)."""

from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest

from fedref.conformance import report, vectors
from fedref.conformance.naming import name_mistakes
from fedref.conformance.suite import FAILED, NOT_OFFERED, BackendProcess, grade_all


@pytest.fixture(scope="session")
def until(request: Any) -> float:
    return monotonic() + float(request.config.getoption("--fedref-limit"))


@pytest.fixture(scope="session")
def process(request: Any) -> Iterator[BackendProcess]:
    name = request.config.getoption("--fedref-backend")
    if name is None:
        pytest.skip("name a backend: --fedref-backend MODULE:BACKEND")
    with BackendProcess(name, request.config.getoption("--fedref-timeout")) as process:
        yield process


@pytest.mark.parametrize("case", vectors.read(), ids=lambda case: case.name)
def test_case(case: Any, process: BackendProcess, until: float, request: Any) -> None:
    dtype = request.config.getoption("--fedref-dtype")
    (result,) = name_mistakes(grade_all(process, [case], dtype, until), [case], dtype)
    if result.status == NOT_OFFERED:
        pytest.skip("not offered")
    if result.status == FAILED:
        pytest.fail(report.failure_text(result), pytrace=False)


def test_drawn_cases(process: BackendProcess, until: float, request: Any) -> None:
    draws, seed = (request.config.getoption(f"--fedref-{name}") for name in ("random", "seed"))
    if not draws:
        pytest.skip("draw cases: --fedref-random N")
    from fedref.conformance import drawn

    dtype = request.config.getoption("--fedref-dtype")
    for _, _, failure in drawn.search(process, draws, "", seed, dtype, until):
        if failure is not None:
            pytest.fail(drawn.by_hand(failure), pytrace=False)
    if monotonic() > until:
        pytest.fail("no time was left (--fedref-limit): the rest was not drawn", pytrace=False)
