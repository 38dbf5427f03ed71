#!/usr/bin/env bash
# Within one torch.autocast region an optimiser's steps do not change what the network computes.
#
# One would guess: a region may hold the whole local loop of a client, as it may hold a forward pass; it says in which
# precision products are taken, and weights are those of the moment.
# What happens: the region keeps the rounded copy of each weight that it made first, until it ends. All steps take the
# gradient at the start: ten steps are one of ten times the rate, and the training loss that is printed stays where it was.
# Why it matters: a client's loop looks like one that does not learn, or diverges at rates that were right, and FedAvg of
# such clients is FedSGD with a large rate. A region a step, or cache_enabled=False, has the steps of SGD.
# Seen with torch 2.13.0 on the CPU, bfloat16, losses before each of five steps: what stands at the end.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/pip" install -q torch==2.13.0 numpy
"$place/env/bin/python" -W ignore - <<'PY' | tee "$place/seen"
from contextlib import nullcontext

import torch

X, y = torch.tensor([[2.0], [-2.0]]), torch.tensor([0, 1])


def losses(around_all, around_each):
    net = torch.nn.Linear(1, 2, bias=False)
    torch.nn.init.zeros_(net.weight)
    optimiser, seen = torch.optim.SGD(net.parameters(), lr=0.25), []
    with around_all():
        for _ in range(5):
            with around_each():
                loss = torch.nn.functional.cross_entropy(net(X).float(), y)
            seen.append(f"{loss.item():.2f}")
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return " ".join(seen), f"weight {net.weight[0].item():.2f}"


def region(**how):
    return lambda: torch.autocast("cpu", dtype=torch.bfloat16, **how)


print("one region:", *losses(region(), nullcontext))
print("one region, cache_enabled=False:", *losses(region(cache_enabled=False), nullcontext))
print("a region a step:", *losses(nullcontext, region()))
print("float32:", *losses(nullcontext, nullcontext))
PY
diff "$place/seen" - <<'SEEN'
one region: 0.69 0.69 0.69 0.69 0.69 weight 1.25
one region, cache_enabled=False: 0.69 0.31 0.19 0.14 0.11 weight 0.59
a region a step: 0.69 0.31 0.19 0.14 0.11 weight 0.59
float32: 0.69 0.31 0.19 0.14 0.11 weight 0.59
SEEN
