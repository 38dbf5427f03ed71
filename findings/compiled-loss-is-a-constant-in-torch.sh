#!/usr/bin/env bash
# A gradient of a loss that torch.compile made may count as a constant, without an error or a warning.
#
# One would guess: torch.autograd.grad(compiled(w), w, create_graph=True) can be differentiated again, or raises: the
# compiler's backward has no second derivative, and torch has an error that says so.
# What happens: it depends on what the compiled backward has kept. For cross-entropy of a linear model it keeps none of
# its inputs that need a gradient: the gradient comes without a graph, and MAML is first-order MAML to the last bit,
# whether the outer loss is compiled or not. With an L2 term, which keeps w, and with .backward() on the outer loss, the
# error is raised. torch.func.grad of the whole, compiled at once, is right.
# Why it matters: who looks for the missing create_graph=True of a meta-gradient finds it there. The results differ
# by some per cent, and nothing else tells.
# Seen with torch 2.13.0 on the CPU, in float64, backend aot_eager (inductor does the same):
#   plain loss, outer grad, inner compiled: first order
#   plain loss, outer grad, outer compiled: right
#   plain loss, outer grad, both compiled: first order
#   plain loss, outer backward, inner compiled: RuntimeError
#   with L2, outer grad, inner compiled: RuntimeError
#   the whole compiled: right
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/pip" install -q torch==2.13.0 numpy
"$place/env/bin/python" -W ignore - <<'PY' | tee "$place/seen"
import torch
from torch.nn.functional import cross_entropy

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
w, X, y = torch.randn(9) / 2, torch.randn(6, 2), torch.tensor([0, 1, 2, 1, 0, 2])


def plain(w):
    return cross_entropy(X @ w[:6].view(2, 3) + w[6:], y)


def with_l2(w):
    return plain(w) + 0.05 * (w @ w)


def maml(inner, outer, how="grad", create_graph=True):
    theta = w.clone().requires_grad_()
    (g,) = torch.autograd.grad(inner(theta), theta, create_graph=create_graph)
    after = outer(theta - 0.4 * g)
    if how == "grad":
        return torch.autograd.grad(after, theta)[0]
    after.backward()
    return theta.grad


def tell(f, which, how):
    torch._dynamo.reset()
    made = torch.compile(f, backend="aot_eager")
    try:
        got = maml(made if which != "outer" else f, made if which != "inner" else f, how)
    except RuntimeError as error:
        return type(error).__name__
    if torch.equal(got, maml(f, f, create_graph=False)):
        return "first order"
    return "right" if torch.allclose(got, maml(f, f), rtol=1e-12) else "neither"


for which in ("inner", "outer", "both"):
    print(f"plain loss, outer grad, {which} compiled: {tell(plain, which, 'grad')}")
print(f"plain loss, outer backward, inner compiled: {tell(plain, 'inner', 'backward')}")
print(f"with L2, outer grad, inner compiled: {tell(with_l2, 'inner', 'grad')}")
torch._dynamo.reset()
whole = torch.func.grad(lambda w: plain(w - 0.4 * torch.func.grad(plain)(w)))
right = torch.allclose(torch.compile(whole, backend="aot_eager")(w), maml(plain, plain), rtol=1e-12)
print(f"the whole compiled: {'right' if right else 'wrong'}")
PY
diff "$place/seen" - <<'SEEN'
plain loss, outer grad, inner compiled: first order
plain loss, outer grad, outer compiled: right
plain loss, outer grad, both compiled: first order
plain loss, outer backward, inner compiled: RuntimeError
with L2, outer grad, inner compiled: RuntimeError
the whole compiled: right
SEEN
