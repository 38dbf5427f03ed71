#!/usr/bin/env bash
# safetensors 0.8 saves a NumPy array in Fortran's order as another array.
#
# One would guess: save keeps the values of an array whatever the order in which they lie in memory, as np.save, pickle and
# safetensors 0.7 do, or refuses it, as safetensors.torch does with a tensor that is not contiguous. "Contiguous and dense",
# which the documentation asks for, such an array is.
# What happens: since 0.8.0 the bytes are taken as they lie, with the array's shape, and read back row by row. The shape, the
# sum and the norm are right; every entry but the first and the last may stand elsewhere.
# Why it matters: X.T, np.asfortranarray and what scipy.linalg's qr, svd and eigh return are in this order. A weight matrix that
# was transposed between two frameworks is the usual one. np.ascontiguousarray before save is enough.
# Seen with safetensors 0.7.0 and 0.8.0, NumPy 2.4.6: what stands at the end.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/pip" install -q numpy==2.4.6
for version in 0.7.0 0.8.0; do
    "$place/env/bin/pip" install -q --no-deps --upgrade "safetensors==$version"
    "$place/env/bin/python" - <<'PY' | tee -a "$place/seen"
import numpy as np
import safetensors
from safetensors.numpy import load, save

rows = np.arange(6.0).reshape(2, 3)
for name, sent in (("C's order", rows), ("Fortran's order", np.asfortranarray(rows))):
    print(f"{safetensors.__version__}, {name}: {sent.tolist()} comes back as {load(save({'w': sent}))['w'].tolist()}")
PY
done
diff "$place/seen" - <<'SEEN'
0.7.0, C's order: [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]] comes back as [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
0.7.0, Fortran's order: [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]] comes back as [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
0.8.0, C's order: [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]] comes back as [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
0.8.0, Fortran's order: [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]] comes back as [[0.0, 3.0, 1.0], [4.0, 2.0, 5.0]]
SEEN
