"""pytest's options for `pytest --pyargs fedref.conformance --backend MODULE:BACKEND`.

An entry point, since pytest reads no conftest of an installed package before its command line.
"""

from typing import Any


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("fedref.conformance")
    group.addoption("--backend", help="MODULE:BACKEND that is tested against the golden vectors")
    group.addoption("--backend-dtype", default="float64", choices=("float64", "float32"))
    group.addoption("--backend-timeout", type=float, default=60.0, help="seconds a case")
    group.addoption("--random", type=int, default=0, help="cases drawn for each function, too")
