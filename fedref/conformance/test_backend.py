"""One test a case, for `pytest --pyargs fedref.conformance --backend MODULE:BACKEND`."""

from collections.abc import Iterator
from typing import Any

import pytest

from fedref.conformance import guard, report
from fedref.conformance.suite import FAILED, NOT_OFFERED


@pytest.fixture(scope="session")
def served(request: Any) -> Iterator[guard.Served]:
    name = request.config.getoption("--backend")
    if name is None:
        pytest.skip("name a backend: --backend MODULE:BACKEND")
    found = guard.Served(name)
    yield found
    found.end()


def test_case(case: Any, served: guard.Served, request: Any) -> None:
    dtype = request.config.getoption("--backend-dtype")
    result = served.verdict(case, dtype, request.config.getoption("--backend-timeout"))
    if result.status == NOT_OFFERED:
        pytest.skip("not offered")
    if result.status == FAILED:
        pytest.fail(report.failed(result), pytrace=False)
