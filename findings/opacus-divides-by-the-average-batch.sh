#!/usr/bin/env bash
# Opacus's optimiser with loss_reduction="mean" takes no mean over a batch: it divides by the average batch, rounded.
#
# One would guess: without noise, without clipping and without Poisson sampling a step of the private optimiser is a
# step of SGD, and loss_reduction="mean" says that the loss is the mean over the batch, whatever its size.
# What happens: the sum of the samples' gradients is divided by expected_batch_size, one number for all batches: the
# rows times 1/len(data_loader), rounded down. Ten rows in batches of 9 and 1 make it 5: the first step is 1.8 times as
# far as SGD's, the second .2 times.
# Why it matters: clients of federated learning have few rows, so that short last batches are common; a client with
# B + 1 rows is off by nearly a factor of 2. Set optimizer.expected_batch_size to the rows of each batch before its step.
# Seen with Opacus 1.6.0, torch 2.13.0:
#   expected_batch_size 5
#   9 rows: 1.8 times the step of SGD
#   1 rows: 0.2 times the step of SGD
#   9 rows, expected_batch_size set: 1.0 times the step of SGD
#   1 rows, expected_batch_size set: 1.0 times the step of SGD
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/pip" install -q torch==2.13.0 opacus==1.6.0 numpy
"$place/env/bin/python" -W ignore - <<'PY' | tee "$place/seen"
import torch
from opacus import PrivacyEngine
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
X, y = torch.randn(10, 3), torch.randint(0, 2, (10,))


def flat(xs):
    return torch.cat([x.detach().ravel() for x in xs])


def steps(set_size):
    net = torch.nn.Linear(3, 2)
    net, optimiser, loader = PrivacyEngine().make_private(
        module=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
        data_loader=DataLoader(TensorDataset(X, y), batch_size=9), noise_multiplier=0.0,
        max_grad_norm=1e9, poisson_sampling=False, loss_reduction="mean",
    )
    if not set_size:
        print("expected_batch_size", optimiser.expected_batch_size)
    for X_b, y_b in loader:
        before = [p.detach().clone().requires_grad_() for p in net.parameters()]
        g = flat(torch.autograd.grad(cross_entropy(X_b @ before[0].T + before[1], y_b), before))
        if set_size:
            optimiser.expected_batch_size = len(y_b)
        optimiser.zero_grad()
        cross_entropy(net(X_b), y_b).backward()
        optimiser.step()
        times = (flat(before) - flat(net.parameters())) @ g / (0.1 * g @ g)
        said = ", expected_batch_size set" * set_size
        print(f"{len(y_b)} rows{said}: {float(times):.1f} times the step of SGD")


steps(False)
steps(True)
PY
diff "$place/seen" - <<'SEEN'
expected_batch_size 5
9 rows: 1.8 times the step of SGD
1 rows: 0.2 times the step of SGD
9 rows, expected_batch_size set: 1.0 times the step of SGD
1 rows, expected_batch_size set: 1.0 times the step of SGD
SEEN
