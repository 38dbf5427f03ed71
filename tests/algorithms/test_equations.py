"""The equations at points of Hypothesis's choosing: what `fedref check` proves, on models of any size.

A tag stands in the name of its test: `pytest -k "per-fedavg eq.6"`. Whole rounds are in tests/proofs.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_problems import kinds, l2s

from fedref.models import LSTM
from fedref.proofs import PROOFS
from fedref.proofs.table import FAMILIES

two = st.integers(1, 2)
lstms = st.builds(
    LSTM, two, st.integers(2, 3), two, two, st.lists(two, min_size=1, max_size=2).map(tuple),
    st.sampled_from(["last", "mean"]), l2s,
)  # fmt: skip
MODELS = st.one_of(lstms, *(models for name, models in kinds(two).items() if name != "hinge"))


@pytest.mark.parametrize(
    "proof",
    [proof for proof in PROOFS if proof.models is FAMILIES],
    ids=lambda proof: f"{proof.tag}: {proof.claim}",
)
@settings(max_examples=8)
@given(MODELS, st.integers(0, 10**6))
def test_equation(proof, model, seed):
    reports = proof.compare_on(model, seed, 0)
    assert reports
    assert all(report.ok for report in reports), reports
