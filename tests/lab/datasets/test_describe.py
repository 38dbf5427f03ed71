"""A federation in numbers, and the remarks on its data."""

from dataclasses import replace

import numpy as np
import pytest

from fedref.lab.datasets.describe import (
    histogram,
    label_note,
    remarks,
    source_text,
    statistics,
    statistics_text,
)
from fedref.lab.datasets.rules import split
from fedref.lab.datasets.sources import from_memory
from fedref.rounds.federation import Federation, Part, Source

#: Three clients with 3 + 1, 2 + 0 and 1 + 1 rows of training and test.
EIGHT = Source(np.zeros((8, 2)), np.array([0, 0, 1, 1, 1, 2, 0, 2]), name="eight")
PARTS = Part(np.arange(6), np.array([0, 3, 5, 6])), Part(np.arange(6, 8), np.array([0, 1, 1, 2]))
FEDERATION = Federation(EIGHT, *PARTS)


def test_statistics_by_hand_and_names_without_their_control_characters():
    found = statistics(FEDERATION)
    assert (found["clients"], found["samples"], found["mean"]) == (3, 8, 8 / 3)
    assert (found["std"], found["labels a client"]) == (np.std([4, 2, 2]), 4 / 3)
    assert histogram(FEDERATION).tolist() == [[3, 0, 0], [1, 2, 0], [0, 0, 2]]
    assert "labels are" not in statistics_text(FEDERATION)
    names = ("\x1b[2J", "b\n" + "b" * 99, "c")
    hostile = replace(EIGHT, label_names=names, name="\x1b[2J")
    text = statistics_text(replace(FEDERATION, source=hostile))
    assert text.endswith(f"labels are encoded as 0 = \\x1b[2J, 1 = b\\n{'b' * 36}…, 2 = c")
    assert "\x1b" not in text


GAP = "labels run from {0} to {1}, a model's classes from 0 to {1}; no row has label {2}"


@pytest.mark.parametrize(
    ("y", "names", "known", "note"),
    [
        ([1, 2, 3], None, None, GAP.format(1, 3, "0")),
        ([-1, 1], None, None, "labels are encoded as 0 = -1, 1 = 1"),
        ([0, 1], None, (-1, 1), "labels are encoded as -1 = 0, 1 = 1"),
        ([0.5, 1], None, None, ""),
        ([0, 1], ("no", "yes"), (), ""),  # a model of real targets
        ([0, 1], ("no", "yes"), (-1, 1), "labels are encoded as -1 = no, 1 = yes"),
    ],
)
def test_what_becomes_of_labels_is_said(y, names, known, note):
    source = Source(np.zeros((len(y), 1)), np.array(y), label_names=names)
    assert label_note(source, known) == note


PIXELS, COUNTS = np.full((4, 64), 200, np.uint8), np.arange(8, dtype=np.uint8).reshape(4, 2)
IMAGES, UNIT = COUNTS[..., None], "--set split.scaling=unit divides by 255"
DOUBT = ("200 to 200: taken as numbers, though they may be pixels; divide by 255, or "
         "--set split.scaling=standardise")  # fmt: skip
DIVIDED = "uint8, 0 to 7: divided by 255; --set split.scaling=none leaves them as they are"


@pytest.mark.parametrize(
    ("X", "scaling", "note", "largest"),
    [
        (COUNTS, None, f"uint8, 0 to 7: taken as numbers; {UNIT}", 7),
        (COUNTS, "standardise", "", None),
        (COUNTS, "unit", DIVIDED, 7 / 255),
        (IMAGES, None, DIVIDED, 7 / 255),
        (IMAGES, "none", f"uint8, 0 to 7: taken as numbers; {UNIT}", 7),
        (COUNTS.astype(int), None, "", 7),
        (PIXELS, None, f"uint8, 200 to 200: taken as numbers, though they may be pixels; {UNIT}", 200),
        (PIXELS[:, :63], None, f"uint8, 200 to 200: taken as numbers; {UNIT}", 200),
        (PIXELS * 1.0, None, f"float64, {DOUBT}", 200),  # as a CSV has them
        (PIXELS.astype(int).reshape(4, 8, 8), None, f"int64, {DOUBT}", 200),
        (PIXELS + 0.5, None, "", 200.5),
        (PIXELS * 2.0, None, "", 400),
    ],
)  # fmt: skip
def test_whether_bytes_are_pixels_or_numbers_is_said(X, scaling, note, largest):
    source = from_memory((X, np.arange(4) % 2), "data")
    found = split("iid", source, users=2, scaling=scaling)
    assert remarks(found) == [note] * bool(note)
    if largest is not None:
        assert found.batch(np.arange(4)).X.max() == pytest.approx(largest, rel=1e-15)
    if scaling is None:
        assert note in source_text(source)
