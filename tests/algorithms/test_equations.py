"""The equations at points of Hypothesis's choosing: what `fedref check` proves, on models of any size.

A tag stands in the name of its test: `pytest -k "per-fedavg eq.6"`. Whole rounds are in tests/proofs.
"""

import pytest
from helpers import KINDS, sized
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from fedref.proofs import PROOFS
from fedref.proofs.table import FAMILIES

MODELS = st.builds(
    sized,
    st.sampled_from(KINDS),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(2, 3),
    st.sampled_from([0.0, 0.3]),
)


@pytest.mark.parametrize(
    "proof",
    [proof for proof in PROOFS if proof.models is FAMILIES],
    ids=lambda proof: f"{proof.tag}: {proof.claim}",
)
@settings(max_examples=8)
@given(MODELS, st.integers(0, 10**6))
def test_equation(proof, model, seed):
    """What is compared is equal. Slopes speak of smooth models, and are measured in tests/proofs."""
    try:
        reports = proof.compare_on(model, seed, 0)
    except RuntimeError:  # a large ReLU network has kinks everywhere
        reject()
    assert reports
    assert all(report.error_ok for report in reports), reports
