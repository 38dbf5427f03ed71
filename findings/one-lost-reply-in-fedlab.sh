#!/usr/bin/env bash
# SCAFFOLD in FedLab never recovers from one reply that the server did not get.
#
# One would guess: a lost reply costs a round. Both clients go on, and the model comes to rest at the minimum of the mean
# loss, as SCAFFOLD does where nothing is lost.
# What happens: the client has renewed its c_i before it sends; the server's c moves by the changes that arrive. So c is no
# longer the mean of the c_i, by a difference that no later round takes away: clients are corrected by it for good. The model
# comes to rest where the mean gradient is this difference, while c goes to 0, which looks like convergence.
# Why it matters: time-outs are the normal case of federated learning, and any server that takes what has come in is
# concerned; nothing in FedLab's handlers rolls a client's c_i back. Commit c_i when the server says that it counted.
# Seen with FedLab 1.3.0, torch 2.13.0, in float64, from 0: losses ½(w + 1)² and (3/2)(w − 2)², minimum of the mean 1.25; five
# local steps of 0.05; after 400 rounds what stands at the end.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/pip" install -q torch==2.13.0 numpy pandas scikit-learn pynvml tqdm munch pillow
"$place/env/bin/pip" install -q --no-deps fedlab==1.3.0
"$place/env/bin/python" -W ignore - <<'PY' | tee "$place/seen"
import sys
from types import SimpleNamespace
from unittest.mock import MagicMock

import torch

sys.modules["torchvision"] = MagicMock()  # for FedLab's image data alone
from fedlab.contrib.algorithm.scaffold import ScaffoldSerialClientTrainer, ScaffoldServerHandler

torch.set_default_dtype(torch.float64)
CURVATURES, MINIMA = torch.tensor([1.0, 3.0]), torch.tensor([-1.0, 2.0])


def rows_of_client(k, size):
    x = CURVATURES[k].sqrt().view(1, 1)
    return [(x, x * MINIMA[k])]


def run(lost):
    net = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(net.weight)
    server, clients = ScaffoldServerHandler(net, 400, 1.0), ScaffoldSerialClientTrainer(net, 2)
    server.num_clients = 2
    server.setup_optim(1.0)
    clients.setup_dataset(SimpleNamespace(get_dataloader=rows_of_client))
    clients.setup_optim(5, 1, 0.05)
    clients.criterion = lambda output, y: ((output - y) ** 2).mean() / 2
    for t in range(400):
        clients.local_process(server.downlink_package, [0, 1])
        server.global_update(clients.uplink_package[lost == t + 1 :])
        clients.cache = []
    w, c = server.model_parameters.item(), server.global_c.item()
    gradient = (CURVATURES * (w - MINIMA)).mean().item()
    difference = c - torch.cat(clients.cs).mean().item()
    print(f"w {w:.4f}, |mean gradient| {abs(gradient):.4f}, |c − mean c_i| {abs(difference):.4f}, |c| {abs(c):.4f}")


for lost in (None, 4):
    print("all replies:" if lost is None else "the first's reply of round 4 is lost:", end=" ")
    run(lost)
PY
diff "$place/seen" - <<'SEEN'
all replies: w 1.2500, |mean gradient| 0.0000, |c − mean c_i| 0.0000, |c| 0.0000
the first's reply of round 4 is lost: w 1.2912, |mean gradient| 0.0823, |c − mean c_i| 0.0823, |c| 0.0000
SEEN
