"""`fedref conformance`: test an implementation against the golden vectors, and name its mistakes."""

from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, Literal

from fedref.boundary.errors import ConfigError, unknown
from fedref.boundary.files import read_text
from fedref.boundary.values import POSITIVE, Bounds
from fedref.conformance.backends import NAMES
from fedref.judge import verdicts
from fedref.lab.commands.console import show_progress


def conformance(
    backend: str = "",
    *,
    list: bool = False,
    only: str = "",
    quick: bool = False,
    dtype: Literal["float64", "float32"] = "float64",
    random: Annotated[int, Bounds(0)] = 0,
    seed: Annotated[int, Bounds(0)] = 0,
    save: Path | None = None,
    json: bool = False,
    xfail: Path | None = None,
    timeout: Annotated[float, POSITIVE] = 60.0,
    limit: Annotated[float, POSITIVE] = 600.0,
) -> int:
    """Test a backend against the golden vectors.
    The report says what it offers, how much of that is right, and which known mistakes it makes.

    backend : your backend (a module or FILE.py), or one of fedref's own, listed below
    list : list the cases, and the known mistakes that each catches; no backend is needed
    only : cases with this text in their tag, call, algorithm or name
    quick : a few cases alone, which catch 97 % of each function's known mistakes
    dtype : dtype of all arrays
    random : draw so many cases for each function and algorithm instead, and show the smallest that fails
    seed : draw other cases
    save : write that case as FILE.npz, and as a pytest function in FILE.py
    json : print the report as JSON; its last line can be cited
    xfail : a file of cases that are expected to fail, a name or a pattern (round-*-lstm*) a line; # comments
    timeout : seconds that a case may take
    limit : seconds that all cases may take

    functions of a backend
        A backend is a module, or an object in one, with some of the functions
          loss, grad, hvp, dissimilarity  (model, ...)
          meta_gradient                   (variant, model, hyper, ...)
          client, aggregate, evaluate     (algorithm, model, hyper, ...)
          round                           (algorithm, model, hyper, state, data, plan)
        They take and return NumPy arrays and dictionaries. The cases of a function are not tested if the
        backend does not offer it: it is missing, imported from elsewhere, or raises NotImplementedError.
        data/vectors/README.md and `pydoc fedref.conformance` say what each takes and returns.

        examples
          fedref conformance my_backend --quick                      a few cases of all that it offers
          fedref conformance my_backend                              all of them
          fedref conformance my_backend --only "per-fedavg eq.6"     one equation
          fedref conformance my_backend:Backend --dtype float32 --json
          fedref conformance torch
          fedref conformance my_backend --random 200                 cases drawn anew; this needs Hypothesis
          fedref conformance --list --only "per-fedavg eq.6"         which cases there are

        The backend runs in a process of its own: what it raises, prints, forks or hangs in costs one case.
        It could read the answers from the files, so a report is evidence only for an honest backend, and only
        for what was tested. Before you rely on one, run the tests yourself on the code that you mean to use.

        `fedref explain NAME` explains a known mistake or an equation that the report names.

        exit code: 0 all that is offered passes, but for --xfail; 1 something fails, or nothing passes;
        2 wrong input
    """
    from fedref.conformance import naming, report, suite, vectors  # `fedref --help` needs none

    if not (backend or list):
        raise ConfigError(f"name a backend: MODULE[:BACKEND], or one of {', '.join(NAMES)}")
    if random and not list and (json or xfail or quick):
        raise ConfigError(
            "--json, --xfail and --quick are of golden cases, expected one of them or --random"
        )
    if save and not random:
        raise ConfigError("--save keeps a drawn case, expected --random N beside it")
    if random and not list:
        return draw_cases(backend, random, only, seed, dtype, save, timeout, limit)
    every = vectors.read()
    cases = vectors.select(every, only)
    if not cases:
        names = {name for case in every for name in (case.tag, case.name)}
        raise ConfigError(unknown("case or tag", only, names))
    if quick:
        cases = [case for case in cases if case.quick]
        if not cases:
            raise ConfigError(f"--quick has no case of {only}, expected --only without it")
    if list:
        for case in cases:
            print("\n    ".join([f"{case.name}  [{case.tag}]", *case.catches]))
        return 0
    with suite.BackendProcess(backend, timeout) as process:
        graded = suite.grade_all(process, cases, dtype, monotonic() + limit)
        results = [*show_progress("cases", " cases", iterable=graded, total=len(cases))]
    results = naming.name_mistakes(results, cases, dtype)  # the child has ended
    expected, rest = report.set_apart(results, read_patterns(xfail, cases))
    if json:  # it can be cited: every failure counts
        print(report.report_json(results, backend, dtype, len(every)))
    else:
        if quick:
            print(f"quick: {len(cases)} of {len(every)} cases")
        left = {result.case for result in rest}
        text = report.report_text(rest, [c for c in cases if c.name in left], results)
        print(*expected, text, sep="\n")
    failed = any(result.status == verdicts.FAILED for result in rest)
    return int(failed or not any(result.status == verdicts.PASSED for result in results))


def read_patterns(path: Path | None, cases: Sequence[Any]) -> tuple[str, ...]:
    """Return the patterns of a file for --xfail; each must fit a case."""
    if path is None:
        return ()
    lines = read_text(path, "a file of cases, one a line").splitlines()
    patterns = tuple(filter(None, (line.partition("#")[0].strip() for line in lines)))
    for pattern in patterns:
        if not any(fnmatchcase(case.name, pattern) for case in cases):
            names = (case.name for case in cases)
            raise ConfigError(f"--xfail {path}: {unknown('case', pattern, names)}")
    return patterns


conformance.below = lambda: f"fedref's own backends: {', '.join(NAMES)}"  # type: ignore[attr-defined]


def draw_cases(
    name: str, draws: int, only: str, seed: int, dtype: str, file: Path | None, timeout: float,
    limit: float,
) -> int:  # fmt: skip
    """Print the smallest drawn case that fails, to compute by hand. Return 1 if there is one."""
    from fedref.conformance import drawn
    from fedref.conformance.suite import BackendProcess

    remarks, until, offered = Counter[str](), monotonic() + limit, False
    with BackendProcess(name, timeout) as process, show_progress("drawn", " cases") as bar:

        def note(call: str, result: Any) -> None:
            remarks.update(result.remarks)
            bar.set_description_str(call, refresh=False)
            bar.update()

        found = drawn.search(process, draws, only, seed, dtype, until, note)
        for call, count, failure in found:
            offered = True
            if failure is not None:
                bar.close()
                print(drawn.by_hand(failure))
                if file:
                    drawn.save(failure, name, file)
                return 1
            bar.write(f"{call}: {count} drawn cases pass")
    for remark, n in remarks.items():
        print(f"remark: {remark} ({n} cases)")
    if monotonic() > until:
        print(f"stopped after {limit:g} s (--limit): the rest was not drawn")
        return 1
    if not offered:
        expected = "; with --random, give part of an algorithm or call" if only else ""
        raise ConfigError(f"{name} offers nothing of {only or 'what is drawn'}{expected}")
    return 0
