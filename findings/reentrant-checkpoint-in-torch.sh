#!/usr/bin/env bash
# torch's reentrant checkpoint answers backward(create_graph=True) with a gradient that has no graph.
#
# One would guess: checkpointing costs time and saves memory, and changes no derivative; where it cannot give a second one,
# it raises, as it does for torch.autograd.grad.
# What happens: with use_reentrant=True, the form of older code, the gradient comes without a graph and without a warning. A
# gradient penalty built of it has no slope, and MAML is first-order MAML. With use_reentrant=False both are right.
# Why it matters: long inner loops are what one checkpoints, and meta-learning differentiates through them.
# Seen with torch 2.13.0: what stands at the end. The loss is |w|⁴/4, whose Hessian-vector product at (1, 2) is known.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/pip" install -q torch==2.13.0 numpy
"$place/env/bin/python" -W ignore - <<'PY' | tee "$place/seen"
import torch
from torch.utils.checkpoint import checkpoint


def loss(w):
    return w.square().sum().square() / 4


for reentrant in (True, False):
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    checkpoint(loss, w, use_reentrant=reentrant).backward(create_graph=True)
    g = w.grad
    text = f"use_reentrant={reentrant}: gradient {g.tolist()}, "
    if g.requires_grad:
        (h,) = torch.autograd.grad(g @ torch.tensor([1.0, 0.0]), w)
        print(f"{text}Hessian times (1, 0) {h.tolist()}")
    else:
        print(f"{text}no graph")
try:
    torch.autograd.grad(checkpoint(loss, w, use_reentrant=True), w, create_graph=True)
except RuntimeError as error:
    print("torch.autograd.grad raises", type(error).__name__)
PY
diff "$place/seen" - <<'SEEN'
use_reentrant=True: gradient [5.0, 10.0], no graph
use_reentrant=False: gradient [5.0, 10.0], Hessian times (1, 0) [7.0, 4.0]
torch.autograd.grad raises RuntimeError
SEEN
