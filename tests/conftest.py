"""Hypothesis: no deadline (a cold BLAS is slow), and in CI the same examples on every run."""

import os

from hypothesis import settings

settings.register_profile("fedref", deadline=None, max_examples=25, print_blob=True)
settings.register_profile("ci", settings.get_profile("fedref"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "fedref")
