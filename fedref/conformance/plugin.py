"""pytest's options for `pytest --pyargs fedref.conformance --fedref-backend MODULE:BACKEND`.

An entry point, since pytest reads no conftest of an installed package before its command line. All names
begin with --fedref: a project has options of its own.
"""

from typing import Any


def pytest_addoption(parser: Any) -> None:
    add = parser.getgroup("fedref.conformance").addoption
    for name, default, text in (
        ("backend", None, "MODULE:BACKEND that is tested against the golden vectors"),
        ("only", "", "cases with this text in their tag, call, algorithm or name"),
        ("xfail", None, "a file of cases that are expected to fail, a name or a pattern a line"),
        ("unit", "", "what products are rounded to: tf32, 2**-9, grad=bfloat16"),
    ):
        add(f"--fedref-{name}", default=default, help=text)
    add("--fedref-quick", action="store_true", help="a few cases, which catch most known mistakes")
    add("--fedref-dtype", default="float64", choices=("float64", "float32"))
    add("--fedref-timeout", type=float, default=60.0, help="seconds a case")
    add("--fedref-limit", type=float, default=600.0, help="seconds that all cases may take")
    add("--fedref-random", type=int, default=0, help="cases drawn for each")
    add("--fedref-seed", type=int, default=0, help="draw other cases")
