#!/usr/bin/env bash
# The gradients of single rows that Opacus, BackPACK and NNGeometry give for a convolution with circular padding are
# those of a convolution with zeros around the picture.
#
# One would guess: a layer that a tool accepts without a word has gradients that add up to the batch's gradient; a
# layer that it does not know is refused.
# What happens: all three take a Conv2d by its class and unfold its input with zeros, whatever its padding_mode says.
# The forward pass and p.grad stay right; the gradients of single rows, and with BackPACK the diagonal of the Hessian,
# with NNGeometry the Fisher information, are those of padding_mode="zeros". Opacus' validator has nothing to say.
# Why it matters: Opacus clips and adds these gradients, so that a client under differential privacy descends another
# loss than its own; FedCurv's Fisher information is the mean of their squares.
# Seen with opacus 1.6.0, backpack-for-pytorch 1.7.1, nngeometry 0.4, torch 2.13.0, in float64 (reflect, replicate alike):
#   circular: Opacus' own validator finds 0 errors
#   opacus: the rows' gradients add up to the batch's: zeros True, circular False
#   opacus: the circular layer's are, for the same output's gradient, those of zeros around: True
#   backpack: zeros True, circular False
#   nngeometry: zeros True, circular False
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/pip" install -q torch==2.13.0 opacus==1.6.0 backpack-for-pytorch==1.7.1 nngeometry==0.4
"$place/env/bin/python" -W ignore - <<'PY' | tee "$place/seen"
import torch
from backpack import backpack, extend, extensions
from nngeometry.metrics import FIM
from nngeometry.object import PMatDense
from opacus.grad_sample import GradSampleModule
from opacus.validators import ModuleValidator
from torch import nn

torch.set_default_dtype(torch.float64)
x = torch.randn(3, 2, 4, 4, generator=torch.Generator().manual_seed(0))
y = torch.tensor([0, 2, 1])
loss = nn.CrossEntropyLoss(reduction="sum")


def network(mode):
    torch.manual_seed(1)
    conv = nn.Conv2d(2, 2, 3, padding=1, padding_mode=mode)
    return nn.Sequential(conv, nn.Tanh(), nn.Flatten(), nn.Linear(32, 3))


def batch_gradient(mode):
    model = network(mode)
    return torch.autograd.grad(loss(model(x), y), list(model.parameters()))


def opacus(mode):
    model = network(mode)
    loss(GradSampleModule(model, loss_reduction="sum")(x), y).backward()
    return [p.grad_sample.sum(0) for p in model.parameters()]


def opacus_from(mode, rows, slope):
    torch.manual_seed(1)
    conv = GradSampleModule(nn.Conv2d(2, 2, 3, padding=1, padding_mode=mode), loss_reduction="sum")
    conv(rows).backward(slope)
    return [p.grad_sample for p in conv.parameters()]


def by_backpack(mode):
    model = extend(network(mode))
    with backpack(extensions.BatchGrad()):
        extend(nn.CrossEntropyLoss(reduction="sum"))(model(x), y).backward()
    return [p.grad_batch.sum(0) for p in model.parameters()]


def fisher(mode):  # (1/n) Σ J' (diag p − p p') J, by the Jacobian of each row's logits
    model, total = network(mode), 0
    for row in x:
        logits = model(row[None])[0]
        J = [torch.autograd.grad(z, list(model.parameters()), retain_graph=True) for z in logits]
        J = torch.stack([torch.cat([g.flatten() for g in row]) for row in J])
        p = logits.detach().softmax(0)
        total = total + J.T @ (p.diag() - p.outer(p)) @ J / len(x)
    return total


def by_nngeometry(mode):
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=3)
    return FIM(network(mode), loader, PMatDense, "classif_logits").to_torch()


def same(a, b):
    return all(torch.allclose(p, q, rtol=1e-10, atol=1e-12) for p, q in zip(a, b, strict=True))


print(f"circular: Opacus' own validator finds {len(ModuleValidator.validate(network('circular')))} errors")
sums = {mode: same(opacus(mode), batch_gradient(mode)) for mode in ("zeros", "circular")}
print(f"opacus: the rows' gradients add up to the batch's: zeros {sums['zeros']}, circular {sums['circular']}")
slope = torch.randn(3, 2, 4, 4, generator=torch.Generator().manual_seed(2))
equal = same(opacus_from("circular", x, slope), opacus_from("zeros", x, slope))
print(f"opacus: the circular layer's are, for the same output's gradient, those of zeros around: {equal}")
sums = {mode: same(by_backpack(mode), batch_gradient(mode)) for mode in ("zeros", "circular")}
print(f"backpack: zeros {sums['zeros']}, circular {sums['circular']}")
sums = {mode: same([by_nngeometry(mode)], [fisher(mode)]) for mode in ("zeros", "circular")}
print(f"nngeometry: zeros {sums['zeros']}, circular {sums['circular']}")
PY
diff "$place/seen" - <<'SEEN'
circular: Opacus' own validator finds 0 errors
opacus: the rows' gradients add up to the batch's: zeros True, circular False
opacus: the circular layer's are, for the same output's gradient, those of zeros around: True
backpack: zeros True, circular False
nngeometry: zeros True, circular False
SEEN
