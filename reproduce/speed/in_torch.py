"""A round in PyTorch: `torch-eager` a client after the other, `torch-vmap` all of them at once."""

from collections.abc import Callable
from typing import Any

import torch
from dense import dense
from torch.func import grad, jvp, vmap
from torch.nn import functional as F

from fedref.models import CNN, LinearSVM


def prepare(how: str, dtype: str, cores: int, name: str) -> Callable[[], Any]:
    torch.set_num_threads(cores)
    d = dense(name, dtype)
    a, loss = d.algorithm, loss_of(d.model)
    X, y, w0, share = map(torch.from_numpy, (d.X, d.y, d.w, d.share))
    R = {role: torch.from_numpy(rows.astype("int64")) for role, rows in d.rows.items()}
    S = {role: torch.from_numpy(s) for role, s in d.weights.items()}
    K, start = len(d.share), torch.cat([w0, torch.full_like(w0, getattr(a, "alpha", 0.0))])
    full = {role: s.bool().all(-1) for role, s in S.items()}

    def combine(ends: Any) -> Any:
        mean = share @ ends
        return start - a.beta * mean if "S" in R else mean

    def slope(w: Any, D: Any, keep: bool = False) -> Any:
        w = w if w.requires_grad else w.detach().requires_grad_()
        return torch.autograd.grad(loss(w, *D), w, create_graph=keep)[0]

    def eager_step(w: Any, Ds: list[Any]) -> Any:
        if len(Ds) == 1:
            return w - a.lr * slope(w, Ds[0])
        u = slope(w - a.alpha * slope(w, Ds[0]), Ds[1])
        v = w.detach().requires_grad_()
        hvp = torch.autograd.grad(slope(v, Ds[2], keep=True) @ u, v)[0]
        return w - a.beta * (u - a.alpha * hvp)

    def eager() -> Any:
        ends = []
        for k in range(K):
            if "S" in R:
                D, Q = ((X[k][R[r][k, 0][S[r][k, 0] > 0]], y[k][R[r][k, 0][S[r][k, 0] > 0]], None)
                        for r in ("S", "Q"))  # fmt: skip
                theta, alpha = (x.clone().requires_grad_() for x in start.chunk(2))
                f = loss(theta - alpha * slope(theta, D, keep=True), *Q)
                ends.append(torch.cat(torch.autograd.grad(f, (theta, alpha))))
                continue
            w = w0
            for t in range(int(d.steps[k])):
                w = eager_step(w, [batch(k, r, t) for r in R])
            ends.append(w)
        return combine(torch.stack(ends))

    def batch(k: int, role: str, t: int) -> Any:
        rows = R[role][k, t]
        if not full[role][k, t]:
            rows = rows[S[role][k, t] > 0]
        return X[k][rows], y[k][rows], None

    g = grad(loss)

    def step(w: Any, Ds: Any, on: Any) -> Any:
        if len(Ds) == 1:
            return w - on * a.lr * g(w, *Ds[0])
        D, D1, D2 = Ds
        u = g(w - a.alpha * g(w, *D), *D1)
        return w - on * a.beta * (u - a.alpha * jvp(lambda w: g(w, *D2), (w,), (u,))[1])

    def episode(theta: Any, alpha: Any, D: Any, Q: Any) -> Any:
        return loss(theta - alpha * g(theta, *D), *Q)

    all_clients = torch.arange(K)[:, None]

    def run_together() -> Any:
        def batches_at(r: str, t: int) -> Any:
            return X[all_clients, R[r][:, t]], y[all_clients, R[r][:, t]], S[r][:, t]

        if "S" in R:
            theta, alpha = (x.expand(K, -1) for x in start.chunk(2))
            both = vmap(grad(episode, (0, 1)))(theta, alpha, batches_at("S", 0), batches_at("Q", 0))
            return combine(torch.cat(both, 1))
        w = w0.expand(K, -1)
        steps = torch.from_numpy(d.steps)
        for t in range(int(d.steps.max())):
            w = vmap(step)(w, [batches_at(r, t) for r in R], (steps > t).to(w.dtype))
        return combine(w)

    return eager if how == "torch-eager" else run_together


def loss_of(model: Any) -> Callable[..., Any]:
    """f(w, X, y, s) with fedref's layout; s None: equal weights."""
    sizes = [torch.Size(shape).numel() for shape in model.shapes]

    def logits(w: Any, X: Any) -> Any:
        views = [v.view(shape) for v, shape in zip(w.split(sizes), model.shapes)]
        layers = list(zip(views[::2], views[1::2]))
        if isinstance(model, CNN):
            H, W, c = model.pixels
            X = X.view(-1, H, W, c).permute(0, 3, 1, 2)
            for kernel, b in layers[:-2]:
                X = F.relu(F.max_pool2d(F.conv2d(X, kernel.permute(3, 2, 0, 1), b), 2))
            X = X.permute(0, 2, 3, 1).flatten(1)
            (W1, b1), (W2, b2) = layers[-2:]
            return F.relu(X @ W1 + b1) @ W2 + b2
        for W, b in layers[:-1]:
            X = F.elu(X @ W + b)
        W, b = layers[-1]
        return X @ W + b

    def loss(w: Any, X: Any, y: Any, s: Any) -> Any:
        z = logits(w, X)
        if isinstance(model, LinearSVM):
            each = torch.clamp(1 - y * z[:, 0], min=0)
        else:
            each = F.cross_entropy(z, y, reduction="none")
        mean = each.mean() if s is None else (s * each).sum() / torch.clamp(s.sum(), min=1)
        return mean + model.l2 / 2 * (w @ w) if model.l2 else mean

    return loss
