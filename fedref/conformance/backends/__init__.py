"""Backends that are run against the vectors; a short name stands for each on the command line."""

NAMES = {
    "fedref": "fedref.conformance.backends.reference:LOOP",
    "fedref:stack": "fedref.conformance.backends.reference:STACK",
    "fedref:workers": "fedref.conformance.backends.reference:WORKERS",
    "torch": "fedref.conformance.backends.torch:BACKEND",
    "jax": "fedref.conformance.backends.jax:BACKEND",
    "flower": "fedref.conformance.backends.flower:BACKEND",
}
