"""The golden cases by their names, read once for all tests of a process."""

from fedref.conformance import vectors

GOLDEN = {case.name: case for case in vectors.read()}
CASES = [*GOLDEN.values()]
