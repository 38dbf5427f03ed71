#!/usr/bin/env bash
# torchmetrics' merge_state does not change what compute() says, if compute() was called before.
#
# One would guess: after a.merge_state(b) a is the metric of all rows. A value that was computed before is forgotten, as update and
# reset forget it.
# What happens: the states are merged and the kept value stays, through all further merges, as it does through load_state_dict:
# compute() gives the value of a's own rows. update() of a single row makes it right again. There is a warning for compute()
# before the first update, none here. Without a compute() before the merge all is right.
# Why it matters: the server that prints each client's accuracy and then merges them says of the federation what it said of the
# first client. The states, which one would look at to find out, are right.
# Seen with torchmetrics 1.9.0, torch 2.13.0: what stands at the end.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/pip" install -q torch==2.13.0 torchmetrics==1.9.0
"$place/env/bin/python" -W ignore - <<'PY' | tee "$place/seen"
import torch
from torchmetrics import MeanMetric
from torchmetrics.classification import BinaryAccuracy
from torchmetrics.regression import MeanSquaredError

ones, zeros = torch.ones(4, dtype=torch.int), torch.zeros(12, dtype=torch.int)
for make, first, second, row in (
    (BinaryAccuracy, (ones, ones), (zeros + 1, zeros), (ones[:1], ones[:1])),
    (MeanSquaredError, (ones, ones), (zeros + 1, zeros), (ones[:1], ones[:1])),
    (MeanMetric, (ones.float(),), (zeros.float(),), (zeros[:1].float(),)),
):
    for said in (False, True):
        a, b = make(), make()
        a.update(*first)
        b.update(*second)
        if said:
            a.compute()
        a.merge_state(b)
        merged = a.compute().item()
        a.update(*row)
        print(
            f"{make.__name__}, {'computed' if said else 'not computed'} before: {merged:.2f} merged,",
            f"{a.compute().item():.2f} after a row more",
        )

a, b = MeanMetric(), MeanMetric()
for it, value in ((a, 1.0), (b, 0.0)):
    it.persistent(True)
    it.update(value)
a.compute()
a.load_state_dict(b.state_dict())
print(f"load_state_dict, computed before: state {a.mean_value.item():.2f}, compute() {a.compute().item():.2f}")
PY
diff "$place/seen" - <<'SEEN'
BinaryAccuracy, not computed before: 0.25 merged, 0.29 after a row more
BinaryAccuracy, computed before: 1.00 merged, 0.29 after a row more
MeanSquaredError, not computed before: 0.75 merged, 0.71 after a row more
MeanSquaredError, computed before: 0.00 merged, 0.71 after a row more
MeanMetric, not computed before: 0.25 merged, 0.24 after a row more
MeanMetric, computed before: 1.00 merged, 0.24 after a row more
load_state_dict, computed before: state 0.00, compute() 1.00
SEEN
