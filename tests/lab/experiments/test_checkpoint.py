"""Checkpoints: what is read is what was written, or it is refused."""

import io
import json
import random
import time
from hashlib import sha256
from typing import NamedTuple

import numpy as np
import pytest
from helpers import same
from hypothesis import given
from hypothesis import strategies as st

from fedref import DataError
from fedref.lab.experiments import checkpoint


class Pair(NamedTuple):
    left: object
    right: object


ARRAYS = st.builds(
    lambda dtype, shape, seed: np.random.default_rng(seed).uniform(-99, 99, shape).astype(dtype),
    st.sampled_from([np.float64, np.float32, np.int64, np.int32, np.uint8, bool, np.complex128]),
    st.sampled_from([(), (0,), (3,), (2, 0), (2, 3)]),
    st.integers(0, 99),
)
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.text(), st.floats(allow_nan=False), ARRAYS,
    st.builds(np.float64, st.floats(allow_nan=False)), st.builds(np.float32, st.integers(-9, 9)),
    st.builds(np.int64, st.integers(-9, 9)),
)  # fmt: skip
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.builds(Pair, inner, inner),
        st.dictionaries(st.one_of(st.integers(-5, 5), st.text(max_size=3)), inner, max_size=3),
    ),
    max_leaves=8,
)


@given(TREES)
def test_any_tree_comes_back_with_its_types_and_gives_the_same_bytes(value):
    data = checkpoint.dumps(value)
    again = checkpoint.loads(data)
    assert same(value, again)
    assert checkpoint.dumps(again) == data


def test_nan_comes_back_as_nan_of_its_type():
    nan = checkpoint.loads(checkpoint.dumps((float("nan"), np.float32("nan"))))
    assert [(type(x), bool(np.isnan(x))) for x in nan] == [(float, True), (np.float32, True)]


def test_bytes_depend_neither_on_the_time_nor_on_the_order_of_a_dictionary(monkeypatch):
    value = {"a": np.arange(3.0), 2: Pair(1, (2.5, None))}
    before = checkpoint.dumps(value)
    monkeypatch.setattr(time, "time", lambda: 1e9)
    monkeypatch.setattr(time, "localtime", lambda *a: time.gmtime(1e9))
    assert checkpoint.dumps(dict(reversed(value.items()))) == before


VALUE = Pair({3: np.arange(5.0), 1: np.float32(2)}, ["text", 7, None, (True, 0.1)])


def test_every_changed_bit_every_lost_tail_and_another_version_is_noticed():
    data, rng = checkpoint.dumps(VALUE), random.Random(0)
    damaged = [data[:n] for n in {0, 1, 20, *rng.sample(range(len(data)), 50)}]
    for i in {*range(90), *rng.sample(range(len(data)), 200)}:  # the head, and some of the body
        bit = 1 << rng.randrange(8)
        damaged.append(data[:i] + bytes([data[i] ^ bit]) + data[i + 1 :])
    version = data.replace(b"checkpoint 1", b"checkpoint 2", 1)
    with pytest.raises(DataError, match="not a checkpoint of version 1"):
        checkpoint.loads(version)
    for wrong in (*damaged, data + b"x"):
        with pytest.raises(DataError, match=r"^here: is "):
            checkpoint.loads(wrong, "here")


def sealed(body: bytes) -> bytes:
    """A file whose hash is right, whatever it holds."""
    return checkpoint.MAGIC + sha256(body).hexdigest().encode() + b"\n" + body


def npz(structure, **arrays) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, tree=np.frombuffer(json.dumps(structure).encode(), np.uint8), **arrays)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"PK\x03\x04 nothing", "cannot be decoded"),
        (npz({"array": "a0"}), "cannot be decoded"),  # an array that is not there
        (npz([1]), "cannot be decoded"),
        (npz({"tuple": "os:system", "items": [{"value": "true"}]}), "which is not known here"),
        (npz({"tuple": "not.imported:Thing", "items": []}), "which is not known here"),
        (npz({"array": "a0"}, a0=np.array([print], dtype=object)), "cannot be decoded"),  # pickled
    ],
)
def test_whole_files_of_another_making_are_refused(body, message):
    with pytest.raises(DataError, match=message):
        checkpoint.loads(sealed(body))


def test_what_cannot_be_held_is_refused_when_it_is_written():
    with pytest.raises(TypeError, match="cannot hold a set"):
        checkpoint.dumps({1: {2}})
