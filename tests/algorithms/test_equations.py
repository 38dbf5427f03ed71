"""The equations at points of Hypothesis's choosing: what `fedref check` proves, on models of any size.

A tag stands in the name of its test: `pytest -k "per-fedavg eq.6"`. Whole rounds are in tests/proofs.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedref import strategies
from fedref.models import LinearSVM
from fedref.proofs import PROOFS
from fedref.proofs.table import FAMILIES

#: Without the hinge, whose gradient jumps.
MODELS = strategies.models().filter(lambda m: not (isinstance(m, LinearSVM) and not m.squared))


@pytest.mark.parametrize(
    "proof",
    [proof for proof in PROOFS if proof.models is FAMILIES],
    ids=lambda proof: f"{proof.tag}: {proof.claim}",
)
@settings(max_examples=8)
@given(MODELS, st.integers(0, 10**6))
def test_equation(proof, model, seed):
    reports = list(proof.compare_on(model, seed, 0))
    assert reports
    assert all(report.ok for report in reports), reports
