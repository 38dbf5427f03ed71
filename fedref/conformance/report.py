"""The suite's report, for people (text) and for programs (JSON)."""

import importlib.util
import json
import subprocess
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from fnmatch import fnmatchcase
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from fedref.conformance import vectors
from fedref.conformance.vectors import Case
from fedref.judge import evidence
from fedref.judge.errata import MISTAKES
from fedref.judge.evidence import SINGLE
from fedref.judge.verdicts import FAILED, NOT_OFFERED, PASSED, Result


def summary(results: Sequence[Result]) -> str:
    """Return the last line: how much is offered, and how much of that is right."""
    counts = Counter(result.status for result in results)
    offered = len(results) - counts[NOT_OFFERED]
    share = 100 * offered / max(len(results), 1)
    text = f"offers {offered} of {len(results)} cases ({share:.0f} %)"
    if not offered:
        return f"{text}: nothing was tested"
    return f"{text}; {counts[PASSED]} of these pass ({100 * counts[PASSED] / offered:.0f} %)"


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
    results: Sequence[Result], cases: Sequence[Case], every: Sequence[Result] | None = None
) -> str:
    """Return all failures, the calls that are not offered, and the summary of `every` result.

    every : the results, and those that were set apart (None: the same).
    """
    lines = [*overview(results, cases), *list_failures(results)]
    remarks = Counter(remark for result in results for remark in result.remarks)
    lines += [f"remark: {remark} ({n} cases)" for remark, n in remarks.items()]
    calls = {case.name: case.call for case in cases}
    missing = Counter(calls[r.case] for r in results if r.status == NOT_OFFERED)
    if missing:
        lines.append(f"not offered: {', '.join(f'{call} ({n})' for call, n in missing.items())}")
    failed = [result for result in results if result.status == FAILED]
    names = Counter(name for result in failed for name in result.mistakes)
    for name, n in names.most_common():
        lines.append(f"known mistake ({n} ×): {explain_name(name)}")
    numbers = [result for result in failed if result.outputs and not result.mistakes]
    if unknown := [result for result in numbers if result.looked]:
        lines.append(f"no known mistake fits ({len(unknown)} ×): {begin_with(unknown, cases)}")
    if rest := len(numbers) - len(unknown):
        lines.append(f"no known mistake was looked for ({rest} ×): mend the first, or use --only")
    return "\n".join([*lines, summary(results if every is None else every)])


def begin_with(results: Sequence[Result], cases: Sequence[Case]) -> str:
    """Return which of these failures is the smallest, and its entry that is farthest off."""
    by_name = {case.name: case for case in cases}
    least = min(results, key=lambda result: by_name[result.case].model["d"])
    case, output = by_name[least.case], least.output
    got, want = (np.asarray(x[output], float) for x in (least.outputs, case.outputs))
    far = np.abs(got - want)
    place = evidence.places_of(far == far.max(initial=0), case).partition(", ")[0]
    at = np.unravel_index(far.argmax(), far.shape)
    values = f"yours {got[at]:.6g}, right {want[at]:.6g}"
    return (
        f"begin with {case.name}, the smallest (d = {case.model['d']}): {output}{place}: {values}"
    )


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


def overview(results: Sequence[Result], cases: Sequence[Case]) -> list[str]:
    """Return a table: of each function and algorithm that is offered, how many cases pass and fail."""
    counts: dict[str, Counter[str]] = {}
    for result, case in zip(results, cases):
        subject = f"{case.call} {case.algorithm}".strip()
        counts.setdefault(subject, Counter())[result.status] += 1
    offered = {
        subject: count for subject, count in counts.items() if count[PASSED] or count[FAILED]
    }
    rows = [f"{'':28}{PASSED:>8}{FAILED:>8}{NOT_OFFERED:>13}"] if offered else []
    for subject, count in offered.items():
        rows.append(f"{subject:28}{count[PASSED]:8}{count[FAILED]:8}{count[NOT_OFFERED]:13}")
    return rows


def set_apart(results: Sequence[Result], patterns: Sequence[str]) -> tuple[list[str], list[Result]]:
    """Return lines about the cases that are expected to fail, and the results without those that do."""
    listed = [r for r in results if any(fnmatchcase(r.case, pattern) for pattern in patterns)]
    failing = {r.case for r in listed if r.status == FAILED}
    lines = [f"fail as expected (--xfail): {len(failing)}"] if failing else []
    lines += [f"{r.case}: {r.status}, but expected to fail" for r in listed if r.status != FAILED]
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
    """Return how many passed, failed, and were not offered."""
    counts = Counter(result.status for result in results)
    return {status.replace(" ", "_"): counts[status] for status in (PASSED, FAILED, NOT_OFFERED)}


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
    fields = [name for name in Result._fields if name != "outputs"]
    head |= {"results": [{name: getattr(result, name) for name in fields} for result in results]}
    text = json.dumps(head, ensure_ascii=False, indent=1).removesuffix("\n}")
    citation = json.dumps(cite_results(results, backend, dtype, total), ensure_ascii=False)
    return f'{text},\n "cite": {citation}}}'
