#!/usr/bin/env bash
# higher's copy of SGD(maximize=True) minimises.
#
# One would guess: the differentiable copy of an optimiser takes the steps of that optimiser, or refuses an option that it
# does not know.
# What happens: the copy has no `maximize`, and drops it without a word: where torch's optimiser climbs, it descends.
# Why it matters: minimax and ascent steps (of a dual variable, of a mixing weight, of an adversary) inside a loop that is
# differentiated go the wrong way, and the outer loss looks healthy. `weight_decay` and `momentum` are copied.
# Seen with higher 0.2.1, torch 2.13.0:
#   torch: the loss goes from 1.0 to 4.0
#   higher: the loss goes from 1.0 to 0.0
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/pip" install -q torch==2.13.0 higher==0.2.1 numpy
"$place/env/bin/python" -W ignore - <<'PY' | tee "$place/seen"
import higher
import torch

net = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.ones_(net.weight)
optimiser = torch.optim.SGD(net.parameters(), lr=0.5, maximize=True)
X = torch.ones(1, 1)


def loss(net):
    return net(X).square().sum()


with higher.innerloop_ctx(net, optimiser) as (copy, steps):
    before = loss(copy)
    steps.step(before)
    ends = {"higher": (before, loss(copy))}
before = loss(net)
before.backward()
optimiser.step()
ends["torch"] = before, loss(net)
for name in ("torch", "higher"):
    print("{}: the loss goes from {:.1f} to {:.1f}".format(name, *(x.item() for x in ends[name])))
PY
diff "$place/seen" - <<'SEEN'
torch: the loss goes from 1.0 to 4.0
higher: the loss goes from 1.0 to 0.0
SEEN
