"""The proofs that `fedref check` runs: a table, one small case a claim, one file a paper.

The chain of trust. The specification (`fedref.spec`) says what the loss is; the complex step of the
loss is the gradient; the complex step of the gradient is the Hessian-vector product. With these three,
every equation is compared with the complex step of its own objective or with the specification, and
every algorithm's rounds with those of the specification (`whole_rounds`, one row a setting).

A proof is a generator of reports, one for each comparison; `@proof` enters it into `PROOFS`, once for
each tag. It gets a `Case`: a small model, a random point, and batches. A claim that follows from the
comparison of whole rounds has no proof of its own. To read a proof, start at
`per_fedavg.meta_gradient`.
"""

from importlib import import_module

# The order of the imports is the order of the table: models, plans, the papers' equations, rounds.
from fedref.proofs.models import MODELS  # isort: skip
from fedref.proofs.case import Case
from fedref.proofs.table import ONE, PROOFS, Proof, Row, run, select

_papers = (
    "fedprox", "per_fedavg", "fedmeta", "fedmaml", "fedcurv", "apfl", "scaffold", "apfl_deng",
    "feddyn", "fedopt", "fednova", "pfedme",
)  # fmt: skip
for _name in ("pieces", "sampling", *_papers, "whole_rounds"):
    import_module(f"fedref.proofs.{_name}")

__all__ = ["MODELS", "ONE", "PROOFS", "Case", "Proof", "Row", "run", "select"]
