"""One test a case; the options are plugin.py's."""

from typing import Any

from fedref.conformance import vectors


def pytest_generate_tests(metafunc: Any) -> None:
    metafunc.parametrize("case", vectors.read(), ids=lambda case: case.name)
