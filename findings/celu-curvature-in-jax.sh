#!/usr/bin/env bash
# The curvature of JAX's CELU at 0 is a quarter.
#
# One would guess: CELU(x) = max(0, x) + min(0, e^x − 1) has the curvature 1 left of 0 and 0 right of it. At 0 a
# library takes one of the two, as torch does (0) and JAX's own ELU (1), or their mean, 0.5.
# What happens: jax.nn.celu is written as maximum(x, 0) + expm1(minimum(x, 0)). At the tie minimum has the slope 0.5,
# and the second derivative has it squared: 0.5 · 0.5 · e^0 = 0.25. The first derivative, 0.5 + 0.5 = 1, is right.
# Why it matters: activations are exactly 0 after zero initial values, padding, or another ReLU. A Hessian-vector
# product there is then none of the one-sided ones and not their mean, and two libraries that agree in every
# gradient differ in Per-FedAvg and MAML.
# Seen with jax 0.10.2 (and 0.12.0.1), in float64:
#   celu: slope 1.0, curvature 0.25
#   elu: slope 1.0, curvature 1.0
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/pip" install -q jax==0.10.2
JAX_ENABLE_X64=1 "$place/env/bin/python" - <<'PY' | tee "$place/seen"
import jax

for f in (jax.nn.celu, jax.nn.elu):
    slope = jax.grad(f)
    print(f"{f.__name__}: slope {slope(0.0)}, curvature {jax.grad(slope)(0.0)}")
PY
diff "$place/seen" - <<'SEEN'
celu: slope 1.0, curvature 0.25
elu: slope 1.0, curvature 1.0
SEEN
