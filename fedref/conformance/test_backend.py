"""One test a case: `pytest --pyargs fedref.conformance --fedref-backend MODULE:BACKEND` (plugin.py)."""

from collections.abc import Iterator
from time import monotonic, process_time
from typing import Any

import pytest

from fedref.conformance import report, vectors
from fedref.conformance.naming import PERHAPS, name_mistakes
from fedref.conformance.suite import BackendProcess, grade_all
from fedref.judge.evidence import SINGLE, describe
from fedref.judge.verdicts import FAILED, NOT_OFFERED, Result

#: Seconds of CPU time that a session looks for names; each test sees one case.
NAMING = 10.0


@pytest.fixture(scope="session")
def until(request: Any) -> float:
    return monotonic() + float(request.config.getoption("--fedref-limit"))


@pytest.fixture(scope="session")
def spent() -> dict[str, float]:
    return {"naming": 0.0}


@pytest.fixture(scope="session")
def process(request: Any) -> Iterator[BackendProcess]:
    name = request.config.getoption("--fedref-backend")
    if name is None:
        pytest.skip("name a backend: --fedref-backend MODULE:BACKEND")
    with BackendProcess(name, request.config.getoption("--fedref-timeout")) as process:
        yield process


def pytest_generate_tests(metafunc: Any) -> None:
    if "case" in metafunc.fixturenames:
        quick = metafunc.config.getoption("--fedref-quick")
        cases = [case for case in vectors.read() if case.quick or not quick]
        metafunc.parametrize("case", cases, ids=lambda case: case.name)


def test_case(
    case: Any, process: BackendProcess, until: float, spent: dict[str, float], request: Any
) -> None:
    dtype = request.config.getoption("--fedref-dtype")
    (result,) = grade_all(process, [case], dtype, until)
    if result.status == NOT_OFFERED:
        pytest.skip("not offered")
    if result.status == FAILED:
        began = process_time()
        explain = name_likely if spent["naming"] < NAMING else describe
        text = report.failure_text(explain(result, case, dtype))
        spent["naming"] += process_time() - began
        pytest.fail(text, pytrace=False)


def name_likely(result: Result, case: Any, dtype: str) -> Result:
    """Return the result with names that are only likely: other cases might refute them."""
    (named,) = name_mistakes([result], [case], dtype)
    if not named.mistakes or named.mistakes == (SINGLE,):
        return named
    return named._replace(mistakes=(), evidence=PERHAPS + "; or ".join(named.mistakes))


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
