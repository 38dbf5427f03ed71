"""One test a case, for `pytest --pyargs fedref.conformance --backend MODULE:BACKEND` (see plugin.py)."""

from collections.abc import Iterator
from typing import Any

import pytest

from fedref.conformance import report, vectors
from fedref.conformance.suite import FAILED, NOT_OFFERED, BackendProcess, name_mistakes


@pytest.fixture(scope="session")
def process(request: Any) -> Iterator[BackendProcess]:
    name = request.config.getoption("--backend")
    if name is None:
        pytest.skip("name a backend: --backend MODULE:BACKEND")
    with BackendProcess(name) as process:
        yield process


@pytest.mark.parametrize("case", vectors.read(), ids=lambda case: case.name)
def test_case(case: Any, process: BackendProcess, request: Any) -> None:
    dtype = request.config.getoption("--backend-dtype")
    result = process.grade(case, dtype, request.config.getoption("--backend-timeout"))
    (result,) = name_mistakes([result], [case], dtype)
    if result.status == NOT_OFFERED:
        pytest.skip("not offered")
    if result.status == FAILED:
        pytest.fail(report.failure_text(result), pytrace=False)


def test_drawn_cases(request: Any) -> None:
    name, draws = (request.config.getoption(option) for option in ("--backend", "--random"))
    if name is None or not draws:
        pytest.skip("draw cases: --random N")
    from fedref.conformance import drawn
    from fedref.conformance.backends import load_backend

    dtype = request.config.getoption("--backend-dtype")
    for _, _, failure in drawn.search(load_backend(name), draws, dtype=dtype):
        if failure is not None:
            pytest.fail(drawn.by_hand(failure), pytrace=False)
