"""The suite's report, for people (text) and for programs (JSON)."""

import importlib.util
import json
import subprocess
from collections import Counter
from collections.abc import Sequence
from datetime import date
from hashlib import sha256
from html import escape
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from fedref.conformance import vectors
from fedref.conformance.mistakes import MISTAKES
from fedref.conformance.suite import FAILED, NOT_OFFERED, PASSED, SINGLE, Result
from fedref.conformance.vectors import Case


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
    joined = ("; and " if result.pair else "; or ").join(result.mistakes)
    return f"{line}\n        it is: {joined}" if joined else line


def explain_name(name: str) -> str:
    """Return a mistake's name, its kind where it is not wrong, and what is right."""
    if name == SINGLE:
        return f"{name}. the numbers are right to 7 digits: compute in the dtype that is given"
    kind = MISTAKES[name].kind
    return f"{name}. {MISTAKES[name].line}" + ("" if kind == "wrong" else f" ({kind})")


def settle_names(results: Sequence[Result], cases: Sequence[Case]) -> list[Result]:
    """Return the results; where a case has several names, keep those least contradicted elsewhere.

    A case contradicts a name if it catches that mistake, and the backend's answer to it was not named
    so. A pair of mistakes is one explanation, and is kept.
    """
    catches = {case.name: set(case.catches) for case in cases}
    against: Counter[str] = Counter()
    alone = Counter(r.mistakes[0] for r in results if len(r.mistakes) == 1)
    for result in results:
        if result.status != NOT_OFFERED:
            against.update(catches[result.case] - set(result.mistakes))

    def settle(result: Result) -> Result:
        if len(result.mistakes) < 2 or result.pair:
            return result
        most = max(alone[name] for name in result.mistakes)
        names = [name for name in result.mistakes if alone[name] == most]
        least = min(against[name] for name in names)
        return result._replace(mistakes=tuple(name for name in names if against[name] == least))

    return [settle(result) for result in results]


def report_text(results: Sequence[Result], cases: Sequence[Case]) -> str:
    """Return all failures, the calls that are not offered, and the summary."""
    lines = [failure_text(result) for result in results if result.status == FAILED]
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
    if unknown := sum(not result.mistakes for result in failed):
        lines.append(f"no known mistake fits ({unknown} ×): begin where the first output is wrong")
    return "\n".join([*lines, summary(results)])


class Citation(NamedTuple):
    """A report in one line: the vectors, the backend that they judged, the outcome and the date."""

    vectors: int
    index_sha256: str
    backend: str
    backend_version: str
    dtype: str
    passed: int
    failed: int
    not_offered: int
    date: str


def cite_results(results: Sequence[Result], backend: str, dtype: str) -> Citation:
    """Return the results in the one line that a paper or a README may cite."""
    counts = Counter(result.status for result in results)
    index = sha256((vectors.folder() / "index.json").read_bytes()).hexdigest()
    return Citation(
        vectors.VERSION, index[:16], backend, find_version(backend), dtype,
        counts[PASSED], counts[FAILED], counts[NOT_OFFERED], date.today().isoformat(),
    )  # fmt: skip


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


def report_json(results: Sequence[Result], backend: str, dtype: str) -> str:
    """Return the verdict on every case as JSON; its last line is the citation."""
    head: dict[str, Any] = {"backend": backend, "dtype": dtype, "summary": summary(results)}
    counts = Counter(result.status for result in results)
    head |= {"passed": counts[PASSED], "failed": counts[FAILED], "not_offered": counts[NOT_OFFERED]}
    head |= {"results": [result._asdict() for result in results]}
    text = json.dumps(head, ensure_ascii=False, indent=1).removesuffix("\n}")
    citation = json.dumps(cite_results(results, backend, dtype)._asdict(), ensure_ascii=False)
    return f'{text},\n "cite": {citation}}}'


BADGE = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{text}">
<title>{title}</title>
<rect width="{left}" height="20" rx="3" fill="#555"/>
<rect x="{left}" width="{right}" height="20" rx="3" fill="{colour}"/>
<g fill="#fff" font-family="Verdana,sans-serif" font-size="11">
<text x="6" y="14">{label}</text><text x="{at}" y="14">{said}</text></g></svg>
"""


def draw_badge(cited: Citation) -> str:
    """Return the citation as a badge in SVG: how many of the offered cases pass."""
    offered = cited.passed + cited.failed
    label, said = f"fedref vectors {cited.vectors}", f"{cited.passed}/{offered} pass"
    left, right = 7 * len(label) + 12, 7 * len(said) + 12
    title = ", ".join(f"{name} {value}" for name, value in cited._asdict().items() if value != "")
    colour = "#9f9f9f" if not offered else "#c0392b" if cited.failed else "#2e8b57"
    return BADGE.format(
        width=left + right, left=left, right=right, at=left + 6, label=escape(label),
        said=escape(said), title=escape(title), text=escape(f"{label}: {said}", quote=True),
        colour=colour,
    )  # fmt: skip
