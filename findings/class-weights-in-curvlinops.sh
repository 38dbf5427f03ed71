#!/usr/bin/env bash
# curvlinops' KFAC of a cross-entropy with class weights is that without them.
#
# One would guess: an operator that takes a loss takes it whole, as curvlinops' GGN does, or refuses what it does not know, as
# BackPACK does with weights.
# What happens: KFAC and EKFAC of type-2 build their own square root of the loss's Hessian from its class and its reduction, and
# forget weight and pos_weight, without a word. For one row and one linear layer KFAC is exact, and equals the GGN of the loss
# without weights. The empirical one is right, as it takes the loss's own gradients.
# Why it matters: weights are there for clients with few rows of a class. A preconditioner, elastic weights or a Laplace
# approximation by KFAC is then of another loss than the one that is trained, and its blocks look as healthy as before.
# Seen with curvlinops-for-pytorch 3.0.1, torch 2.13.0, in float64; one row and one linear layer, where GGN and KFAC are the
# Hessian in the weights, and the empirical one is the gradient's product: what stands at the end.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/pip" install -q torch==2.13.0 curvlinops-for-pytorch==3.0.1
"$place/env/bin/python" -W ignore - <<'PY' | tee "$place/seen"
import torch
from curvlinops import EKFACLinearOperator, GGNLinearOperator, KFACLinearOperator
from torch import nn

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
weights = torch.tensor([1.0, 5.0, 0.2])
x, binary, label = torch.randn(1, 3), torch.tensor([[1.0, 1.0, 0.0]]), torch.tensor([1])
net = nn.Linear(3, 3, bias=False)
operators = {
    "GGN": (GGNLinearOperator, {}),
    "KFAC": (KFACLinearOperator, {"fisher_type": "type-2"}),
    "EKFAC": (EKFACLinearOperator, {"fisher_type": "type-2"}),
    "empirical KFAC": (KFACLinearOperator, {"fisher_type": "empirical"}),
}


def exact(name, loss, y):
    def risk(w):
        return loss(x @ w.view(3, 3).T, y)

    w = net.weight.detach().flatten()
    g = torch.func.grad(risk)(w)
    return g.outer(g) if name.startswith("empirical") else torch.func.hessian(risk)(w)


for make, options, y in (
    (nn.BCEWithLogitsLoss, {}, binary),
    (nn.BCEWithLogitsLoss, {"weight": weights}, binary),
    (nn.BCEWithLogitsLoss, {"pos_weight": weights}, binary),
    (nn.CrossEntropyLoss, {}, label),
    (nn.CrossEntropyLoss, {"weight": weights}, label),
):
    loss, told = make(reduction="sum", **options), []
    for name, (operator, kind) in operators.items():
        matrix = operator(net, loss, list(net.parameters()), [(x, y)], **kind) @ torch.eye(9)
        right, plain = ((matrix - exact(name, f, y)).abs().max() < 1e-12 for f in (loss, make(reduction="sum")))
        told.append(f"{name} {'right' if right else 'without it' if plain else 'neither'}")
    print(" ".join([make.__name__, *options]), ", ".join(told), sep=": ")
PY
diff "$place/seen" - <<'SEEN'
BCEWithLogitsLoss: GGN right, KFAC right, EKFAC right, empirical KFAC right
BCEWithLogitsLoss weight: GGN right, KFAC without it, EKFAC without it, empirical KFAC right
BCEWithLogitsLoss pos_weight: GGN right, KFAC without it, EKFAC without it, empirical KFAC right
CrossEntropyLoss: GGN right, KFAC right, EKFAC right, empirical KFAC right
CrossEntropyLoss weight: GGN right, KFAC without it, EKFAC without it, empirical KFAC right
SEEN
