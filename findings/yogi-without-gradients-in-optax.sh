#!/usr/bin/env bash
# optax.yogi moves a model whose gradient has been zero from the first step.
#
# One would guess: an optimiser without weight decay and noise does not move as long as all gradients are zero, and
# initial_accumulator_value is where Yogi's second moment begins, as it is in optax.adagrad.
# What happens: the first moment begins at the same 1e-6. Bias correction makes 9e-6 of it; every coordinate moves, all
# in the same direction, and most of the way is covered in the first fifty steps.
# Why it matters: FedYogi by optax.yogi moves the global model in rounds in which no client moved, and agrees with no
# implementation that begins with m = 0, as the paper's algorithm does, to more than a few digits.
# Seen with optax 0.2.8, jax 0.10.2, in float64, at rate 1:
#   yogi: the first step moves both coordinates by -0.000276, 500 steps by -0.001573
#   adagrad: the first step moves both coordinates by 0.000000, 500 steps by 0.000000
#   adam: the first step moves both coordinates by 0.000000, 500 steps by 0.000000
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/pip" install -q optax==0.2.8 jax==0.10.2
JAX_ENABLE_X64=1 "$place/env/bin/python" - <<'PY' | tee "$place/seen"
import jax.numpy as jnp
import optax

for make in (optax.yogi, optax.adagrad, optax.adam):
    start = w = jnp.array([1.0, -1.0])
    optimiser = make(1.0)
    state, moved = optimiser.init(w), []
    for _ in range(500):
        updates, state = optimiser.update(jnp.zeros(2), state, w)
        w = optax.apply_updates(w, updates)
        moved.append(w - start)
    assert all(abs(a - b) < 1e-12 for a, b in moved)
    first, last = (abs(float(x[0])) * (-1 if x[0] < 0 else 1) for x in (moved[0], moved[-1]))
    print(f"{make.__name__}: the first step moves both coordinates by {first:.6f}, 500 steps by {last:.6f}")
PY
diff "$place/seen" - <<'SEEN'
yogi: the first step moves both coordinates by -0.000276, 500 steps by -0.001573
adagrad: the first step moves both coordinates by 0.000000, 500 steps by 0.000000
adam: the first step moves both coordinates by 0.000000, 500 steps by 0.000000
SEEN
