"""The suite's report, for people (text) and for programs (JSON)."""

import importlib.util
import json
import subprocess
import textwrap
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date
from fnmatch import fnmatchcase
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from fedref.boundary.errors import ConfigError, unknown
from fedref.boundary.files import read_text
from fedref.conformance import naming, vectors
from fedref.conformance.vectors import Case
from fedref.judge import evidence
from fedref.judge.errata import MISTAKES
from fedref.judge.evidence import SINGLE
from fedref.judge.verdicts import AT_KINK, FAILED, NOT_ASKED, NOT_OFFERED, PASSED, Result


def summary(results: Sequence[Result]) -> str:
    """Return the last line: how much is offered, and how much of that is right."""
    counts = Counter(result.status for result in results)
    asked = len(results) - counts[NOT_ASKED]
    offered = asked - counts[NOT_OFFERED]
    text = f"offers {offered} of {asked} cases ({percent(offered, asked)})"
    if offered:
        text += f"; {counts[PASSED]} of these pass ({percent(counts[PASSED], offered)})"
    else:
        text += ": nothing was tested"
    return f"{text}; {counts[NOT_ASKED]} were not asked" if counts[NOT_ASKED] else text


def percent(part: int, whole: int) -> str:
    """Return a share in %, rounded down: 552 of 553 is not 100 %."""
    return f"{100 * part // max(whole, 1)} %"


def describe_failure(result: Result) -> str:
    """Return in one line what is wrong."""
    if result.reason:
        return f"{result.output} {result.reason}".strip()
    return f"{result.output} off by {result.error:.2g} (allowed {result.tolerance:.2g})"


def failure_text(result: Result) -> str:
    """Return the lines about a case that failed, with the mistakes that explain it."""
    line = f"FAILED  {result.case}  [{result.tag}]  {describe_failure(result)}"
    joined = "; or ".join(result.mistakes)
    text = f"it is: {joined}" if joined else result.evidence
    return f"{line}\n        {text}" if text else line


def explain_name(name: str) -> str:
    """Return a mistake's name, its kind where it is not wrong, and what is right."""
    if name == SINGLE:
        return f"{name}. the numbers are right to 7 digits: compute in the dtype that is given"
    kind = MISTAKES[name].kind
    return f"{name}. {MISTAKES[name].why}" + ("" if kind == "wrong" else f" ({kind})")


def report_text(
    results: Sequence[Result], cases: Sequence[Case], patterns: Sequence[str] = ()
) -> str:
    """Return all failures, the calls that are not offered, and the summary.

    patterns : of the names of cases that are expected to fail, which are set apart.
    """
    every = results
    lines, results = set_apart(results, patterns)
    lines += [*overview(results, cases), *list_failures(results)]
    calls = {case.name: case.call for case in cases}
    failed = [result for result in results if result.status == FAILED]
    wrong = {calls.get(result.case) for result in failed}
    remarks = Counter(
        remark
        for result in results
        for remark in result.remarks  # a derivative that is wrong elsewhere is wrong at a kink, too
        if AT_KINK not in remark or calls[result.case] not in wrong
    )
    lines += [f"remark: {remark} ({n} cases)" for remark, n in remarks.items()]
    missing = Counter(calls[r.case] for r in results if r.status == NOT_OFFERED)
    if missing:
        lines.append(f"not offered: {', '.join(f'{call} ({n})' for call, n in missing.items())}")
    names = Counter(name for result in failed for name in result.mistakes)
    for name, n in names.most_common():
        lines.append(f"known mistake ({n} ×): {explain_name(name)}")
    numbers = [result for result in failed if result.outputs and not result.mistakes]
    looked = [result for result in numbers if result.looked]
    unknown = [result for result in looked if not result.evidence.startswith(naming.TELLS)]
    if told := len(looked) - len(unknown):
        lines.append(
            f"told in words ({told} ×): no known mistake fits, but what is said above does"
        )
    if unknown:
        lines.append(f"no known mistake fits ({len(unknown)} ×): {begin_with(unknown, cases)}")
    if rest := len(numbers) - len(looked):
        lines.append(f"no known mistake was looked for ({rest} ×): mend the first, or use --only")
    return "\n".join([*lines, summary(every)])


def report_markdown(title: str, text: str) -> str:
    """Return a report as Markdown: its last line, and the rest to be opened."""
    *lines, last = text.splitlines()
    report = "\n".join(["```text", *lines, "```"])
    details = f"<details><summary>the report</summary>\n\n{report}\n\n</details>"
    return f"### {title}\n\n{last}\n\n{details}\n\n"


def read_patterns(path: Path | None, names: Collection[str]) -> tuple[str, ...]:
    """Return the patterns of a file of cases that are expected to fail; each must fit one of all names."""
    if path is None:
        return ()
    lines = read_text(path, "a file of cases, one a line").splitlines()
    patterns = tuple(filter(None, (line.partition("#")[0].strip() for line in lines)))
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ConfigError(f"--xfail {path}: {unknown('case', pattern, names)}")
    return patterns


def is_expected(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def begin_with(results: Sequence[Result], cases: Sequence[Case]) -> str:
    """Return which of these failures is the smallest, and its entry that is farthest off."""
    by_name = {case.name: case for case in cases}
    least = min(results, key=lambda result: by_name[result.case].model["d"])
    case, output = by_name[least.case], least.output
    got, want = (np.asarray(x[output], float) for x in (least.outputs, case.outputs))
    far = np.abs(got - want)
    at = np.unravel_index(far.argmax(), far.shape)
    farthest = np.zeros(far.shape, bool)
    farthest[at] = True
    place = evidence.places_of(farthest, case)
    digits = next((n for n in (6, 9) if f"{got[at]:.{n}g}" != f"{want[at]:.{n}g}"), 17)
    values = f"yours {got[at]:.{digits}g}, right {want[at]:.{digits}g}"
    smallest = f"{case.name}, the smallest (d = {case.model['d']})"
    space = "" if place.startswith("[") else " "  # a number has no place
    return f"begin with {smallest}: {output}{space}{place.removeprefix('[]')}: {values}"


#: So many failures of one cause are shown.
SHOWN = 3


def list_failures(results: Sequence[Result]) -> Iterator[str]:
    """Yield the failures, those of one cause together: the first few, and how many more there are."""
    causes: dict[tuple[Any, ...], list[Result]] = {}
    for result in results:
        if result.status == FAILED:
            call = "" if result.mistakes else result.case.partition("-")[0]
            cause = result.mistakes, result.evidence, result.reason, call
            causes.setdefault(cause, []).append(result)
    for failed in causes.values():
        yield from map(failure_text, failed[:SHOWN])
        if len(failed) > SHOWN:
            names = ", ".join(result.case for result in failed[SHOWN:])
            yield f"        and {len(failed) - SHOWN} more: {textwrap.shorten(names, 200)}"


#: The columns of the table; the last is there only where there are such cases.
COLUMNS = PASSED, FAILED, NOT_OFFERED, NOT_ASKED


def overview(results: Sequence[Result], cases: Sequence[Case]) -> list[str]:
    """Return a table: of each function and algorithm that is offered, how many cases pass and fail."""
    counts, by_name = dict[str, Counter[str]](), {case.name: case for case in cases}
    for result in results:
        case = by_name[result.case]
        subject = f"{case.call} {case.algorithm}".strip()
        counts.setdefault(subject, Counter())[result.status] += 1
    known = {x: count for x, count in counts.items() if {*count} != {NOT_OFFERED}}
    columns = COLUMNS if any(count[NOT_ASKED] for count in known.values()) else COLUMNS[:-1]
    rows = [f"{'':28}" + "".join(f"{name:>{len(name) + 2}}" for name in columns)] if known else []
    for subject, count in known.items():
        numbers = "".join(f"{count[name]:{len(name) + 2}}" for name in columns)
        rows.append(f"{subject:28}{numbers}")
    return rows


def set_apart(results: Sequence[Result], patterns: Sequence[str]) -> tuple[list[str], list[Result]]:
    """Return lines about the cases that are expected to fail, and the results without those that do."""
    listed = [r for r in results if is_expected(r.case, patterns)]
    failing = {r.case for r in listed if r.status == FAILED}
    lines = [f"fail as expected (--xfail): {len(failing)}"] if failing else []
    others = (r for r in listed if r.status not in (FAILED, NOT_ASKED))
    lines += [f"{r.case}: {r.status}, but expected to fail" for r in others]
    return lines, [r for r in results if r.case not in failing]


def cite_results(results: Sequence[Result], backend: str, dtype: str, total: int) -> dict[str, Any]:
    """Return the results in the one line that a paper or a README may cite. total : of all cases."""
    index = sha256((vectors.folder() / "index.json").read_bytes()).hexdigest()
    return {
        "vectors": vectors.VERSION, "index_sha256": index[:16], "backend": backend,
        "backend_version": find_version(backend), "dtype": dtype,
        "cases": f"{len(results)} of {total}", **count(results),
        "date": date.today().isoformat(),
    }  # fmt: skip


def count(results: Sequence[Result]) -> dict[str, int]:
    """Return how many passed, failed, were not offered, and were not asked."""
    counts = Counter(result.status for result in results)
    return {status.replace(" ", "_"): counts[status] for status in COLUMNS}


def drawn_json(backend: str, dtype: str, seed: int, counts: Mapping[str, int], failure: Any) -> str:
    """Return as JSON how many drawn cases of each function count, and the one that fails, with its inputs."""
    out: dict[str, Any] = {"backend": backend, "dtype": dtype, "seed": seed, "drawn": dict(counts)}
    out["failure"] = None
    if failure is not None:
        case, result = failure
        known = {name: getattr(case, name) for name in ("call", "algorithm", "model", "hyper")}
        sides = {"inputs": case.inputs, "right": case.outputs, "outputs": result.outputs}
        for side, values in sides.items():
            known[side] = {name: np.asarray(x).tolist() for name, x in values.items()}
        out["failure"] = fields_of(result) | known
    return json.dumps(out, ensure_ascii=False, indent=1)


def fields_of(result: Result) -> dict[str, Any]:
    """Return a verdict without the numbers."""
    return {name: getattr(result, name) for name in Result._fields if name != "outputs"}


def find_version(backend: str) -> str:
    """Return the version of the backend's distribution, else the commit of its checkout, else ""."""
    top = backend.partition(":")[0].partition(".")[0]
    for name in metadata.packages_distributions().get(top, [top]):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    found = importlib.util.find_spec(top)
    if found is None or not found.origin:
        return ""
    command = ["git", "-C", str(Path(found.origin).parent), "rev-parse", "--short", "HEAD"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip()


def report_json(results: Sequence[Result], backend: str, dtype: str, total: int) -> str:
    """Return the verdict on every case as JSON; its last line is the citation."""
    head: dict[str, Any] = {"backend": backend, "dtype": dtype, "summary": summary(results)}
    head |= count(results)
    head |= {"results": [*map(fields_of, results)]}
    text = json.dumps(head, ensure_ascii=False, indent=1).removesuffix("\n}")
    citation = json.dumps(cite_results(results, backend, dtype, total), ensure_ascii=False)
    return f'{text},\n "cite": {citation}}}'
