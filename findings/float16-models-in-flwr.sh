#!/usr/bin/env bash
# flwr's FedAvg in float16: the option that says where the mean is taken decides whether it is a number.
#
# One would guess: FedAvg(inplace=True) and FedAvg(inplace=False) are the same mean, one with less memory; and the mean of
# two equal models is that model, in whatever precision clients send it.
# What happens: without `inplace` each model is first multiplied by its number of examples, in its own dtype. Float16 ends
# at 65 504, so that 1.5 times 60 000 rows is infinite, and the mean NaN, without an error. In float32 it is right, and with
# `inplace`, which multiplies by fractions, too. With 400 rows each and a weight of 100 the products fit and their sum does
# not: it is infinite.
# Why it matters: half precision halves the traffic, and is what quantised clients send. flwr's strategies that call
# `aggregate` by themselves have no such option.
# Seen with flwr 1.42.0, NumPy 2.4.6: what stands at the end.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/pip" install -q flwr==1.42.0 numpy==2.4.6
"$place/env/bin/python" -W ignore - <<'PY' | tee "$place/seen"
import numpy as np
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.strategy import FedAvg


def mean(inplace, dtype, weight, rows):
    model = ndarrays_to_parameters([np.full(1, weight, dtype)])
    reply = FitRes(Status(Code.OK, ""), model, rows, {})
    parameters, _ = FedAvg(inplace=inplace).aggregate_fit(1, [(None, reply), (None, reply)], [])
    (array,) = parameters_to_ndarrays(parameters)
    return f"{array.dtype} {array[0]:.4g}"


for dtype in (np.float32, np.float16):
    for weight, rows in ((1.5, 60_000), (0.1, 400), (100.0, 400)):
        one, other = (mean(inplace, dtype, weight, rows) for inplace in (True, False))
        print(f"two clients, {rows} rows, weight {weight}: inplace {one}, not inplace {other}")
PY
diff "$place/seen" - <<'SEEN'
two clients, 60000 rows, weight 1.5: inplace float32 1.5, not inplace float32 1.5
two clients, 400 rows, weight 0.1: inplace float32 0.1, not inplace float32 0.1
two clients, 400 rows, weight 100.0: inplace float32 100, not inplace float32 100
two clients, 60000 rows, weight 1.5: inplace float16 1.5, not inplace float16 nan
two clients, 400 rows, weight 0.1: inplace float16 0.09998, not inplace float16 0.09998
two clients, 400 rows, weight 100.0: inplace float16 100, not inplace float16 inf
SEEN
