#!/usr/bin/env bash
# torch's second derivative of parametrizations.weight_norm is not symmetric.
#
# One would guess: weight_norm is W = g · V/‖V‖, smooth wherever V is not 0. torch derives it twice, as it does the same
# formula written out, and a Hessian is symmetric: u·Hv = v·Hu.
# What happens: both give one gradient, to the last digits. The double backward of the fused kernel
# (torch._weight_norm) gives another H v than the formula, without an error or a warning: u·Hv and v·Hu differ. The
# difference quotient of the gradient is the formula's.
# Why it matters: whatever takes a Hessian-vector product through such a layer (Per-FedAvg, MAML, influence functions,
# conjugate gradients) goes on with a wrong direction. A check of the gradient finds nothing.
# Seen with torch 2.13.0 on the CPU, in float64:
#   gradients differ by less than 1e-14
#   the formula: u·Hv is v·Hu, H v is the difference quotient
#   weight_norm: u·Hv is not v·Hu, H v is not the difference quotient
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/pip" install -q torch==2.13.0 numpy
"$place/env/bin/python" - <<'PY' | tee "$place/seen"
import torch
from torch import nn

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
X, y = torch.randn(5, 3), torch.randint(0, 3, (5,))
fused = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3, bias=False))
g0, v0 = (x.detach().ravel() for x in fused.parameters())
u, v = torch.randn(2, 12)


def kernel(w):
    g, V = w[:3, None], w[3:].view(3, 3)
    return torch._weight_norm(V, g, 0)


def formula(w):
    g, V = w[:3, None], w[3:].view(3, 3)
    return g * V / V.norm(dim=1, keepdim=True)


def derive(weight, w, v=None):
    w = w.clone().requires_grad_()
    loss = nn.functional.cross_entropy(X @ weight(w).T, y)
    (g,) = torch.autograd.grad(loss, w, create_graph=True)
    return (g if v is None else torch.autograd.grad(g @ v, w)[0]).detach()


w = torch.cat([g0, v0])
assert torch.equal(fused.weight, kernel(w).view(3, 3))  # the layer's own weight
difference = (derive(kernel, w) - derive(formula, w)).abs().max()
print("gradients differ by less than 1e-14" if difference < 1e-14 else f"gradients differ by {difference:.2g}")
for name, weight in (("the formula", formula), ("weight_norm", kernel)):
    sides = [float(a @ derive(weight, w, b)) for a, b in ((u, v), (v, u))]
    h = 1e-5
    quotient = (derive(weight, w + h * v) - derive(weight, w - h * v)) / (2 * h)
    error = (derive(weight, w, v) - quotient).norm() / quotient.norm()
    print(
        f"{name}: u·Hv is {'' if abs(sides[0] - sides[1]) < 1e-12 else 'not '}v·Hu,",
        f"H v is {'' if error < 1e-8 else 'not '}the difference quotient",
    )
PY
diff "$place/seen" - <<'SEEN'
gradients differ by less than 1e-14
the formula: u·Hv is v·Hu, H v is the difference quotient
weight_norm: u·Hv is not v·Hu, H v is not the difference quotient
SEEN
