"""fedref itself as a backend, with every intermediate by its paper's name.

Nothing is computed here: the core's functions are called, and the derivatives that they ask for are
recorded.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from fedref.algorithm import AnyAlgorithm, Cohort, State
from fedref.algorithms import ALGORITHMS, fedmaml, fedmeta, fedprox, per_fedavg
from fedref.draws import serialise
from fedref.draws.sources import federation_of
from fedref.judge.case import Values, build_model
from fedref.models import tree
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.rounds.local_data import LocalData
from fedref.rounds.loop import participants, run_client, run_clients, run_round
from fedref.sampling import Plan


class Recorder:
    """A model that records the point and the value of each derivative. Below, `r` is a Recorder."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.at: list[Array] = []
        self.gave: list[Array] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["model"], name)

    def record(self, w: Array, result: Array) -> Array:
        self.at.append(w)
        self.gave.append(result)
        return result

    def grad(self, w: Array, D: Batch) -> Array:
        return self.record(w, self.model.grad(w, D))

    def hvp(self, w: Array, v: Array, D: Batch) -> Array:
        return self.record(w, self.model.hvp(w, v, D))


# Each takes a recording model, the hyperparameters and the inputs, and returns every intermediate by its
# paper's name, in the order in which they arise, the gradient last.


def exact(r: Any, h: Values, w: Array, D: Batch, D1: Batch, D2: Batch) -> Values:
    F = per_fedavg.meta_gradient(r, w, D, D1, D2, alpha=h["alpha"])
    out = dict(zip(("g", "w_adapted", "u", "Hu"), (r.gave[0], r.at[1], *r.gave[1:])))
    return out | {"meta_gradient": F, "w_new": per_fedavg.local_step(w, F, beta=h["beta"])}


def first_order(r: Any, h: Values, w: Array, D: Batch, D1: Batch) -> Values:
    F = per_fedavg.meta_gradient_fo(r, w, D, D1, alpha=h["alpha"])
    return {"g": r.gave[0], "w_adapted": r.at[1], "meta_gradient": F}


def hessian_free(r: Any, h: Values, w: Array, D: Batch, D1: Batch, D2: Batch) -> Values:
    F = per_fedavg.meta_gradient_hf(r, w, D, D1, D2, alpha=h["alpha"], delta=h["delta"])
    g, u, plus, minus = r.gave
    out = {"g": g, "w_adapted": r.at[1], "u": u, "g_plus": plus, "g_minus": minus}
    return out | {"meta_gradient": F}


def several(r: Any, h: Values, w: Array, D: Batch, D1: Batch, D2: Batch) -> Values:
    Ds, D2s = ([Batch(*pair) for pair in zip(stack.X, stack.y)] for stack in (D, D2))
    F = per_fedavg.meta_gradient_steps(r, w, Ds, D1, D2s, alpha=h["alpha"])
    return {"w_adapted": r.at[len(Ds)], "u": r.gave[len(Ds)], "meta_gradient": F}


def of_episode(r: Any, h: Values, **gradients: Array) -> Values:
    s = h["inner_steps"]
    return {"g": r.gave[0], "theta_u": r.at[s], "q": r.gave[s], **gradients}


def maml(second: bool, r: Any, h: Values, theta: Array, S: Batch, Q: Batch) -> Values:
    at: Any = {"alpha": h["alpha"], "steps": h["inner_steps"], "second_order": second}
    return of_episode(r, h, g_theta=fedmeta.maml_gradient(r, theta, S, Q, **at))


def meta_sgd(r: Any, h: Values, theta: Array, alpha: Array, S: Batch, Q: Batch) -> Values:
    g_theta, g_alpha = fedmeta.meta_sgd_gradient(r, theta, alpha, S, Q, steps=h["inner_steps"])
    return of_episode(r, h, g_theta=g_theta, g_alpha=g_alpha)


def fedmaml_gradient(r: Any, h: Values, theta: Array, tr: Batch, val: Batch) -> Values:
    s = h["inner_steps"]
    g, theta_star = fedmaml.meta_gradient(r, theta, tr, val, alpha=h["alpha"], steps=s)
    return {"theta_star": theta_star, "q": r.gave[s], "g": g}


VARIANTS: dict[str, Callable[..., Values]] = {
    "per-fedavg": exact, "per-fedavg-fo": first_order, "per-fedavg-hf": hessian_free,
    "per-fedavg-steps": several, "fedmeta-maml": partial(maml, True),
    "fedmeta-fomaml": partial(maml, False), "fedmeta-sgd": meta_sgd, "fedmaml": fedmaml_gradient,
}  # fmt: skip


def parameters(local: Any) -> Array:
    """Return the parameters among what a client carries from step to step."""
    if type(local) is tuple:  # FedMeta's: where it stands, and the sum of its gradients
        return local[0].theta
    w: Array = next(iter(tree.leaves(local)))
    return w


one_by_one = partial(run_clients, stack=False)


def algorithm_of(name: str, hyper: Values) -> AnyAlgorithm:
    """Return the algorithm; hyper may hold more than it knows."""
    known = {f.name for f in fields(ALGORITHMS[name])}
    return ALGORITHMS[name](**{key: value for key, value in hyper.items() if key in known})


def weights(it: AnyAlgorithm, cohort: Cohort, dtype: DTypeLike) -> dict[str, Array]:
    """Return p_k, but for FedMAML, whose server sums."""
    if isinstance(it, fedmaml.FedMAML):
        return {}
    return {"p": cohort.weights(it.weighting).astype(dtype)}


@dataclass(frozen=True)
class Reference:
    """fedref's functions behind the backend's protocol. work : runs a round's clients."""

    work: Any = one_by_one

    def loss(self, model: Values, w: Array, D: Values) -> Any:
        return build_model(model).loss(w, serialise.build_batch(D))

    def grad(self, model: Values, w: Array, D: Values) -> Any:
        return build_model(model).grad(w, serialise.build_batch(D))

    def hvp(self, model: Values, w: Array, v: Array, D: Values) -> Any:
        return build_model(model).hvp(w, v, serialise.build_batch(D))

    def meta_gradient(self, variant: str, model: Values, hyper: Values, **inputs: Any) -> Any:
        batches = {k: serialise.build_batch(x) for k, x in inputs.items() if isinstance(x, Mapping)}
        given = {**inputs, **batches}
        return VARIANTS[variant](Recorder(build_model(model)), hyper, **given)

    def client(
        self, algorithm: str, model: Values, hyper: Values,
        server: Values, data: Values, rows: Values, client: Values | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Return one client's round: its parameters after every step, its upload, its state."""
        it, made = algorithm_of(algorithm, hyper), build_model(model)
        sent = it.download(serialise.load_server(it, made, server))
        kept = serialise.load_client_state(it, client)
        S, n = len(next(iter(rows.values()))), len(data["y"])
        dtype, codes = serialise.dtype_of(server), made.inputs == "codes"
        local_data = LocalData(
            np.array([0]), 0, data["X"], data["y"], np.arange(n), np.array([0, n]),
            {role: r[None] for role, r in rows.items()},
            np.array([S]), np.array([-(-n // hyper.get("B", n))]), np.ones(1), None, None, dtype, codes,
        )  # fmt: skip

        def local_after(t: int) -> Any:
            return run_client(it, made, sent, kept, local_data._replace(steps=np.array([t])), 0)

        out: dict[str, Any] = {}
        if "S" not in rows:
            out["path"] = np.stack([parameters(local_after(t)) for t in range(S + 1)])
        everything = partial(local_data.all_rows, 0)
        local = local_after(S)
        if isinstance(it, fedprox.FedProx):
            args = (made, local, sent.w, everything())
            out["gamma"] = fedprox.inexactness(*args, mu=sent.mu)
            out["h"] = fedprox.objective(*args, mu=sent.mu)
        result = it.finish(made, sent, local, kept, everything)
        out["upload"] = serialise.dump_upload(it, result.upload)
        if result.client_state is not None:
            out["client"] = serialise.dump_state(result.client_state, dtype)
        return out

    def aggregate(
        self, algorithm: str, model: Values, hyper: Values,
        server: Values, uploads: Values, n: Array, counts: Array, N: int | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Return the server's next state from K of N clients' uploads (leaves (K, ...)), n_k and draws."""
        it, made = algorithm_of(algorithm, hyper), build_model(model)
        dtype = next(iter(uploads.values())).dtype
        cohort = Cohort(np.arange(len(n)), counts, n, len(n) if N is None else N)
        before = serialise.load_server(it, made, server)
        after = it.combine(made, before, serialise.load_upload(it, uploads), cohort)
        return {**weights(it, cohort, dtype), "server": serialise.dump_state(after, dtype)}

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
        it, made = algorithm_of(algorithm, hyper), build_model(model)
        drawn = Plan(**{name: plan[name] for name in Plan._fields})
        dtype, no_tests = serialise.dtype_of(state["server"]), 0 * data["offsets"]
        federation = federation_of(made, data["X"], data["y"], data["offsets"], no_tests)
        kept = state.get("clients", {}).items()
        clients = {k: serialise.load_client_state(it, values) for k, values in kept}
        before = State(serialise.load_server(it, made, state["server"]), clients)

        sent: list[Any] = []

        def work(*arguments: Any) -> Any:
            results, counts = self.work(*arguments)
            sent.extend(result.upload for result in results)
            return results, counts

        after, _ = run_round(it, made, before, drawn, federation, dtype=dtype, work=work)
        out: dict[str, Any] = {}
        if sent:
            keeps, N = participants(it, drawn), federation.clients
            cohort = Cohort(drawn.clients[keeps], drawn.counts[keeps], drawn.sizes[keeps], N)
            out["uploads"] = serialise.dump_upload(it, tree.stack(sent))
            out |= weights(it, cohort, dtype)
        server = after.server
        if it.watches_loss and "loss" in plan:
            server = it.observe_loss(server, float(plan["loss"]))
        out["server"] = serialise.dump_state(server, dtype)
        out["clients"] = {k: serialise.dump_state(kept, dtype) for k, kept in after.clients.items()}
        return out

    def evaluate(
        self, algorithm: str, model: Values, hyper: Values,
        server: Values, tests: list[Values], client: Values | None = None, D: Values | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Return one client's tested model, and its mean loss (without L2) on each test batch."""
        it, made = algorithm_of(algorithm, hyper), build_model(model)
        sent = it.download(serialise.load_server(it, made, server))
        kept = serialise.load_client_state(it, client)
        batch = serialise.build_batch(D) if D else None
        w = it.personalised_params(made, sent, kept, batch)
        losses = [made.sample_losses(w, Batch(T["X"], T["y"])).mean() for T in tests]
        return {"w": w, "losses": np.array(losses, w.dtype)}

    def dissimilarity(self, model: Values, w: Array, clients: Values) -> dict[str, Any]:
        """Return FedProx's B(w) and the variance of the clients' gradients."""
        batches = [Batch(D["X"], D["y"]) for D in clients.values()]
        return fedprox.dissimilarity(build_model(model), w, batches)._asdict()


LOOP = Reference()
STACK = Reference(partial(run_clients, stack=True))
