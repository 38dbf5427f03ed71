"""A round in PyTorch, parameters a list of tensors.

`torch-eager` runs a client after the other; `torch-compile` compiles a step, where it can one of
all clients at once by `torch.func`.
"""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch.func import grad, jvp, vmap
from torch.nn import functional as F

from fedref.models import CNN, LinearSVM
from reproduce.speed.dense import dense

Tree = list[Any]


def prepare(how: str, dtype: str, name: str) -> Callable[[], Any]:
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.compiler.reset()  # what it compiled for another workload
    d = dense(name, dtype)
    a, loss = d.algorithm, loss_of(d.model)
    X, y, share, *w0 = map(torch.from_numpy, (d.X, d.y, d.share, *d.w))
    R = {role: torch.from_numpy(rows.astype("int64")) for role, rows in d.rows.items()}
    # (K, S, W) weights that sum to 1, for a role that has a batch with fewer rows than the others
    P = {role: None if p is None else torch.from_numpy(p) for role, p in d.weights.items()}
    K, episodes = len(d.share), "S" in d.rows

    def combine(ends: list[Tree]) -> Tree:
        """Σ_k p_k of each parameter; for Meta-SGD a step along it, in θ and in α."""
        mean = [torch.tensordot(share, torch.stack(x), 1) for x in zip(*ends)]
        return meta_step(mean) if episodes else mean

    def meta_step(mean: Tree) -> Tree:
        start = [*w0, *(torch.full_like(x, a.alpha) for x in w0)]
        return torch._foreach_add(start, mean, alpha=-a.beta)

    # a client after the other

    def slope(w: Tree, D: Any, keep: bool = False) -> Tree:
        w = [x if x.requires_grad else x.detach().requires_grad_() for x in w]
        return list(torch.autograd.grad(loss(w, *D), w, create_graph=keep))

    def step(w: Tree, Ds: list[Any]) -> Tree:
        if len(Ds) == 1:
            return torch._foreach_add(w, slope(w, Ds[0]), alpha=-a.lr)
        D, D1, D2 = Ds
        u = slope(torch._foreach_add(w, slope(w, D), alpha=-a.alpha), D1)
        v = [x.detach().requires_grad_() for x in w]
        hvp = torch.autograd.grad(slope(v, D2, keep=True), v, u)
        g = torch._foreach_add(u, list(hvp), alpha=-a.alpha)
        return torch._foreach_add(w, g, alpha=-a.beta)

    def real_rows(k: int, role: str, t: int) -> Any:
        rows, p = R[role][k, t], P[role]
        return rows if p is None else rows[p[k, t] > 0]

    most = next(iter(R.values())).shape[1]
    real = {role: [[real_rows(k, role, t) for t in range(most)] for k in range(K)] for role in R}

    def batch(k: int, role: str, t: int) -> Any:
        rows = real[role][k][t]
        return X[k][rows], y[k][rows], None

    def episode(S: Any, Q: Any) -> Tree:
        theta = [x.clone().requires_grad_() for x in w0]
        alpha = [torch.full_like(x, a.alpha).requires_grad_() for x in w0]
        g = torch.autograd.grad(loss(theta, *S), theta, create_graph=True)
        adapted = [x - rate * slope for x, rate, slope in zip(theta, alpha, g)]
        return list(torch.autograd.grad(loss(adapted, *Q), [*theta, *alpha]))

    def one_by_one() -> Tree:
        if episodes:
            return combine([take_episode(batch(k, "S", 0), batch(k, "Q", 0)) for k in range(K)])
        ends = []
        for k in range(K):
            w = w0
            for t in range(int(d.steps[k])):
                w = take_step(w, [batch(k, role, t) for role in R])
            ends.append(w)
        return combine(ends)

    # compiled: all clients at once

    g, everyone = grad(loss), torch.arange(K)[:, None]

    def gather(role: str, t: int) -> Any:
        p = P[role]
        rows = R[role][:, t]
        return X[everyone, rows], y[everyone, rows], None if p is None else p[:, t]

    def move(w: Tree, Ds: Any, on: Any) -> Tree:
        if len(Ds) == 1:
            return [x - on * a.lr * s for x, s in zip(w, g(w, *Ds[0]))]
        D, D1, D2 = Ds
        u = g([x - a.alpha * s for x, s in zip(w, g(w, *D))], *D1)
        hvp = jvp(lambda w: g(w, *D2), (w,), (u,))[1]
        return [x - on * a.beta * (s - a.alpha * h) for x, s, h in zip(w, u, hvp)]

    def run_together() -> Tree:
        w, steps = [x.expand(K, *x.shape) for x in w0], torch.from_numpy(d.steps)
        for t in range(int(d.steps.max())):
            w = moved(w, [gather(role, t) for role in R], (steps > t).to(share.dtype))
        return [torch.tensordot(share, x, 1) for x in w]

    # compiled: a client after the other

    def meta(theta: Tree, alpha: Tree, S: Any, Q: Any) -> Any:
        return loss([x - b * s for x, b, s in zip(theta, alpha, g(theta, *S))], *Q)

    take_step, take_episode = step, episode
    if how == "torch-eager":
        return one_by_one
    if len(R) == 1 and not isinstance(d.model, CNN):  # it cannot compile a jvp inside a vmap
        batches = [(0, 0, None if P[role] is None else 0) for role in R]
        moved = torch.compile(vmap(move, (0, batches, 0)), dynamic=False)
        return run_together
    # the compiler takes gradients by torch.func only
    compiled, both = torch.compile(move), torch.compile(grad(meta, (0, 1)))
    whole = torch.ones((), dtype=share.dtype)

    def compiled_step(w: Tree, Ds: list[Any]) -> Tree:
        return compiled(w, Ds, whole)

    def compiled_episode(S: Any, Q: Any) -> Tree:
        g_theta, g_alpha = both(w0, [torch.full_like(x, a.alpha) for x in w0], S, Q)
        return [*g_theta, *g_alpha]

    take_step, take_episode = compiled_step, compiled_episode
    return one_by_one


def loss_of(model: Any) -> Callable[..., Any]:
    """f(w, X, y, p): w a list of weights and biases; p of the rows, which sum to 1, or None."""

    def scores(w: Tree, X: Any) -> Any:
        layers = list(zip(w[::2], w[1::2]))
        if isinstance(model, CNN):
            H, W, c = model.pixels
            X = X.view(-1, H, W, c).permute(0, 3, 1, 2)
            for kernel, b in layers[:-2]:
                X = F.relu(F.max_pool2d(F.conv2d(X, kernel.permute(3, 2, 0, 1), b), 2))
            X = X.permute(0, 2, 3, 1).flatten(1)
            (W1, b1), (W2, b2) = layers[-2:]
            return F.linear(F.relu(F.linear(X, W1.T, b1)), W2.T, b2)
        for W, b in layers[:-1]:
            X = F.elu(F.linear(X, W.T, b))
        W, b = layers[-1]
        return F.linear(X, W.T, b)

    def loss(w: Tree, X: Any, y: Any, p: Any) -> Any:
        z = scores(w, X)
        if isinstance(model, LinearSVM):
            each = F.relu(1 - y * z[:, 0])
            mean = each.mean() if p is None else p @ each
        elif p is None:
            mean = F.cross_entropy(z, y)
        else:
            mean = p @ F.cross_entropy(z, y, reduction="none")
        return mean + model.l2 / 2 * sum((x**2).sum() for x in w) if model.l2 else mean

    return loss
