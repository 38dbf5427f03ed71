#!/usr/bin/env bash
# optax's fisher_diag is the square of one gradient: at the maximum of the likelihood the Fisher information is zero.
#
# One would guess: "the diagonal of the (observed) Fisher information matrix" of a batch is the mean, or the sum, of the squares
# of the rows' gradients, and not far from hessian_diag of the same function where the model fits.
# What happens: the gradient of the given function is squared once. For a mean over rows that is the square of the mean gradient,
# which vanishes where the model has been fitted, whatever the rows say. For one row it is right; for a sum over n rows it is n²
# times as large as for the mean.
# Why it matters: elastic weights (EWC, FedCurv) are this diagonal where a client has just been trained, and are then zero: the
# penalty does nothing. Map it over single rows, and take the mean.
# Seen with optax 0.2.8 (which calls the function deprecated), jax 0.10.2, in float64; a coin's logit at its maximum, 3 of 4 heads,
# where the information of a throw is 3/16: what stands at the end.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/pip" install -q optax==0.2.8 jax==0.10.2
JAX_ENABLE_X64=1 "$place/env/bin/python" -W ignore - <<'PY' | tee "$place/seen"
import jax
import jax.numpy as jnp
import optax
from optax.second_order import fisher_diag, hessian_diag

y = jnp.array([1.0, 1.0, 1.0, 0.0])
x = jnp.ones(4)


def risk(w, x, y):
    return optax.sigmoid_binary_cross_entropy(w[0] * x, y).mean()


for name, logit in (("at the maximum", jnp.log(3.0)), ("at 0", 0.0)):
    w = jnp.array([logit])
    rows = jax.vmap(lambda x, y, w=w: fisher_diag(risk, w, x, y))(x, y).mean()
    print(f"{name}: fisher_diag {fisher_diag(risk, w, x, y)[0]:.4f}, its mean over single rows {rows:.4f},", end=" ")
    print(f"hessian_diag {hessian_diag(risk, w, x, y)[0]:.4f}")
PY
diff "$place/seen" - <<'SEEN'
at the maximum: fisher_diag 0.0000, its mean over single rows 0.1875, hessian_diag 0.1875
at 0: fisher_diag 0.0625, its mean over single rows 0.2500, hessian_diag 0.2500
SEEN
