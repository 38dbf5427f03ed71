"""What the suite found, for people (text) and for programs (JSON)."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from fedref.conformance.mistakes import MISTAKES
from fedref.conformance.suite import FAILED, NOT_OFFERED, PASSED, Result
from fedref.conformance.vectors import Case


def summary(results: Sequence[Result]) -> str:
    """The last line: how much is offered, and how much of that is right."""
    counts = Counter(result.status for result in results)
    offered = len(results) - counts[NOT_OFFERED]
    share = 100 * offered / max(len(results), 1)
    text = f"offers {offered} of {len(results)} cases ({share:.0f} %)"
    if not offered:
        return f"{text}: nothing was tested"
    return f"{text}; {counts[PASSED]} of these pass ({100 * counts[PASSED] / offered:.0f} %)"


def what(result: Result) -> str:
    """What is wrong, in one line."""
    if result.reason:
        return f"{result.output} {result.reason}".strip()
    return f"{result.output} off by {result.error:.2g} (allowed {result.tolerance:.2g})"


def failed(result: Result) -> str:
    lines = [f"FAILED  {result.case}  [{result.tag}]  {what(result)}"]
    lines += [f"        it is: {name}. {MISTAKES[name].line}" for name in result.mistakes]
    return "\n".join(lines)


def not_offered(results: Sequence[Result], cases: Sequence[Case]) -> str:
    """Which calls, and for how many cases."""
    calls = {case.name: case.call for case in cases}
    missing = Counter(calls[r.case] for r in results if r.status == NOT_OFFERED)
    return ", ".join(f"{call} ({n})" for call, n in missing.items())


def diagnosis(results: Sequence[Result]) -> Counter[str]:
    """The known mistakes that were recognised, the most frequent first."""
    return Counter(name for result in results for name in result.mistakes)


def text(results: Sequence[Result], cases: Sequence[Case]) -> str:
    """All that failed, what is not offered, and the summary."""
    parts = [failed(result) for result in results if result.status == FAILED]
    remarks = Counter(remark for result in results for remark in result.remarks)
    parts += [f"remark: {remark} ({n} cases)" for remark, n in remarks.items()]
    missing = not_offered(results, cases)
    parts += [f"not offered: {missing}"] * bool(missing)
    found = [f"{name} ({n})" for name, n in diagnosis(results).most_common()]
    parts += [f"known mistakes: {'; '.join(found)}"] * bool(found)
    return "\n".join([*parts, summary(results)])


def as_json(results: Sequence[Result], backend: str, dtype: str) -> str:
    head: dict[str, Any] = {"backend": backend, "dtype": dtype, "summary": summary(results)}
    counts = Counter(result.status for result in results)
    head |= {"passed": counts[PASSED], "failed": counts[FAILED], "not_offered": counts[NOT_OFFERED]}
    return json.dumps(
        head | {"results": [r._asdict() for r in results]}, ensure_ascii=False, indent=1
    )


# ---- the README's table ------------------------------------------------------------------------


def situation(case: Case) -> str:
    """A case's name without its model, where there is one for each family."""
    stem, _, last = case.name.rpartition("-")
    return (
        f"{stem}-*" if last in ENDINGS and case.call not in ("client", "aggregate") else case.name
    )


ENDINGS = ("binary", "logistic", "svm", "mlp", "cnn", "lstm", "hinge", "tanh", "relu", "mean")


def table(cases: Sequence[Case]) -> str:
    """Every case with what it is about and the numbers of the mistakes that it catches."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        name = re.sub(r"-(mlp|cnn|lstm)-\*$", "-*", situation(case))
        groups.setdefault(name, []).append(case)
    lines = ["| case | n | equation | what | catches |", "|---|--:|---|---|---|"]
    for name, group in groups.items():
        numbers = {MISTAKES[m].number for case in group for m in case.catches} - {0}
        caught = ", ".join(map(str, sorted(numbers)))
        first = group[0]
        lines.append(f"| `{name}` | {len(group)} | {first.tag} | {first.about} | {caught} |")
    return "\n".join(lines)


def mistakes() -> str:
    """The known mistakes with their numbers."""
    lines = ["| | known mistake | what is right |", "|--:|---|---|"]
    for name, mistake in MISTAKES.items():
        lines.append(f"| {mistake.number or ''} | {name} | {mistake.line} |")
    return "\n".join(lines)
