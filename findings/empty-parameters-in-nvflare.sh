#!/usr/bin/env bash
# A torch Parameter that NVFlare sends arrives with no entries.
#
# One would guess: dict(net.named_parameters()) is sent as net.state_dict() is: a Parameter is a Tensor, for which NVFlare has
# registered how it is sent. Else it is refused, as FOBS refuses complex, frozenset and other types that it does not know.
# What happens: FOBS looks for the exact type, finds none for Parameter, takes it for a class of plain attributes, and sends
# these: there are none. On the other side Parameter() is made, of shape (0,). Names, type and dtype are right, nothing is said.
# Why it matters: named_parameters() is how one leaves BatchNorm's statistics, or a personal head, out of what is sent. The
# means of empty tensors are empty tensors; the first error is the one of the model that loads them, a round later and elsewhere.
# Send p.detach().
# Seen with nvflare 2.9.0, torch 2.13.0: what stands at the end.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/pip" install -q torch==2.13.0 nvflare==2.9.0
"$place/env/bin/python" -W ignore - <<'PY' | tee "$place/seen"
import torch
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.app_opt.pt.decomposers import TensorDecomposer
from nvflare.fuel.utils import fobs

fobs.register(TensorDecomposer)
net = torch.nn.Linear(2, 1)
for name, sent in (
    ("state_dict", net.state_dict()),
    ("named_parameters", dict(net.named_parameters())),
    ("named_parameters, detached", {name: p.detach() for name, p in net.named_parameters()}),
):
    message = fobs.dumps(FLModelUtils.to_shareable(FLModel(params=sent)))
    got = FLModelUtils.from_shareable(fobs.loads(message)).params
    print(f"{name}:", ", ".join(f"{key} {type(x).__name__} {list(x.shape)}" for key, x in got.items()))
PY
diff "$place/seen" - <<'SEEN'
state_dict: weight Tensor [1, 2], bias Tensor [1]
named_parameters: weight Parameter [0], bias Parameter [0]
named_parameters, detached: weight Tensor [1, 2], bias Tensor [1]
SEEN
