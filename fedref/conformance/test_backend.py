"""One test a case: `pytest --pyargs fedref.conformance --fedref-backend MODULE:BACKEND` (plugin.py)."""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from fedref.boundary.errors import ConfigError
from fedref.conformance import report, vectors
from fedref.conformance.naming import name_mistakes
from fedref.conformance.suite import BackendProcess, grade_all
from fedref.conformance.units import parse_units, with_units
from fedref.judge.verdicts import FAILED, NOT_ASKED, NOT_OFFERED, Result


def option(request: Any, name: str) -> Any:
    return request.config.getoption(f"--fedref-{name}")


@pytest.fixture(scope="session")
def until(request: Any) -> float:
    return monotonic() + float(option(request, "limit"))


@pytest.fixture(scope="session")
def process(request: Any) -> Iterator[BackendProcess]:
    name = option(request, "backend")
    if name is None:
        pytest.skip("name a backend: --fedref-backend MODULE:BACKEND")
    with BackendProcess(name, option(request, "timeout")) as process:
        yield process


def pytest_generate_tests(metafunc: Any) -> None:
    """One test for each case that is selected; those that are expected to fail are marked."""
    if "case" not in metafunc.fixturenames:
        return
    only, quick, xfail, unit = (option(metafunc, x) for x in ("only", "quick", "xfail", "unit"))
    try:
        every = vectors.read()
        patterns = report.read_patterns(Path(xfail) if xfail else None, [c.name for c in every])
        units = parse_units(unit, [*dict.fromkeys(case.call for case in every)])
        cases = with_units(vectors.select(every, only, quick), units)
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from None
    mark = pytest.mark.xfail(reason="--fedref-xfail", strict=False)
    expected = (report.is_expected(case.name, patterns) for case in cases)
    params = [pytest.param(c, id=c.name, marks=[mark] * x) for c, x in zip(cases, expected)]
    metafunc.parametrize("case", params)


@pytest.fixture(scope="session")
def verdicts(process: BackendProcess, until: float, request: Any) -> dict[str, Result]:
    """The verdicts on all cases of the session, with names that are those of the command."""
    items = [item for item in request.session.items if getattr(item, "function", 0) is test_case]
    cases = [item.callspec.params["case"] for item in items]
    dtype = option(request, "dtype")
    results = [*grade_all(process, cases, dtype, until)]
    return {result.case: result for result in name_mistakes(results, cases, dtype)}


def test_case(case: Any, verdicts: dict[str, Result]) -> None:
    result = verdicts[case.name]
    if result.status == NOT_OFFERED:
        pytest.skip("not offered")
    if result.status == NOT_ASKED:
        pytest.fail("not asked: no time was left (--fedref-limit)", pytrace=False)
    if result.status == FAILED:
        pytest.fail(report.failure_text(result), pytrace=False)


def test_drawn_cases(process: BackendProcess, until: float, request: Any) -> None:
    draws, seed = option(request, "random"), option(request, "seed")
    if not draws:
        pytest.skip("draw cases: --fedref-random N")
    from fedref.conformance import drawn

    dtype, only = option(request, "dtype"), option(request, "only")
    for _, _, failure in drawn.search(process, draws, only, seed, dtype, until):
        if failure is not None:
            pytest.fail(drawn.by_hand(failure), pytrace=False)
    if monotonic() > until:
        pytest.fail("no time was left (--fedref-limit): the rest was not drawn", pytrace=False)
