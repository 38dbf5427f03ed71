#!/usr/bin/env bash
# ByzFL's clipping changes the clients' updates where they are one NumPy array or a float32 tensor, and leaves lists alone.
#
# One would guess: Clipping and ARC return clipped vectors, the same for NumPy and for torch, as the documentation's examples
# show, and what they were given stays, whatever holds it.
# What happens: the vectors are clipped where they lie. A list, and a tensor that is not float32, are copied before by the
# conversion to one array or to float32; an array and a float32 tensor are not.
# Why it matters: a comparison of aggregators over one matrix of updates gives all that come after Clipping its clipped ones. The
# attackers' vectors are the longest: the plain mean looks robust, in one precision and not in the other.
# Seen with byzfl 0.0.11, NumPy 2.4.6, torch 2.13.0; the mean of (0, 1), (1, 0), (30, 40) before and after a call: what stands at
# the end.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/pip" install -q torch==2.13.0 numpy==2.4.6 scipy==1.17.1
"$place/env/bin/pip" install -q --no-deps byzfl==0.0.11
"$place/env/bin/python" -W ignore - <<'PY' | tee "$place/seen"
import sys
from types import ModuleType

import numpy as np
import torch

sys.modules["byzfl.benchmark"] = ModuleType("byzfl.benchmark")  # it alone needs torchvision and matplotlib
import byzfl

rows = np.array([[0.0, 1.0], [1.0, 0.0], [30.0, 40.0]])
for name, make in (
    ("array", np.copy),
    ("list of arrays", lambda rows: [*rows.copy()]),
    ("float64 tensor", torch.tensor),
    ("float32 tensor", lambda rows: torch.tensor(rows, dtype=torch.float32)),
    ("list of float32 tensors", lambda rows: [*torch.tensor(rows, dtype=torch.float32)]),
):
    told = []
    for clip in (byzfl.Clipping(2.0), byzfl.ARC(1)):
        mine = make(rows)
        clip(mine)
        told.append(f"{type(clip).__name__} {[round(x, 2) for x in byzfl.Average()(mine).tolist()]}")
    print(f"{name}: before {[round(x, 2) for x in rows.mean(0).tolist()]}, after", ", ".join(told))
PY
diff "$place/seen" - <<'SEEN'
array: before [10.33, 13.67], after Clipping [0.73, 0.87], ARC [0.53, 0.6]
list of arrays: before [10.33, 13.67], after Clipping [10.33, 13.67], ARC [10.33, 13.67]
float64 tensor: before [10.33, 13.67], after Clipping [10.33, 13.67], ARC [10.33, 13.67]
float32 tensor: before [10.33, 13.67], after Clipping [0.73, 0.87], ARC [0.53, 0.6]
list of float32 tensors: before [10.33, 13.67], after Clipping [10.33, 13.67], ARC [10.33, 13.67]
SEEN
