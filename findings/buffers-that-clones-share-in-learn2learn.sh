#!/usr/bin/env bash
# learn2learn's clones, and torch.func.functional_call with a module's own buffers, share BatchNorm's statistics.
#
# One would guess: a clone is a copy ("parameters/buffers/submodules are created using torch.clone()", its documentation
# says), and a functional call of a module leaves the module as it is. So the master's statistics stay what they were.
# What happens: clone_module copies a buffer only if it requires a gradient, which statistics do not; functional_call takes
# what it is not given from the module. The forward pass writes into these in place: the master and all other clones have
# them, at once. With buffers that are given, or deep-copied, they are the client's own.
# Why it matters: a clone is what a client, or a task of MAML, trains. Each is evaluated with the statistics of all that ran
# before it, in their order, and what one client evaluates depends on the others' rows.
# Seen with learn2learn 0.2.0 (its file utils/__init__.py alone: its extension of C does not build with Python 3.11), torch
# 2.13.0: what stands at the end. Client k's rows are all k; momentum 1: the statistics are those of the last batch.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/pip" install -q torch==2.13.0 numpy
"$place/env/bin/pip" download -q --no-deps --no-binary :all: -d "$place" learn2learn==0.2.0
tar xzf "$place/learn2learn-0.2.0.tar.gz" -C "$place" --strip-components=3 learn2learn-0.2.0/learn2learn/utils/__init__.py
mv "$place/__init__.py" "$place/learn2learn_utils.py"
PYTHONPATH="$place" "$place/env/bin/python" -W ignore - <<'PY' | tee "$place/seen"
from copy import deepcopy

import torch
from learn2learn_utils import clone_module
from torch.func import functional_call


def call_own(net, X):
    functional_call(net, dict(net.named_parameters()), X)
    return net


def call_copied(net, X):
    buffers = {name: x.clone() for name, x in net.named_buffers()}
    functional_call(net, {**dict(net.named_parameters()), **buffers}, X)
    return buffers


def run_copy(copy):
    def run(net, X):
        own = copy(net)
        own(X)
        return own

    return run


def statistic(holder):
    return (holder["running_mean"] if isinstance(holder, dict) else holder.running_mean).item()


for name, run in (
    ("clone_module", run_copy(clone_module)),
    ("functional_call, the module's own buffers", call_own),
    ("functional_call, buffers given", call_copied),
    ("deepcopy", run_copy(deepcopy)),
):
    net = torch.nn.BatchNorm1d(1, momentum=1.0)
    held = [run(net, torch.full((4, 1), float(k))) for k in (1, 2, 3)]
    print(f"{name}: the clients' means {[statistic(x) for x in held]}, the master's {statistic(net)}")
PY
diff "$place/seen" - <<'SEEN'
clone_module: the clients' means [3.0, 3.0, 3.0], the master's 3.0
functional_call, the module's own buffers: the clients' means [3.0, 3.0, 3.0], the master's 3.0
functional_call, buffers given: the clients' means [1.0, 2.0, 3.0], the master's 0.0
deepcopy: the clients' means [1.0, 2.0, 3.0], the master's 0.0
SEEN
