"""The suite's report, for people (text) and for programs (JSON)."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from fedref.conformance.mistakes import MISTAKES
from fedref.conformance.suite import FAILED, NOT_OFFERED, PASSED, Result
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
    lines = [f"FAILED  {result.case}  [{result.tag}]  {describe_failure(result)}"]
    lines += [f"        it is: {name}. {MISTAKES[name].line}" for name in result.mistakes]
    return "\n".join(lines)


def report_text(results: Sequence[Result], cases: Sequence[Case]) -> str:
    """Return all failures, the calls that are not offered, and the summary."""
    lines = [failure_text(result) for result in results if result.status == FAILED]
    remarks = Counter(remark for result in results for remark in result.remarks)
    lines += [f"remark: {remark} ({n} cases)" for remark, n in remarks.items()]
    calls = {case.name: case.call for case in cases}
    missing = Counter(calls[r.case] for r in results if r.status == NOT_OFFERED)
    if missing:
        lines.append(f"not offered: {', '.join(f'{call} ({n})' for call, n in missing.items())}")
    names = Counter(name for result in results for name in result.mistakes)
    if names:
        listed = "; ".join(f"{name} ({n})" for name, n in names.most_common())
        lines.append(f"known mistakes: {listed}")
    return "\n".join([*lines, summary(results)])


def report_json(results: Sequence[Result], backend: str, dtype: str) -> str:
    """Return the verdict on every case as JSON."""
    head: dict[str, Any] = {"backend": backend, "dtype": dtype, "summary": summary(results)}
    counts = Counter(result.status for result in results)
    head |= {"passed": counts[PASSED], "failed": counts[FAILED], "not_offered": counts[NOT_OFFERED]}
    head |= {"results": [result._asdict() for result in results]}
    return json.dumps(head, ensure_ascii=False, indent=1)


def printed_names(cases: Sequence[Case]) -> dict[str, str]:
    """Return every name that a report may print: name → "mistake", "tag", "case" or "call"."""
    names = dict.fromkeys(MISTAKES, "mistake") | {case.tag: "tag" for case in cases}
    return names | {case.call: "call" for case in cases} | {case.name: "case" for case in cases}
