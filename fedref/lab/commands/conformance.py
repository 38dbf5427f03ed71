"""`fedref conformance`: test an implementation against the golden vectors, and name its mistakes."""

import builtins
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, Literal, NamedTuple

from fedref.boundary.errors import ConfigError
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
    unit: str = "",
    random: Annotated[int, Bounds(0)] = 0,
    seed: Annotated[int, Bounds(0)] = 0,
    shrink: Annotated[float, POSITIVE] = 600.0,
    save: Path | None = None,
    json: bool = False,
    xfail: Path | None = None,
    summary: Path | None = None,
    timeout: Annotated[float, POSITIVE] = 60.0,
    limit: Annotated[float, POSITIVE] = 600.0,
) -> int:
    """Test a backend against the golden vectors.
    The report says what it offers, how much of that is right, and which known mistakes it makes.

    backend : your backend (a module or FILE.py), or one of fedref's own, listed below
    list : list the cases, and the known mistakes that each catches; no backend is needed
    only : TAG, the case of this name, or else all cases with this text in their tag, call, algorithm or name
    quick : a few cases alone, which catch 97 % of each function's known mistakes
    dtype : dtype of all arrays
    unit : what products are rounded to where that is coarser: tf32, float16, bfloat16, a number such as
        2**-9, or one for each function: loss=tf32,grad=2**-9
    random : draw so many cases for each function and algorithm instead, and show the smallest that fails
    seed : draw other cases
    shrink : seconds that the failing case may take to be made smaller
    save : write that case as FILE.npz, and as a pytest function in FILE.py
    json : print the report as JSON; its last line can be cited
    xfail : a file of cases that are expected to fail, a name or a pattern (round-*-lstm*) a line; # comments.
        All cases count, not those of --only alone: several jobs may share it
    summary : append the report to this file as Markdown ($GITHUB_STEP_SUMMARY)
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

        exit code: 0 all that is offered passes, but for --xfail; 1 something fails or was not asked, or
        nothing passes; 2 wrong input. Ctrl-C and SIGTERM print what was answered until then
    """
    from fedref.conformance import naming, report, suite, vectors  # `fedref --help` needs none
    from fedref.conformance.units import parse_units, say_units, with_units

    if not (backend or list):
        raise ConfigError(f"name a backend: MODULE[:BACKEND], or one of {', '.join(NAMES)}")
    if random and (quick or unit) and not list:
        raise ConfigError("--quick and --unit are of golden cases, expected them or --random")
    if save and not random:
        raise ConfigError("--save keeps a drawn case, expected --random N beside it")
    every = vectors.read()
    patterns = report.read_patterns(xfail, [case.name for case in every])
    if random and not list:
        draws = Draws(backend, random, only, seed, dtype, shrink, save, timeout, limit)
        return draw_cases(draws, patterns, json, summary)
    units = parse_units(unit, [*dict.fromkeys(case.call for case in every)])
    cases = with_units(vectors.select(every, only, quick), units)
    if list:
        for case in cases:
            print("\n    ".join([f"{case.name}  [{case.tag}]", *case.catches]))
        return 0
    results, stop = builtins.list[verdicts.Result](), None
    try:  # what was answered until a signal is printed
        with suite.BackendProcess(backend, timeout) as process:
            graded = suite.grade_all(process, cases, dtype, monotonic() + limit)
            results += show_progress("cases", " cases", iterable=graded, total=len(cases))
        results = naming.name_mistakes(results, cases, dtype)  # the child has ended
    except KeyboardInterrupt as signal:
        stop = signal
        results = [result._replace(looked=False) for result in results]
        results += map(suite.not_asked, cases[len(results) :])
    head = [f"quick: {len(cases)} of {len(every)} cases"] if quick else []
    head += say_units(cases, units, dtype)
    text = "\n".join([*head, report.report_text(results, cases, patterns)])
    print(report.report_json(results, backend, dtype, len(every)) if json else text)
    if summary:
        append(summary, report.report_markdown(f"{backend} in {dtype}", text))
    if stop:
        raise stop
    _, rest = report.set_apart(results, patterns)
    failed = any(result.status in (verdicts.FAILED, verdicts.NOT_ASKED) for result in rest)
    return int(failed or not any(result.status == verdicts.PASSED for result in results))


def append(path: Path, text: str) -> None:
    """Append to a file that other steps of a job write, too."""
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


conformance.below = lambda: f"fedref's own backends: {', '.join(NAMES)}"  # type: ignore[attr-defined]


class Draws(NamedTuple):
    """What is drawn: so many cases of each function, of the subjects with `only` in their name."""

    backend: str
    number: int
    only: str
    seed: int
    dtype: str
    shrink: float
    file: Path | None
    timeout: float
    limit: float


def draw_cases(draws: Draws, patterns: Sequence[str], as_json: bool, summary: Path | None) -> int:
    """Print the smallest drawn case that fails, to compute by hand. Return 1 if there is one.

    patterns : of cases that are expected to fail; no case of their functions and algorithms is drawn.
    """
    from fedref.conformance import drawn, report
    from fedref.conformance.suite import BackendProcess

    name, limit = draws.backend, draws.limit
    remarks, until, lines, counts = Counter[str](), monotonic() + limit, [], dict[str, int]()
    failure, stop, skipped = None, None, drawn.expected_subjects(patterns)
    if skipped:
        lines.append(f"not drawn, expected to fail (--xfail): {', '.join(sorted(skipped))}")
    try:  # what was drawn until a signal is printed
        with (
            BackendProcess(name, draws.timeout) as process,
            show_progress("drawn", " cases") as bar,
        ):

            def note(call: str, result: Any) -> None:
                remarks.update(result.remarks)
                bar.set_description_str(call, refresh=False)
                bar.update()

            found = drawn.search(
                process, draws.number, draws.only, draws.seed, draws.dtype, until, note, skipped,
                draws.shrink,
            )  # fmt: skip
            for call, count, failure in found:
                counts[call] = count
                if failure is None:
                    lines.append(f"{call}: {count} drawn cases pass")
    except KeyboardInterrupt as signal:
        stop = signal
        lines.append("stopped: the rest was not drawn")
    if failure is not None:
        lines.append(drawn.by_hand(failure))
        if draws.file:
            drawn.save(failure, name, draws.file)
    lines += [f"remark: {remark} ({n} cases)" for remark, n in remarks.items()]
    if failure is None and stop is None and monotonic() > until:
        lines.append(f"stopped after {limit:g} s (--limit): the rest was not drawn")
    elif not counts and not stop:
        expected = "; with --random, give part of an algorithm or call" if draws.only else ""
        raise ConfigError(f"{name} offers nothing of {draws.only or 'what is drawn'}{expected}")
    text = "\n".join(lines)
    print(report.drawn_json(name, draws.dtype, draws.seed, counts, failure) if as_json else text)
    if summary:
        title = f"{name} in {draws.dtype}, drawn cases"
        last = "a drawn case fails" if failure else f"{sum(counts.values())} drawn cases pass"
        append(summary, report.report_markdown(title, f"{text}\n{last}"))
    if stop:
        raise stop
    return int(failure is not None or monotonic() > until)
