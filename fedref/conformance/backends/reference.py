"""fedref itself as a backend, with every intermediate by its paper's name.

Nothing is computed here: the core's functions are called, and the derivatives that they ask for are
recorded.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np

from fedref import tree
from fedref.algorithm import AnyAlgorithm, Cohort, State
from fedref.algorithms import ALGORITHMS, fedmaml, fedmeta, fedprox, per_fedavg
from fedref.conformance import serialise
from fedref.judge.case import build_model
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.rounds.federation import Federation, Part, Source
from fedref.rounds.local_data import LocalData
from fedref.rounds.loop import participants, run_client, run_clients, run_round
from fedref.sampling import Plan

Values = Mapping[str, Any]


class Recorder:
    """A model that records the point and the value of each derivative. Below, `r` is a Recorder."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.at: list[Array] = []
        self.gave: list[Array] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["model"], name)

    def _note(self, w: Array, result: Array) -> Array:
        self.at.append(w)
        self.gave.append(result)
        return result

    def grad(self, w: Array, D: Batch) -> Array:
        return self._note(w, self.model.grad(w, D))

    def hvp(self, w: Array, v: Array, D: Batch) -> Array:
        return self._note(w, self.model.hvp(w, v, D))


def _parts(D: Batch) -> list[Batch]:
    """Return a stack of ν batches one by one."""
    return [Batch(X, y) for X, y in zip(D.X, D.y)]


def _exact(r: Any, hyper: Values, w: Array, D: Batch, D1: Batch, D2: Batch) -> dict[str, Any]:
    F = per_fedavg.meta_gradient(r, w, D, D1, D2, alpha=hyper["alpha"])
    return {
        "g": r.gave[0], "w_adapted": r.at[1], "u": r.gave[1], "Hu": r.gave[2], "meta_gradient": F,
        "w_new": per_fedavg.local_step(w, F, beta=hyper["beta"]),
    }  # fmt: skip


def _fo(r: Any, hyper: Values, w: Array, D: Batch, D1: Batch) -> dict[str, Any]:
    F = per_fedavg.meta_gradient_fo(r, w, D, D1, alpha=hyper["alpha"])
    return {"g": r.gave[0], "w_adapted": r.at[1], "meta_gradient": F}


def _hf(r: Any, hyper: Values, w: Array, D: Batch, D1: Batch, D2: Batch) -> dict[str, Any]:
    delta = hyper["delta"]
    F = per_fedavg.meta_gradient_hf(r, w, D, D1, D2, alpha=hyper["alpha"], delta=delta)
    g, u, plus, minus = r.gave
    return {
        "g": g, "w_adapted": r.at[1], "u": u, "g_plus": plus, "g_minus": minus, "meta_gradient": F,
    }  # fmt: skip


def _steps(r: Any, hyper: Values, w: Array, D: Batch, D1: Batch, D2: Batch) -> dict[str, Any]:
    Ds, D2s = _parts(D), _parts(D2)
    F = per_fedavg.meta_gradient_steps(r, w, Ds, D1, D2s, alpha=hyper["alpha"])
    nu = len(Ds)
    return {"w_adapted": r.at[nu], "u": r.gave[nu], "meta_gradient": F}


def _maml(second_order: bool, r: Any, hyper: Values, theta: Array, S: Batch, Q: Batch) -> Any:
    s = hyper["inner_steps"]
    g = fedmeta.maml_gradient(
        r, theta, S, Q, alpha=hyper["alpha"], steps=s, second_order=second_order
    )
    return {"g": r.gave[0], "theta_u": r.at[s], "q": r.gave[s], "g_theta": g}


def _sgd(r: Any, hyper: Values, theta: Array, alpha: Array, S: Batch, Q: Batch) -> Any:
    s = hyper["inner_steps"]
    g_theta, g_alpha = fedmeta.meta_sgd_gradient(r, theta, alpha, S, Q, steps=s)
    return {
        "g": r.gave[0], "theta_u": r.at[s], "q": r.gave[s], "g_theta": g_theta, "g_alpha": g_alpha,
    }  # fmt: skip


def _fedmaml(r: Any, hyper: Values, theta: Array, tr: Batch, val: Batch) -> dict[str, Any]:
    s = hyper["inner_steps"]
    g, theta_star = fedmaml.meta_gradient(r, theta, tr, val, alpha=hyper["alpha"], steps=s)
    return {"theta_star": theta_star, "q": r.gave[s], "g": g}


#: variant → (recording model, hyperparameters, inputs) → every intermediate, the gradient last.
VARIANTS: dict[str, Callable[..., dict[str, Any]]] = {
    "per-fedavg": _exact,
    "per-fedavg-fo": _fo,
    "per-fedavg-hf": _hf,
    "per-fedavg-steps": _steps,
    "fedmeta-maml": partial(_maml, True),
    "fedmeta-fomaml": partial(_maml, False),
    "fedmeta-sgd": _sgd,
    "fedmaml": _fedmaml,
}


def parameters(local: Any) -> Array:
    """Return the parameters among what a client carries from step to step."""
    if type(local) is tuple:  # FedMeta's: where it stands, and the sum of its gradients
        return local[0].theta
    w: Array = next(iter(tree.leaves(local)))
    return w


one_by_one = partial(run_clients, stack=False)


@dataclass(frozen=True)
class Reference:
    """fedref's functions behind the backend's protocol. work : runs a round's clients."""

    work: Any = one_by_one

    def model_of(self, model: Values) -> Any:
        return build_model(model)

    def algorithm_of(self, name: str, hyper: Values) -> AnyAlgorithm:
        kind = ALGORITHMS[name]
        known = {f.name for f in fields(kind)}
        return kind(**{key: value for key, value in hyper.items() if key in known})

    def loss(self, model: Values, w: Array, D: Values) -> Any:
        return self.model_of(model).loss(w, serialise.build_batch(D))

    def grad(self, model: Values, w: Array, D: Values) -> Any:
        return self.model_of(model).grad(w, serialise.build_batch(D))

    def hvp(self, model: Values, w: Array, v: Array, D: Values) -> Any:
        return self.model_of(model).hvp(w, v, serialise.build_batch(D))

    def meta_gradient(self, variant: str, model: Values, hyper: Values, **inputs: Any) -> Any:
        given = {
            k: serialise.build_batch(x) if isinstance(x, Mapping) else x for k, x in inputs.items()
        }
        return VARIANTS[variant](Recorder(self.model_of(model)), hyper, **given)

    def client(
        self, algorithm: str, model: Values, hyper: Values,
        server: Values, data: Values, rows: Values, client: Values | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Return one client's round: its parameters after every step, its upload, its state."""
        it, made = self.algorithm_of(algorithm, hyper), self.model_of(model)
        sent = it.download(serialise.load_server(it, made, server))
        own = serialise.load_client_state(it, client)
        S, n = len(next(iter(rows.values()))), len(data["y"])
        dtype, codes = serialise.dtype_of(server), made.inputs == "codes"
        local_data = LocalData(
            np.array([0]), 0, data["X"], data["y"], np.arange(n), np.array([0, n]),
            {role: r[None] for role, r in rows.items()},
            np.array([S]), np.array([S]), None, None, dtype, codes,
        )  # fmt: skip

        def local_after(t: int) -> Any:
            return run_client(it, made, sent, own, local_data._replace(steps=np.array([t])), 0)

        out: dict[str, Any] = {}
        if "S" not in rows:
            out["path"] = np.stack([parameters(local_after(t)) for t in range(S + 1)])
        everything = partial(local_data.all_rows, 0)
        local = local_after(S)
        if isinstance(it, fedprox.FedProx):
            args = (made, local, sent.w, everything())
            out["gamma"] = fedprox.inexactness(*args, mu=sent.mu)
            out["h"] = fedprox.objective(*args, mu=sent.mu)
        result = it.finish(made, sent, local, own, everything)
        out["upload"] = serialise.dump_upload(it, result.upload)
        if result.client_state is not None:
            out["client"] = serialise.dump_state(result.client_state, dtype)
        return out

    def aggregate(
        self, algorithm: str, model: Values, hyper: Values,
        server: Values, uploads: Values, n: Array, counts: Array, N: int | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Return the server's next state from K of N clients' uploads (leaves (K, ...)), n_k and draws."""
        it, made = self.algorithm_of(algorithm, hyper), self.model_of(model)
        dtype = next(iter(uploads.values())).dtype
        cohort = Cohort(np.arange(len(n)), counts, n, len(n) if N is None else N)
        before = serialise.load_server(it, made, server)
        after = it.combine(made, before, serialise.load_upload(it, uploads), cohort)
        return {**self._weights(it, cohort, dtype), "server": serialise.dump_state(after, dtype)}

    @staticmethod
    def _weights(it: AnyAlgorithm, cohort: Cohort, dtype: Any) -> dict[str, Array]:
        """Return p_k, but for FedMAML, whose server sums."""
        if isinstance(it, fedmaml.FedMAML):
            return {}
        return {"p": cohort.weights(it.weighting).astype(dtype)}

    def round(
        self,
        algorithm: str,
        model: Values,
        hyper: Values,
        state: Values,
        data: Values,
        plan: Values,
    ) -> dict[str, Any]:
        """Run one round. Return the next state {"server", "clients"}, and the uploads."""
        it, made = self.algorithm_of(algorithm, hyper), self.model_of(model)
        drawn = Plan(**{name: plan[name] for name in Plan._fields})
        dtype = serialise.dtype_of(state["server"])
        rows = np.arange(len(data["y"]))
        nobody = Part(rows[:0], np.zeros_like(data["offsets"]))
        vocabulary = ("",) if made.inputs == "codes" else None
        source = Source(data["X"], data["y"], vocabulary=vocabulary)
        federation = Federation(source, Part(rows, data["offsets"]), nobody)
        clients = {
            k: serialise.load_client_state(it, own) for k, own in state.get("clients", {}).items()
        }
        before = State(serialise.load_server(it, made, state["server"]), clients)

        sent: list[Any] = []

        def work(*arguments: Any) -> Any:
            results, counts = self.work(*arguments)
            sent.extend(result.upload for result in results)
            return results, counts

        after, _ = run_round(it, made, before, drawn, federation, dtype=dtype, work=work)
        out: dict[str, Any] = {}
        if sent:
            here = participants(it, drawn)
            cohort = Cohort(
                drawn.clients[here], drawn.counts[here], drawn.sizes[here], federation.clients
            )
            out["uploads"] = serialise.dump_upload(it, tree.stack(sent))
            out |= self._weights(it, cohort, dtype)
        server = after.server
        if it.watches_loss and "loss" in plan:
            server = it.observe_loss(server, float(plan["loss"]))
        out["server"] = serialise.dump_state(server, dtype)
        out["clients"] = {k: serialise.dump_state(own, dtype) for k, own in after.clients.items()}
        return out

    def evaluate(
        self, algorithm: str, model: Values, hyper: Values,
        server: Values, tests: list[Values], client: Values | None = None, D: Values | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Return one client's tested model, and its mean loss (without L2) on each test batch."""
        it, made = self.algorithm_of(algorithm, hyper), self.model_of(model)
        sent = it.download(serialise.load_server(it, made, server))
        own = serialise.load_client_state(it, client)
        w = it.personalised_params(made, sent, own, serialise.build_batch(D))
        return {"w": w, "losses": self._scores(made, w, tests)}

    @staticmethod
    def _scores(model: Any, w: Array, tests: list[Values]) -> Array:
        losses = [model.sample_losses(w, Batch(T["X"], T["y"])) for T in tests]
        return np.array([x.mean() for x in losses], w.dtype)

    def dissimilarity(self, model: Values, w: Array, clients: Values) -> dict[str, Any]:
        """Return FedProx's B(w) and the variance of the clients' gradients."""
        batches = [Batch(D["X"], D["y"]) for D in clients.values()]
        return fedprox.dissimilarity(self.model_of(model), w, batches)._asdict()


LOOP = Reference()
STACK = Reference(partial(run_clients, stack=True))
