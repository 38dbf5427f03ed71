#!/usr/bin/env bash
# safetensors.numpy.load gives a model's tensors in another order in each process, load_file in the file's.
#
# One would guess: the same bytes give the same dictionary, in the order in which it was saved or in that of its names, and
# load(bytes) differs from load_file(path) in where it reads from alone.
# What happens: load takes the names from a hash table whose seed is drawn when the process starts. Each client and each run
# has its own order, with NumPy and with torch. load_file has the order of the file, here that of the names.
# Why it matters: bytes are what arrives over a network, and several frameworks pass a model on as the list of its arrays,
# list(load(bytes).values()). Layers of one shape then change places without an error, and differently on each client. Sort by
# name, or take the names from the receiving model.
# Seen with safetensors 0.8.0, NumPy 2.4.6 (0.5.3, 0.7.0 and safetensors.torch alike): 20 processes, 12 layers of one shape:
# what stands at the end.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/pip" install -q numpy==2.4.6 safetensors==0.8.0
cat > "$place/orders.py" <<'PY'
import sys

import numpy as np
from safetensors.numpy import load, load_file, save, save_file

names = [f"layer{k:02}.weight" for k in range(12)]
model = {name: np.zeros((2, 2), np.float32) for name in names}
save_file(model, sys.argv[1])
print("load", *load(save(model)))
print("load_file", *load_file(sys.argv[1]))
PY
for _ in $(seq 20); do PYTHONHASHSEED=0 "$place/env/bin/python" "$place/orders.py" "$place/model"; done > "$place/orders"
for call in load load_file; do
    different=$(grep "^$call " "$place/orders" | sort -u | wc -l)
    saved=$(grep "^$call " "$place/orders" | grep -c "$(echo layer{00..11}.weight)" || true)
    echo "$call: $( ((different > 10)) && echo "more than 10" || echo "$different") orders in 20 processes, the saved one in $saved"
done | tee "$place/seen"
diff "$place/seen" - <<'SEEN'
load: more than 10 orders in 20 processes, the saved one in 0
load_file: 1 orders in 20 processes, the saved one in 20
SEEN
