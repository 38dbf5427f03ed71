"""The algorithms written from the papers, for any library with arrays and automatic derivatives.

It uses nothing of fedref: the objectives are written down and the library differentiates them. So it is
an independent opinion on every equation. A library provides `derivative`, its layers and a few
array functions (torch.py, jax.py). A batch D is {"X", "y", "s"}, s weighting the samples.
Long because it is a second implementation of everything, to be read or copied in one piece.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Values = Mapping[str, Any]


def pieces(model: Values, w: Any) -> list[Any]:
    """Return w cut into the model's weights and biases."""
    sizes = [int(np.prod(shape)) for shape in model["shapes"]]
    ends = np.cumsum(sizes).tolist()
    cuts = zip(model["shapes"], sizes, ends)
    return [w[end - size : end].reshape(shape) for shape, size, end in cuts]


class Papers:
    """The backend's protocol in terms of a library. `xp` : its module of array functions."""

    xp: Any
    activations: Mapping[str, Callable[[Any], Any]]

    # the library's part

    def array(self, x: Any) -> Any:
        raise NotImplementedError

    def numpy(self, x: Any) -> Any:
        raise NotImplementedError

    def derivative(self, f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return the gradient of a scalar function; it can be differentiated again."""
        raise NotImplementedError

    def map_samples(self, f: Callable[[Any, Any], Any], X: Any, y: Any) -> Any:
        """Return f of every sample (a batch of one), stacked."""
        raise NotImplementedError

    def correlate(self, a: Any, kernel: Any) -> Any:
        """Return the "valid" correlation of images (B, H, W, c) with a kernel (k, k, c, C)."""
        raise NotImplementedError

    def pool(self, a: Any, kind: str) -> Any:
        """Return the maximum or mean ("max", "mean") of each 2 × 2 window of images (B, H, W, C)."""
        raise NotImplementedError

    def read_texts(self, model: Values, E: Any, cells: list[Any], X: Any) -> Any:
        """Return the dense layer's input from texts (B, T): (B, H). Padding changes no state.

        E : the embedding; cells : W, b of each layer in turn.
        """
        raise NotImplementedError

    def sample_losses(self, model: Values, z: Any, y: Any) -> Any:
        """Return ℓ of every sample: (B,)."""
        raise NotImplementedError

    def speed_up(self, key: Any, f: Callable[..., Any]) -> Callable[..., Any]:
        """Return a faster version of f, where the library has one; equal keys mean equal functions."""
        return f

    def call(self, f: Callable[..., Any], settings: Any, *arrays: Any) -> Any:
        """Return f(*settings, *arrays), sped up for these settings."""
        key = (f.__name__, repr(settings))
        return self.speed_up(key, lambda *arrays: f(*settings, *arrays))(*arrays)

    # a model, and its derivatives

    def logits(self, model: Values, w: Any, X: Any) -> Any:
        """Return the logits: (B, C), or (B,) of the linear models with one score."""
        layers = pieces(model, w)
        if model["family"] in ("binary-logistic", "svm"):
            theta, *b = layers
            return (X @ theta)[:, 0] + (b[0] if b else 0)
        phi = self.activations[model.get("activation", "relu")]
        if model["family"] == "cnn":
            H, W, *c = model["image"]
            a = X.reshape(-1, H, W, c[0] if c else 1)
            for _ in model["channels"]:
                kernel, b, *layers = layers
                a = self.pool(phi(self.correlate(a, kernel) + b), model["pool"])
            X = a.reshape(len(X), -1)
        elif model["family"] == "lstm":
            E, *cells, W, b = layers
            layers, X = [W, b], self.read_texts(model, E, cells, X)
        elif model["family"] not in ("logistic", "mlp"):
            raise NotImplementedError(model["family"])
        *hidden, W_last, b_last = layers
        for W, b in zip(hidden[::2], hidden[1::2]):
            X = phi(X @ W + b)
        return X @ W_last + b_last

    def f(self, model: Values, w: Any, D: Values) -> Any:
        """Σ s_j ℓ_j / Σ s_j + (l2/2)‖w‖²."""
        losses = self.sample_losses(model, self.logits(model, w, D["X"]), D["y"])
        s = D.get("s")
        mean = losses.mean() if s is None else (s * losses).sum() / (s.sum() + (s.sum() == 0))
        return mean + model["l2"] / 2 * (w * w).sum()

    def g(self, model: Values, w: Any, D: Values) -> Any:
        return self.derivative(lambda w: self.f(model, w, D))(w)

    def Hv(self, model: Values, w: Any, v: Any, D: Values) -> Any:
        return self.derivative(lambda w: (self.g(model, w, D) * v).sum())(w)

    def loss(self, model: Values, w: Any, D: Values) -> Any:
        return self.numpy(self.call(self.f, (model,), self.array(w), self.batch(D)))

    def hvp(self, model: Values, w: Any, v: Any, D: Values) -> Any:
        given = self.array(w), self.array(v), self.batch(D)
        return self.numpy(self.call(self.Hv, (model,), *given))

    def grad(self, model: Values, w: Any, D: Values) -> Any:
        return self.numpy(self.call(self.g, (model,), self.array(w), self.batch(D)))

    # meta-gradients

    def inner(self, model: Values, theta: Any, S: Values, alpha: Any, steps: int) -> Any:
        for _ in range(steps):
            theta = theta - alpha * self.g(model, theta, S)
        return theta

    def variants(self) -> dict[str, Callable[..., dict[str, Any]]]:
        """variant → (model, hyper, inputs) → named intermediates and the gradient."""
        return {
            "per-fedavg": self.exact,
            "per-fedavg-fo": self.first_order,
            "per-fedavg-hf": self.hessian_free,
            "per-fedavg-steps": self.several,
            "fedmeta-maml": self.maml,
            "fedmeta-fomaml": self.fomaml,
            "fedmeta-sgd": self.meta_sgd,
            "fedmaml": self.fedmaml,
        }

    def exact(self, model: Values, h: Values, w: Any, D: Values, D1: Values, D2: Values) -> Any:
        out = self.first_order(model, h, w, D, D1)  # [per-fedavg eq.6]
        u = out["meta_gradient"]
        Hu = self.Hv(model, w, u, D2)
        return out | {"u": u, "Hu": Hu, "meta_gradient": u - h["alpha"] * Hu}

    def first_order(self, model: Values, h: Values, w: Any, D: Values, D1: Values) -> Any:
        g = self.g(model, w, D)
        adapted = w - h["alpha"] * g
        return {"g": g, "w_adapted": adapted, "meta_gradient": self.g(model, adapted, D1)}

    def hessian_free(
        self, model: Values, h: Values, w: Any, D: Values, D1: Values, D2: Values
    ) -> Any:
        out = self.first_order(model, h, w, D, D1)
        u, delta = out["meta_gradient"], h["delta"]
        plus, minus = self.g(model, w + delta * u, D2), self.g(model, w - delta * u, D2)
        d = (plus - minus) / (2 * delta)  # [per-fedavg eq.8]
        step = {"u": u, "g_plus": plus, "g_minus": minus, "meta_gradient": u - h["alpha"] * d}
        return out | step

    def several(self, model: Values, h: Values, w: Any, D: Values, D1: Values, D2: Values) -> Any:
        ws = [w]
        for X, y in zip(D["X"], D["y"]):
            ws.append(ws[-1] - h["alpha"] * self.g(model, ws[-1], {"X": X, "y": y}))
        u = self.g(model, ws[-1], D1)
        for j in reversed(range(len(ws) - 1)):
            u = u - h["alpha"] * self.Hv(model, ws[j], u, {"X": D2["X"][j], "y": D2["y"][j]})
        return {"w_adapted": ws[-1], "meta_gradient": u}

    def adapted_loss(self, model: Values, h: Values, S: Values, Q: Values) -> Any:
        """(θ, α) ↦ f(θ_u; Q): the objective of MAML, Meta-SGD and FedMAML."""

        def F(theta: Any, alpha: Any) -> Any:
            return self.f(model, self.inner(model, theta, S, alpha, h["inner_steps"]), Q)

        return F

    def maml(self, model: Values, h: Values, theta: Any, S: Values, Q: Values) -> Any:
        F = self.adapted_loss(model, h, S, Q)
        return {"g_theta": self.derivative(lambda theta: F(theta, h["alpha"]))(theta)}

    def fomaml(self, model: Values, h: Values, theta: Any, S: Values, Q: Values) -> Any:
        theta_u = self.inner(model, theta, S, h["alpha"], h["inner_steps"])
        return {"theta_u": theta_u, "g_theta": self.g(model, theta_u, Q)}

    def meta_sgd(
        self, model: Values, h: Values, theta: Any, alpha: Any, S: Values, Q: Values
    ) -> Any:
        F = self.adapted_loss(model, h, S, Q)
        return {
            "g_theta": self.derivative(lambda theta: F(theta, alpha))(theta),
            "g_alpha": self.derivative(lambda alpha: F(theta, alpha))(alpha),
        }

    def fedmaml(self, model: Values, h: Values, theta: Any, tr: Values, val: Values) -> Any:
        F = self.adapted_loss(model, h, tr, val)
        theta_star = self.inner(model, theta, tr, h["alpha"], h["inner_steps"])
        return {
            "theta_star": theta_star, "g": self.derivative(lambda theta: F(theta, h["alpha"]))(theta),
        }  # fmt: skip

    def meta_gradient(self, variant: str, model: Values, hyper: Values, **inputs: Any) -> Any:
        given = {k: self.batch(x) if isinstance(x, dict) else self.array(x)
                 for k, x in inputs.items()}  # fmt: skip
        f = self.variants()[variant]
        out = self.speed_up(
            ("meta", variant, repr(model), repr(hyper)), lambda given: f(model, hyper, **given)
        )(given)
        return {name: self.numpy(x) for name, x in out.items()}

    # one local step: (model, hyper, server, local, batch of each role) → local

    def sgd_on(self, objective: Callable[..., Any]) -> Callable[..., Any]:
        """w ← w − η∇H(w; D), where H is the loss plus objective(hyper, server, local, w)."""

        def step(model: Values, h: Values, server: Values, local: Values, D: Values) -> Values:
            def H(w: Any) -> Any:
                return self.f(model, w, D) + objective(h, server, local, w)

            return {**local, "w": local["w"] - h["lr"] * self.derivative(H)(local["w"])}

        return step

    def meta_step(self, variant: str) -> Callable[..., Any]:
        gradient = self.variants()[variant]

        def step(model: Values, h: Values, server: Values, local: Values, *Ds: Values) -> Values:
            w = local["w"]
            return {"w": w - h["beta"] * gradient(model, h, w, *Ds)["meta_gradient"]}

        return step

    def episode(self, model: Values, h: Values, server: Values, local: Values, *Ds: Values) -> Any:
        return self.fedmaml(model, h, server["theta"], *Ds)

    def episodes(self, variant: str) -> Callable[..., Any]:
        """θ ← θ − βg, and α likewise; the client sends the sum of the gradients of all episodes."""
        gradient = self.variants()[variant]

        def step(model: Values, h: Values, server: Values, local: Values, *Ds: Values) -> Values:
            learner = {name: local[name] for name in ("theta", "alpha") if name in local}
            out = gradient(model, h, *learner.values(), *Ds)
            g = {f"g_{name}": out[f"g_{name}"] for name in learner}
            moved = {name: x - h["beta"] * g[f"g_{name}"] for name, x in learner.items()}
            return moved | {name: local[name] + x for name, x in g.items()}

        return step

    def apfl_step(self, model: Values, h: Values, server: Values, local: Values, D: Values) -> Any:
        """w_S, a and w_k each along its own gradient [apfl eq.6]."""
        w_s = local["w_s"]
        parts = {name: local[name] for name in ("w_s", "a", "w_k") if name in local}

        def loss_in(name: str) -> Callable[[Any], Any]:
            return lambda x: self.f(model, self.compose(model, **{**parts, name: x}), D)

        def penalty(w: Any) -> Any:
            return h["mu"] / 2 * (server["F"] * (w - server["w"]) ** 2).sum()

        moved = {name: x - h["lr"] * self.derivative(loss_in(name))(x) for name, x in parts.items()}
        g = self.derivative(loss_in("w_s"))(w_s)
        total = g + self.derivative(penalty)(w_s)
        moved["w_s"] = w_s - h["lr"] * total
        return {**moved, "omega": local["omega"] + g * h["lr"] * total}

    def mixed_step(self, model: Values, h: Values, server: Values, local: Values, D: Values) -> Any:
        """w, v and α of Deng's APFL, each by its gradient before the step [apfl-deng alg.1]."""
        w, v, a = local["w"], local["v"], local["a"]

        def F(v: Any, a: Any) -> Any:
            return self.f(model, a * v + (1 - a) * w, D)

        out = {"w": w - h["lr"] * self.g(model, w, D), "a": a}
        out["v"] = v - h["lr"] * self.derivative(lambda v: F(v, a))(v)
        if h["adaptive_alpha"]:
            moved = a - h["lr"] * self.derivative(lambda a: F(v, a))(a)
            out["a"] = self.xp.clip(moved, 0.0, 1.0)
        return out

    def near(self, model: Values, h: Values, w: Any, D: Values) -> Any:
        """θ̃, about argmin_θ f(θ; D) + (λ/2)‖θ − w‖², by gradient steps from w [pfedme alg.1]."""
        theta = w
        for _ in range(h["inner_steps"]):
            distance = self.derivative(lambda x: h["lam"] / 2 * ((x - w) ** 2).sum())
            theta = theta - h["alpha"] * (self.g(model, theta, D) + distance(theta))
        return theta

    def moreau_step(
        self, model: Values, h: Values, server: Values, local: Values, D: Values
    ) -> Any:
        w = local["w"]
        return {"w": w - h["lr"] * h["lam"] * (w - self.near(model, h, w, D))}

    def compose(self, model: Values, w_s: Any, a: Any = None, w_k: Any = None) -> Any:
        """w_S ⊙ σ(a) + w_k, a value of a for each output unit [apfl eq.3]."""
        if a is None:
            return w_s
        m, at, units = (1 + self.xp.tanh(a / 2)) / 2, 0, []  # σ(a), whose exp(−a) never overflows
        for shape in model["shapes"]:
            if len(shape) > 1:
                at += shape[-1]
            own = np.arange(at - shape[-1], at)
            units.append(np.broadcast_to(own, shape).reshape(-1))
        return w_s * m[np.concatenate(units)] + w_k

    def steps(self) -> dict[str, Callable[..., Any]]:
        nothing = self.sgd_on(lambda h, server, local, w: 0.0)

        def proximal_penalty(h: Values, server: Values, local: Values, w: Any) -> Any:
            return server["mu"] / 2 * ((w - server["w"]) ** 2).sum()  # [fedprox alg.2]

        def curvature_penalty(h: Values, server: Values, local: Values, w: Any) -> Any:
            u, v = server["u"] - local["own_u"], server["v"] - local["own_v"]
            return h["lam"] * (u * w * w - 2 * v * w).sum()  # Σ_j (w − θ̂_j)ᵀ I_j (w − θ̂_j) + const.

        def control(h: Values, server: Values, local: Values, w: Any) -> Any:
            return ((server["c"] - local["c_i"]) * w).sum()  # [scaffold alg.1]

        def dynamic(h: Values, server: Values, local: Values, w: Any) -> Any:
            square = ((w - server["w"]) ** 2).sum()
            return h["alpha"] / 2 * square - (local["h_k"] * w).sum()  # [feddyn objective]

        return {
            **dict.fromkeys(("fedavg", "fedavg-update", "fedavg-meta", "centralised"), nothing),
            **dict.fromkeys((*SERVERS, "fednova"), nothing),
            "scaffold": self.sgd_on(control),
            "feddyn": self.sgd_on(dynamic),
            "apfl-deng": self.mixed_step,
            "pfedme": self.moreau_step,
            "fedprox": self.sgd_on(proximal_penalty),
            "fedcurv": self.sgd_on(curvature_penalty),
            "apfl": self.apfl_step,
            **{v: self.meta_step(v) for v in ("per-fedavg", "per-fedavg-fo", "per-fedavg-hf")},
            **{v: self.episodes(v) for v in ("fedmeta-maml", "fedmeta-fomaml", "fedmeta-sgd")},
            "fedmaml": self.episode,
        }  # fmt: skip

    # a client

    def batch(self, D: Values) -> dict[str, Any]:
        return {name: self.array(x) for name, x in D.items()}

    def state(self, values: Values) -> dict[str, Any]:
        """Convert arrays to the library's, single numbers to Python's."""
        return {k: self.array(x) if np.ndim(x) else np.asarray(x).item() for k, x in values.items()}

    def begin(self, algorithm: str, h: Values, model: Values, server: Values, own: Values) -> Any:
        w = model_of(server)
        zero = self.xp.zeros_like(w)
        if algorithm == "fedcurv":
            recent = own and own["t"] == server["t"] - 1
            return {"w": w, "own_u": own["I"] if recent else zero,
                    "own_v": own["v"] if recent else zero}  # fmt: skip
        if algorithm.startswith("fedmeta"):
            learner = {name: server[name] for name in ("theta", "alpha") if name in server}
            return learner | {f"g_{name}": zero for name in learner}
        if algorithm == "scaffold":
            return {"w": w, "c_i": own.get("c_i", zero)}
        if algorithm == "feddyn":
            return {"w": w, "h_k": own.get("h_k", zero)}
        if algorithm == "apfl-deng":
            start = self.array(np.asarray(h["alpha"], self.numpy(w).dtype))
            return {
                "w": w,
                "v": own.get("v", w),
                "a": self.array(np.asarray(own["a"], self.numpy(w).dtype)) if own else start,
            }
        if algorithm != "apfl":
            return {"w": w}
        if not own and server["t"] >= h["z"]:  # [apfl alg.1 line 21]
            U = sum(shape[-1] for shape in model["shapes"] if len(shape) > 1)
            share = 1.0 if h["init"] == "paper" else 1 - 1 / (1 + np.exp(-1.0))
            own = {"a": self.array(np.ones(U, self.numpy(w).dtype)), "w_k": w * float(share)}
        return {"w_s": w, **own, "omega": zero}

    def work(
        self, algorithm: str, model: Values, h: Values, server: Values, own: Values,
        data: Values, rows: Values,
    ) -> dict[str, Any]:  # fmt: skip
        """Return one client's round, in the library's arrays."""
        local = self.begin(algorithm, h, model, server, own)
        main = next(iter(local))
        step = self.speed_up(
            ("step", algorithm, repr(model), repr(h)),
            lambda server, local, *Ds: self.steps()[algorithm](model, h, server, local, *Ds),
        )
        path = [local[main]]
        for t in range(len(next(iter(rows.values())))):
            local = step(server, local, *(self.rows(data, rows[role][t]) for role in rows))
            if "S" not in rows:
                path.append(local[main])
        out: dict[str, Any] = {} if "S" in rows else {"path": self.xp.stack(path)}
        everything = self.batch(data)
        if algorithm == "fedcurv":
            w = local["w"]
            I = self.call(self.fisher, (model,), w, everything)
            out["upload"] = {"theta": w, "I": I}
            return out | {"client": {"I": I, "v": I * w, "t": server["t"]}}
        if algorithm == "apfl":
            out["upload"] = {"w": local["w_s"]}
            if server["renew"]:
                arrays = {"w": server["w"]}, local, everything
                out["upload"]["importance"] = self.call(self.importance, (model, h), *arrays)
            own = {name: local[name] for name in ("a", "w_k") if name in local}
            return out | ({"client": own} if own else {})
        S, w = len(next(iter(rows.values()))), server.get("w")
        if algorithm == "scaffold":
            c_i, way = local["c_i"], local["w"] - w
            if h["control"] == "gradient":
                new = self.call(self.g, (model,), w, everything)
            else:
                new = c_i - server["c"] - way / (S * h["lr"])
            return out | {"upload": {"dy": way, "dc": new - c_i}, "client": {"c_i": new}}
        if algorithm == "feddyn":
            new = local["h_k"] - h["alpha"] * (local["w"] - w)
            return out | {"upload": {"w": local["w"]}, "client": {"h_k": new}}
        if algorithm == "apfl-deng":
            own = {name: local[name] for name in ("v", "a")}
            return out | {"upload": {"w": local["w"]}, "client": own}
        if algorithm == "fednova":
            return out | {"upload": {"d": (w - local["w"]) / (h["lr"] * S), "tau": np.array(S)}}
        if algorithm == "fedprox":
            arrays = local["w"], {"w": server["w"], "mu": server["mu"]}, everything
            out |= self.call(self.prox_diagnosis, (model,), *arrays)
        sent = {
            k: x for k, x in local.items() if k in ("w", "g", "theta_star", "g_theta", "g_alpha")
        }
        return out | {"upload": sent}

    def rows(self, data: Values, index: Any) -> dict[str, Any]:
        """Return a mini-batch: rows of −1 are padding, of weight 0."""
        real = index >= 0
        at = np.where(real, index, 0)
        return self.batch({"X": data["X"][at], "y": data["y"][at], "s": real})

    def prox_diagnosis(self, model: Values, w: Any, server: Values, D: Values) -> dict[str, Any]:
        def h(w: Any) -> Any:
            return self.f(model, w, D) + server["mu"] / 2 * ((w - server["w"]) ** 2).sum()

        def size(w: Any) -> Any:
            return self.xp.sqrt((self.derivative(h)(w) ** 2).sum())

        return {"gamma": size(w) / size(server["w"]), "h": h(w)}  # [fedprox γ]

    def fisher(self, model: Values, w: Any, D: Values) -> Any:
        """Return the mean over samples of squared gradients."""
        one = self.map_samples(lambda X, y: self.g(model, w, {"X": X, "y": y}) ** 2, D["X"], D["y"])
        return one.mean(0)

    def importance(self, model: Values, h: Values, server: Values, local: Values, D: Values) -> Any:
        w = server["w"]

        def sensitivity(X: Any, y: Any) -> Any:
            return abs(self.derivative(lambda w: (self.logits(model, w, X) ** 2).sum())(w))

        def path_integral() -> Any:
            gain = local["omega"] * (local["omega"] > 0)
            return gain / ((local["w_s"] - w) ** 2 + 0.1)

        return {
            "gradient-square": lambda: self.g(model, w, D) ** 2,  # [apfl eq.5]
            "fisher": lambda: self.fisher(model, w, D),
            "mas": lambda: self.map_samples(sensitivity, D["X"], D["y"]).mean(0),
            "si": path_integral,
        }[h["importance"]]()

    def client(
        self, algorithm: str, model: Values, hyper: Values,
        server: Values, data: Values, rows: Values, client: Values | None = None,
    ) -> Any:  # fmt: skip
        return self.to_numpy(
            self.work(
                algorithm, model, hyper, self.state(server), self.state(client or {}), data, rows
            )
        )

    def to_numpy(self, x: Any) -> Any:
        """Convert the library's arrays in nested dictionaries to NumPy's."""
        if isinstance(x, Mapping):
            return {key: self.to_numpy(value) for key, value in x.items()}
        return x if isinstance(x, bool | int | float | np.ndarray) else self.numpy(x)

    # the server

    def mean(self, p: Any, x: Any) -> Any:
        """Σ_k p_k x_k."""
        return self.speed_up("mean", lambda p, x: (p[:, None] * x).sum(0))(p, x)

    def combine(
        self, algorithm: str, h: Values, server: Values, sent: Values, n: Any, counts: Any, N: int
    ) -> Any:
        """Return the server's next state, and the weights."""
        first = next(iter(sent.values()))
        share = counts * (n if h["weighting"] == "samples" else 1)
        p = self.array((share / share.sum()).astype(self.numpy(first).dtype))
        if algorithm == "fedmaml":  # a sum, and the mean as θ′ [fedmaml §3.2, §4.3]
            c = self.array(counts.astype(self.numpy(first).dtype))
            theta = server["theta"] - h["beta"] * self.mean(c, sent["g"])
            return {"server": {"theta": theta,
                               "theta1": self.mean(c / c.sum(), sent["theta_star"])}}  # fmt: skip
        if algorithm.startswith("fedmeta"):
            g = {"theta": self.mean(p, sent["g_theta"])}
            if "g_alpha" in sent:
                g["alpha"] = self.mean(p, sent["g_alpha"])
            return {"p": p, "server": self.descend(h, server, g)}
        after = dict(server)
        if algorithm in SERVERS:
            return {"p": p, "server": self.adaptive(algorithm, h, server, self.mean(p, sent["w"]))}
        if algorithm == "scaffold":
            after["w"] = server["w"] + h["server_lr"] * self.mean(p, sent["dy"])
            after["c"] = server["c"] + sent["dc"].sum(0) / N
        elif algorithm == "feddyn":
            after["h"] = server["h"] - h["alpha"] / N * (sent["w"] - server["w"]).sum(0)
            after["w"] = self.mean(p, sent["w"]) - after["h"] / h["alpha"]
        elif algorithm == "fednova":
            tau = (self.numpy(p) * self.numpy(sent["tau"])).sum().item()  # τ_eff
            after["w"] = server["w"] - tau * h["lr"] * self.mean(p, sent["d"])
        elif algorithm == "pfedme":
            after["w"] = (1 - h["beta"]) * server["w"] + h["beta"] * self.mean(p, sent["w"])
        elif algorithm == "fedcurv":
            u, v = sent["I"].sum(0), (sent["I"] * sent["theta"]).sum(0)
            after = {"w": self.mean(p, sent["theta"]), "u": u, "v": v, "t": server["t"] + 1}
        elif algorithm == "apfl":
            if "importance" in sent:  # [apfl eq.5]
                after["F"] = h["lam"] * server["F"] + self.mean(p, sent["importance"])
            t = server["t"] + 1
            after |= {"w": self.mean(p, sent["w"]), "t": t, "renew": abs(t - h["z"]) <= 1}
        else:
            after["w"] = self.mean(p, sent["w"])
        return {"p": p, "server": after}

    def adaptive(self, algorithm: str, h: Values, server: Values, mean: Any) -> dict[str, Any]:
        """FedOpt's servers, without bias correction, and FedAvgM's [fedopt alg.2]."""
        w, v, delta = server["w"], server["v"], mean - server["w"]
        if algorithm == "fedavgm":
            v = h["momentum"] * v + delta
            return {"w": w + v, "v": v}
        square, b = delta * delta, h["beta2"]
        m = h["beta1"] * server["m"] + (1 - h["beta1"]) * delta
        v = {
            "fedadagrad": v + square,
            "fedyogi": v - (1 - b) * square * self.xp.sign(v - square),
            "fedadam": b * v + (1 - b) * square,
        }[algorithm]
        return {"w": w + h["server_lr"] * m / (self.xp.sqrt(v) + h["tau"]), "m": m, "v": v}

    def descend(self, h: Values, server: Values, g: Values) -> dict[str, Any]:
        """SGD, or Adam whose moments stay [fedmeta server]."""
        if h["server"] == "sgd":
            return {name: server[name] - h["beta"] * g[name] for name in g}
        t, out = server["t"] + 1, {"t": server["t"] + 1}
        for name in g:
            m = out["m_" + name] = 0.9 * server["m_" + name] + 0.1 * g[name]
            v = out["v_" + name] = 0.999 * server["v_" + name] + 0.001 * g[name] ** 2
            step = m / (1 - 0.9**t) / (self.xp.sqrt(v / (1 - 0.999**t)) + 1e-8)
            out[name] = server[name] - h["beta"] * step
        return out

    def aggregate(
        self, algorithm: str, model: Values, hyper: Values,
        server: Values, uploads: Values, n: Any, counts: Any, N: int = 0,
    ) -> Any:  # fmt: skip
        sent = {name: self.array(x) for name, x in uploads.items()}
        before = self.state(server)
        return self.to_numpy(self.combine(algorithm, hyper, before, sent, n, counts, int(N)))

    # a round

    def round(
        self,
        algorithm: str,
        model: Values,
        hyper: Values,
        state: Values,
        data: Values,
        plan: Values,
    ) -> Any:
        server = self.state(state["server"])
        clients = {k: self.state(own) for k, own in state.get("clients", {}).items()}
        here = ~plan["straggler"] if hyper["drop"] else plan["straggler"] | True
        uploads = []
        for i in np.flatnonzero(here):
            k, S = int(plan["clients"][i]), int(plan["steps"][i])
            own_rows = slice(*data["offsets"][k : k + 2])
            own = {"X": data["X"][own_rows], "y": data["y"][own_rows]}
            rows = {role: rows[i, :S] for role, rows in plan["rows"].items()}
            done = self.work(algorithm, model, hyper, server, clients.get(k, {}), own, rows)
            uploads.append(done["upload"])
            if "client" in done:
                clients[k] = done["client"]
        out: dict[str, Any] = {"server": server}
        if uploads:
            sent = {
                name: self.xp.stack([self.array(u[name]) for u in uploads]) for name in uploads[0]
            }
            sizes, counts = plan["sizes"][here], plan["counts"][here]
            out = {"uploads": sent}
            N = len(data["offsets"]) - 1
            out |= self.combine(algorithm, hyper, server, sent, sizes, counts, N)
        if "loss" in plan:
            out["server"] = observe(algorithm, hyper, out["server"], float(plan["loss"]))
        return self.to_numpy({**out, "clients": clients})

    # evaluation

    def evaluate(
        self, algorithm: str, model: Values, hyper: Values,
        server: Values, tests: list[Values], client: Values | None = None, D: Values | None = None,
    ) -> Any:  # fmt: skip
        given = self.state(server)
        w = model_of(given)
        steps = hyper.get("inner_steps", 1)
        if client and algorithm == "apfl":
            w = self.compose(model, w, **self.state(client))
        if client and algorithm == "apfl-deng":
            own = self.state(client)
            w = own["a"] * own["v"] + (1 - own["a"]) * w
        if hyper.get("evaluate") == "theta1":  # [fedmaml §4.3]
            w = given["theta1"]
        elif D is not None and algorithm == "pfedme":
            w = self.near(model, hyper, w, self.batch(D))
        elif D is not None:
            alpha = given.get("alpha", hyper["alpha"])
            adapt = self.speed_up(
                ("adapt", repr(model), steps),
                lambda w, D, alpha: self.inner(model, w, D, alpha, steps),
            )
            w = adapt(w, self.batch(D), alpha)
        plain = {**model, "l2": 0.0}
        losses = [self.numpy(self.call(self.f, (plain,), w, self.batch(T))) for T in tests]
        return {"w": self.numpy(w), "losses": np.stack(losses)}

    def dissimilarity(self, model: Values, w: Any, clients: Values) -> Any:
        n = np.array([len(D["y"]) for D in clients.values()])
        p = n / n.sum()
        g = np.stack([self.grad(model, w, D) for D in clients.values()])
        f = p @ g
        return {  # [fedprox B]
            "B": float(np.sqrt(p @ (g**2).sum(1) / (f @ f))),
            "variance": float(p @ ((g - f) ** 2).sum(1)),
        }


#: FedAvg's clients, with a server that keeps more than w.
SERVERS = ("fedadagrad", "fedyogi", "fedadam", "fedavgm")


def model_of(server: Values) -> Any:
    return server["theta"] if "theta" in server else server["w"]


def observe(algorithm: str, h: Values, server: Values, loss: float) -> dict[str, Any]:
    """FedProx's adaptive μ and APFL's detector, after the global training loss of the round."""
    after = dict(server)
    if algorithm == "fedprox" and h["adaptive_mu"]:
        before = server.get("loss", loss)
        falls = server["falls"] + 1 if loss < before else 0
        mu = server["mu"] + 0.1 if loss > before else server["mu"]
        if falls == 5:
            mu, falls = max(mu - 0.1, 0.0), 0
        after |= {"mu": mu, "falls": falls, "loss": loss}
    if algorithm == "apfl":  # [apfl alg.1 lines 9–16]
        window = [*np.asarray(server["window"]).tolist(), loss][-h["window"] :]
        after["window"] = np.array(window, np.asarray(server["window"]).dtype)
        if len(window) == h["window"]:
            mean, std = float(np.mean(window)), float(np.std(window))
            if server["peak"] and mean < h["delta_mu"] and std < h["delta_sigma"]:
                after |= {"mean_old": mean, "std_old": std, "peak": False, "renew": True}
            elif mean > server["mean_old"] + server["std_old"]:
                after["peak"] = True
    return after
