"""The golden cases by their names, read once for all tests of a process."""

from fedref.proofs.golden import EVERY as CASES

GOLDEN = {case.name: case for case in CASES}
