"""The proofs that `fedref check` runs: a table, one row a claim.

The chain of trust. The specification (`fedref.spec`) says what the loss is: it is read against the paper,
and torch's layers compute the same. Its dual numbers differentiate the loss, and agree with complex steps
of it. The gradients and Hessian-vector products by hand equal these (`models`). With them fedref answers
every golden case, its numbers moved, as the specification does (`golden`), and so whole runs, one by one,
stacked and on threads (`whole_runs`); what somebody derived is the complex step of its objective
(`identities`).

A proof is a generator of reports, one for each comparison; `@proof` enters it into `PROOFS`, once for
each tag. It gets a `Setting`: a small model, a random point, and batches. To read a proof, start at
`identities.meta_gradient`.
"""

from importlib import import_module

# The order of the imports is the order of the table: models, the papers' equations, rounds, plans.
from fedref.proofs.models import MODELS  # isort: skip
from fedref.proofs.setting import Setting
from fedref.proofs.table import ONE, PROOFS, Proof, Row, run, select

for _name in ("duals", "pieces", "identities", "golden", "whole_runs", "sampling"):
    import_module(f"fedref.proofs.{_name}")

__all__ = ["MODELS", "ONE", "PROOFS", "Proof", "Row", "Setting", "run", "select"]
