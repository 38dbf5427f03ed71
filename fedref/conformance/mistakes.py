"""Known mistakes of public implementations, each as a backend that makes it and nothing else.

The suite names a mistake where a backend gives just what one of these gives. Each differs from
fedref in a line or two. Long because there are so many, and a file each would hide how alike they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fedref.algorithm import AllData, AnyAlgorithm, ClientResult, Cohort
from fedref.algorithms import importance
from fedref.algorithms.fedavg import FedAvg
from fedref.algorithms.fedcurv import ClientState, CurvServer, FedCurv, Local, Upload
from fedref.algorithms.fedmaml import FedMAML, MetaState
from fedref.algorithms.fedmeta import MAML, Learner, MetaServer, MetaSGD, adam
from fedref.algorithms.fedprox import FedProx, ProxSent, ProxServer
from fedref.algorithms.per_fedavg import PerFedAvg, PerFedAvgFO, PerFedAvgHF
from fedref.conformance import serialise
from fedref.conformance.backends.reference import Recorder, Reference, Values
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array


class Mistake(NamedTuple):
    """number : in the list of twenty (0: one more); line : what was done, and what would be right."""

    number: int
    line: str
    backend: Reference


@dataclass(frozen=True)
class Swapped(Reference):
    """fedref with some algorithms replaced by wrong ones of the same fields."""

    swaps: Any = ()

    def algorithm_of(self, name: str, hyper: Values) -> AnyAlgorithm:
        it = Reference.algorithm_of(self, name, hyper)
        for right, wrong in self.swaps:
            if type(it) is right:
                return wrong(**vars(it))
        return it


@dataclass(frozen=True)
class OtherModel(Reference):
    """fedref with the model wrapped."""

    wrap: Any = None

    def model_of(self, model: Values) -> Any:
        return self.wrap(serialise.build_model(model))


@dataclass(frozen=True)
class OtherValues(Reference):
    """fedref with the hyperparameters changed: algorithm, hyper → hyper."""

    change: Any = None

    def algorithm_of(self, name: str, hyper: Values) -> AnyAlgorithm:
        return Reference.algorithm_of(self, name, {**hyper, **self.change(name, hyper)})

    def meta_gradient(self, variant: str, model: Values, hyper: Values, **inputs: Any) -> Any:
        changed = {**hyper, **self.change(variant, hyper)}
        return Reference.meta_gradient(self, variant, model, changed, **inputs)


@dataclass(frozen=True)
class OtherPlan(Reference):
    """fedref with the Plan changed: hyper, plan → what differs."""

    change: Any = None

    def plan_of(self, algorithm: str, hyper: Values, plan: Values) -> Values:
        return {**plan, **self.change(hyper, plan)}


class Wrapped:
    """A model, but for what is overridden."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["model"], name)


# ---- 1, 2, 8, 20: FedProx ----------------------------------------------------------------------


class UnsquaredProx(FedProx):
    """∇(μ/2)‖w − wᵗ‖: of constant length."""

    def step(self, model: Model, sent: ProxSent, local: Array, *batches: Batch) -> Array:
        (D,) = batches
        away = local - sent.w
        length = np.sqrt(np.sum(away**2, -1, keepdims=True))
        pull = sent.mu / 2 * away / np.where(length == 0, 1, length)
        return local - self.lr * (model.grad(local, D) + pull)


@dataclass(frozen=True)
class LossAlone(Reference):
    def client(self, algorithm: str, model: Values, *args: Any, **inputs: Any) -> dict[str, Any]:
        out = Reference.client(self, algorithm, model, *args, **inputs)
        if "h" in out:
            out["h"] = self.loss(model, out["path"][-1], inputs["data"])
        return out


class CountGoesOn(FedProx):
    """The count of falls is not reset after a decrease."""

    def observe(self, server: ProxServer, loss: float) -> ProxServer:
        if not self.adaptive_mu:
            return server
        before = loss if server.loss is None else server.loss
        if loss > before:
            return server._replace(mu=server.mu + 0.1, falls=0, loss=loss)
        falls = server.falls + 1 if loss < before else 0
        mu = max(server.mu - 0.1, 0.0) if falls >= 5 else server.mu
        return server._replace(mu=mu, falls=falls, loss=loss)


# ---- 3, 4: second order ------------------------------------------------------------------------


class NoHessian(Wrapped):
    """A graph that is cut: nothing is differentiated twice."""

    def hvp(self, w: Array, v: Array, D: Batch) -> Array:
        return np.zeros_like(v)


class CutGraph(OtherModel):
    """A model's own Hessian is right: only what differentiates through a step is not."""

    def hvp(self, *args: Any, **inputs: Any) -> Any:
        return Reference().hvp(*args, **inputs)


def theta_twice(g: Learner) -> Learner:
    return Learner(g.theta, g.theta)


class ThetaGradientForAlpha(MetaSGD):
    def finish(self, *arguments: Any) -> ClientResult:
        return ClientResult(theta_twice(MetaSGD.finish(self, *arguments).upload))


@dataclass(frozen=True)
class ThetaForAlpha(Swapped):
    def meta_gradient(self, variant: str, *args: Any, **inputs: Any) -> Any:
        out = Reference.meta_gradient(self, variant, *args, **inputs)
        return out | ({"g_alpha": out["g_theta"]} if "g_alpha" in out else {})


# ---- 5, 6: FedMeta's server --------------------------------------------------------------------


def fresh_adam(kind: type[MAML]) -> type[MAML]:
    class FreshAdam(kind):  # type: ignore[misc, valid-type]
        """Adam's moments start at 0 in every round."""

        def combine(
            self, model: Model, server: MetaServer, uploads: Learner, cohort: Cohort
        ) -> MetaServer:
            started = server if server.adam is None else server._replace(adam=adam(server.learner))
            return kind.combine(self, model, started, uploads, cohort)

    return FreshAdam


# ---- 7, 10, 16, 17: who counts how much, and which rows ------------------------------------------


def batches_for_samples(hyper: Values, plan: Values) -> Values:
    return {"sizes": -(-plan["sizes"] // hyper["B"])}


@dataclass(frozen=True)
class CountsBatches(OtherPlan):
    def aggregate(self, *args: Any, **given: Any) -> Any:
        given["n"] = -(-given["n"] // args[-1]["B"])
        return Reference.aggregate(self, *args, **given)


def only_steps(plan: Values, kept: Array) -> Values:
    """The plan without some steps: kept (K, S) bool."""
    steps = kept.sum(1)
    order = np.argsort(~kept, axis=1, kind="stable")
    rows = {role: np.take_along_axis(r, order[..., None], 1) for role, r in plan["rows"].items()}
    return {"steps": steps, "rows": rows}


def real_steps(plan: Values) -> Array:
    S = next(iter(plan["rows"].values())).shape[1]
    return np.arange(S) < plan["steps"][:, None]


def skip_small_clients(hyper: Values, plan: Values) -> Values:
    if "D" not in plan["rows"]:  # episodes: not batches of B
        return {}
    return only_steps(plan, real_steps(plan) & (plan["sizes"] > hyper["B"])[:, None])


def drop_last(hyper: Values, plan: Values) -> Values:
    if "D" not in plan["rows"]:  # episodes: not batches of B
        return {}
    full = (next(iter(plan["rows"].values())) >= 0).sum(-1) == hyper["B"]
    return only_steps(plan, real_steps(plan) & full)


def one_iterator(hyper: Values, plan: Values) -> Values:
    rows = plan["rows"]
    return {"rows": dict.fromkeys(rows, rows["D"])} if "D1" in rows else {}


@dataclass(frozen=True)
class OneIterator(OtherPlan):
    def meta_gradient(self, variant: str, *args: Any, **inputs: Any) -> Any:
        if "D1" in inputs and inputs["D"]["y"].ndim == 1:
            inputs |= {name: inputs["D"] for name in ("D1", "D2") if name in inputs}
        return Reference.meta_gradient(self, variant, *args, **inputs)

    def client(self, *args: Any, **inputs: Any) -> dict[str, Any]:
        inputs |= one_iterator({}, inputs)
        return Reference.client(self, *args, **inputs)


@dataclass(frozen=True)
class HessianOnD(Reference):
    """What create_graph through the inner step gives: H(w; D) for H(w; D″)."""

    def meta_gradient(self, variant: str, *args: Any, **inputs: Any) -> Any:
        if "D2" in inputs:
            inputs["D2"] = inputs["D"]
        return Reference.meta_gradient(self, variant, *args, **inputs)

    def client(self, *args: Any, **inputs: Any) -> dict[str, Any]:
        rows = inputs["rows"]
        inputs["rows"] = {role: rows["D" if role == "D2" else role] for role in rows}
        return Reference.client(self, *args, **inputs)

    def plan_of(self, algorithm: str, hyper: Values, plan: Values) -> Values:
        rows = plan["rows"]
        return {**plan, "rows": {role: rows["D" if role == "D2" else role] for role in rows}}


def previous_clients_steps(hyper: Values, plan: Values) -> Values:
    """A straggler's epochs are turned into steps by the size of the client before it."""
    if not plan["straggler"].any():
        return {}
    before = np.roll(plan["per_epoch"], 1)
    most = next(iter(plan["rows"].values())).shape[1]
    steps = np.where(plan["straggler"], plan["amount"] * before, plan["steps"])
    return {"steps": np.minimum(steps, most)}


# ---- 9: a stale gradient -----------------------------------------------------------------------


class StaleGradient(Wrapped):
    """g(w; D) of the inner step is still there when u is added."""

    def grad(self, w: Array, D: Batch) -> Array:
        g = self.model.grad(w, D)
        stale = self.__dict__.setdefault("stale", np.zeros_like(g))
        self.stale = np.zeros_like(g) if np.any(stale) else g
        return g + stale


def stale(kind: type[PerFedAvg]) -> type[PerFedAvg]:
    class Stale(kind):  # type: ignore[misc, valid-type]
        def gradient(self, model: Model, w: Array, *batches: Batch) -> Array:
            unzeroed: Any = StaleGradient(model)
            return kind.gradient(self, unzeroed, w, *batches)

    return Stale


@dataclass(frozen=True)
class Unzeroed(Swapped):
    def meta_gradient(self, variant: str, model: Values, *args: Any, **inputs: Any) -> Any:
        if variant not in ("per-fedavg", "per-fedavg-fo"):
            return Reference.meta_gradient(self, variant, model, *args, **inputs)
        return Zeroless().meta_gradient(variant, model, *args, **inputs)


class Zeroless(Reference):
    def model_of(self, model: Values) -> Any:
        return StaleGradient(serialise.build_model(model))


class NeverZeroed(FedAvg):
    """Plain SGD whose gradients add up from step to step."""

    def start(self, model: Model, sent: Any, client_state: None) -> Any:
        return (sent.w, np.zeros_like(sent.w))

    def step(self, model: Model, sent: Any, local: Any, *batches: Batch) -> Any:
        w, g = local
        g = g + model.grad(w, batches[0])
        return (w - self.lr * g, g)

    def finish(self, model: Model, sent: Any, local: Any, *rest: Any) -> ClientResult:
        return ClientResult(local[0])


# ---- 12, 13: evaluation ------------------------------------------------------------------------


@dataclass(frozen=True)
class AdaptsOnTest(Reference):
    def evaluate(self, *args: Any, **given: Any) -> dict[str, Any]:
        if "D" not in given:
            raise NotImplementedError
        each = [
            Reference.evaluate(self, *args, **{**given, "tests": [T], "D": T})["losses"]
            for T in given["tests"]
        ]
        return {"losses": np.concatenate(each)}


@dataclass(frozen=True)
class EvaluationTrains(Reference):
    """Each test batch adapts anew, from where the one before had moved the model to."""

    def evaluate(
        self, algorithm: str, model: Values, hyper: Values, server: Values, tests: list[Values],
        client: Values | None = None, D: Values | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        if D is None:
            raise NotImplementedError
        losses = []
        main = next(iter(server))
        for T in tests:
            out = Reference.evaluate(
                self, algorithm, model, hyper, server=server, tests=[T], client=client, D=D
            )
            losses.append(out["losses"])
            server = {**server, main: out["w"]}
        return {"losses": np.concatenate(losses)}


# ---- 14, 15: FedCurv ---------------------------------------------------------------------------


def sends(I: Array, theta: Array, t: int) -> ClientResult:
    return ClientResult(Upload(theta, I), ClientState(I, I * theta, t))


class SquaredMean(FedCurv):
    def finish(
        self, model: Model, sent: CurvServer, local: Local, client_state: Any, data: AllData
    ) -> ClientResult:
        return sends(importance.gradient_square(model, local.theta, data()), local.theta, sent.t)


class LastBatch(FedCurv):
    def finish(
        self, model: Model, sent: CurvServer, local: Local, client_state: Any, data: AllData
    ) -> ClientResult:
        D = data()
        at = (len(D.y) - 1) // 4 * 4
        I = importance.fisher(model, local.theta, Batch(D.X[at:], D.y[at:]))
        return sends(I, local.theta, sent.t)


class SubtractsAlways(FedCurv):
    def start(self, model: Model, sent: CurvServer, client_state: ClientState | None) -> Local:
        if client_state is None:
            return FedCurv.start(self, model, sent, None)
        return Local(sent.w, client_state.I, client_state.v)


# ---- 18: what the loss is ----------------------------------------------------------------------


def without_l2(model: Any) -> Any:
    return replace(model, l2=0.0)


class SummedSVM(Wrapped):
    """Σ_j s_j ℓ_j where the mean is meant; the L2 term once."""

    def _scaled(self, name: str, D: Batch, *vectors: Array) -> Array:
        n = np.sum(np.ones(D.y.shape) if D.s is None else D.s, -1)
        data = getattr(replace(self.model, l2=0.0), name)(*vectors, D)
        rest = getattr(self.model, name)(*vectors, D) - data
        return data * n[..., None][..., :1].reshape(n.shape + (1,) * (data.ndim - n.ndim)) + rest

    def loss(self, w: Array, D: Batch) -> Array:
        return self._scaled("loss", D, w)

    def grad(self, w: Array, D: Batch) -> Array:
        return self._scaled("grad", D, w)

    def hvp(self, w: Array, v: Array, D: Batch) -> Array:
        return self._scaled("hvp", D, w, v)


def summed_svm(model: Any) -> Any:
    return SummedSVM(model) if hasattr(model, "margins") else model


# ---- 19: Hessian free --------------------------------------------------------------------------


def hessian_free(model: Any, w: Array, *batches: Batch, alpha: float, delta: float) -> Array:
    D, D1, _ = batches
    return model.grad(w - alpha * model.grad(w, D), D1)


def flipped(model: Any, w: Array, *batches: Batch, alpha: float, delta: float) -> Array:
    """u + αd."""
    from fedref.algorithms.per_fedavg import meta_gradient_hf

    u = hessian_free(model, w, *batches, alpha=alpha, delta=delta)
    return 2 * u - meta_gradient_hf(model, w, *batches, alpha=alpha, delta=delta)


def undivided(model: Any, w: Array, *batches: Batch, alpha: float, delta: float) -> Array:
    """d divided by δ: twice as large."""
    from fedref.algorithms.per_fedavg import meta_gradient_hf

    u = hessian_free(model, w, *batches, alpha=alpha, delta=delta)
    return 2 * meta_gradient_hf(model, w, *batches, alpha=alpha, delta=delta) - u


def tiny_delta(model: Any, w: Array, *batches: Batch, alpha: float, delta: float) -> Array:
    """d in single precision with δ = 10⁻⁶: rounding alone."""
    from fedref.algorithms.per_fedavg import meta_gradient_hf

    small = [Batch(D.X.astype(np.float32), D.y) for D in batches]
    g = meta_gradient_hf(model, w.astype(np.float32), *small, alpha=alpha, delta=1e-6)
    return g.astype(w.dtype)


@dataclass(frozen=True)
class OtherHF(Swapped):
    gradient: Any = None

    def algorithm_of(self, name: str, hyper: Values) -> AnyAlgorithm:
        it = Reference.algorithm_of(self, name, hyper)
        if not isinstance(it, PerFedAvgHF):
            return it
        gradient = self.gradient

        class HF(PerFedAvgHF):
            def gradient(self, model: Model, w: Array, *batches: Batch) -> Array:
                return gradient(model, w, *batches, alpha=self.alpha, delta=self.delta)

        return HF(**vars(it))

    def meta_gradient(
        self, variant: str, model: Values, hyper: Values, **inputs: Any
    ) -> Mapping[str, Any]:
        out: dict[str, Any] = Reference.meta_gradient(self, variant, model, hyper, **inputs)
        if variant != "per-fedavg-hf":
            return out
        batches = [serialise.build_batch(inputs[name]) for name in ("D", "D1", "D2")]
        settings = {name: hyper[name] for name in ("alpha", "delta")}
        made = Recorder(self.model_of(model))
        wrong = self.gradient(made, inputs["w"], *batches, **settings)
        return {"u": out["u"], "meta_gradient": wrong}


# ---- one more ----------------------------------------------------------------------------------


class MeanOfClients(FedMAML):
    """β times the mean of the clients' gradients, where the paper sums."""

    def combine(self, model: Model, server: MetaState, uploads: Any, cohort: Cohort) -> MetaState:
        mean = uploads._replace(g=uploads.g / cohort.counts.sum())
        return FedMAML.combine(self, model, server, mean, cohort)


def _weighting(kinds: tuple[str, ...], weighting: str) -> Any:
    def change(name: str, hyper: Values) -> Values:
        return {"weighting": weighting} if name in kinds else {}

    return change


def _alpha_is_beta(name: str, hyper: Values) -> Values:
    return {"alpha": hyper["beta"]} if name.startswith("per-fedavg") else {}


META = ("fedmeta-maml", "fedmeta-fomaml", "fedmeta-sgd")

MISTAKES: dict[str, Mistake] = {
    "penalty not squared": Mistake(
        1, "the gradient of (μ/2)‖w − wᵗ‖ has constant length; FedProx squares the norm",
        Swapped(swaps=((FedProx, UnsquaredProx),)),
    ),
    "the logged objective is the loss alone": Mistake(
        2, "h is what the gradient belongs to: the loss plus (μ/2)‖w − wᵗ‖²", LossAlone(),
    ),
    "first order: the inner step's graph was cut": Mistake(
        3, "this is FOMAML: in torch, the inner gradient needs create_graph=True",
        CutGraph(wrap=NoHessian),
    ),
    "the α-gradient is the θ-gradient": Mistake(
        4, "Meta-SGD's α has a gradient of its own, −q ⊙ g(θ; S)",
        ThetaForAlpha(swaps=((MetaSGD, ThetaGradientForAlpha),)),
    ),
    "the server's Adam starts afresh every round": Mistake(
        5, "with new moments each step is β times a sign: keep m, v and t across rounds",
        Swapped(swaps=((MAML, fresh_adam(MAML)), (MetaSGD, fresh_adam(MetaSGD)))),
    ),
    "FedMeta weighted by sample counts": Mistake(
        6, "the server divides by the number of clients, whatever support and query count",
        OtherValues(change=_weighting(META, "samples")),
    ),
    "weights count batches": Mistake(
        7, "p_k is n_k over the cohort's samples, not ⌈n_k/B⌉ (the length of a data loader)",
        CountsBatches(change=batches_for_samples),
    ),
    "FedProx averaged uniformly": Mistake(
        8, "with weights n_k, as FedAvg has, μ = 0 is FedAvg",
        OtherValues(change=_weighting(("fedprox",), "uniform")),
    ),
    "a stale gradient is applied again": Mistake(
        9, "g(w; D) of the inner step is added to u: nothing zeroed it",
        Unzeroed(
            swaps=((PerFedAvg, stale(PerFedAvg)), (PerFedAvgFO, stale(PerFedAvgFO)))
        ),
    ),
    "gradients add up from step to step": Mistake(
        9, "nothing zeroes the gradient between two steps of SGD",
        Swapped(swaps=((FedAvg, NeverZeroed),)),
    ),
    "clients with n ≤ B do not move but vote": Mistake(
        10, "a client with fewer rows than a batch uses all of them",
        OtherPlan(change=skip_small_clients),
    ),
    "the last, short batch is dropped": Mistake(
        10, "drop_last: a client with n < B never moves, and others lose rows",
        OtherPlan(change=drop_last),
    ),
    "α is β": Mistake(
        11, "the inner step α and the local step β are two hyperparameters",
        OtherValues(change=_alpha_is_beta),
    ),
    "adapted to the test batch": Mistake(
        12, "a client adapts to training rows; test rows are only predicted", AdaptsOnTest(),
    ),
    "evaluation trains": Mistake(
        13, "each test batch starts from the adapted model, not from what the last batch left",
        EvaluationTrains(),
    ),
    "mean of a squared gradient where squares are averaged": Mistake(
        14, "the Fisher is the mean over samples of squares, not the square of the mean",
        Swapped(swaps=((FedCurv, SquaredMean),)),
    ),
    "the Fisher of the last batch": Mistake(
        14, "the Fisher is a mean over all of a client's rows, not over its last batch",
        Swapped(swaps=((FedCurv, LastBatch),)),
    ),
    "own term subtracted from a sum it is no part of": Mistake(
        15, "a client that was not in the previous cohort has nothing to subtract",
        Swapped(swaps=((FedCurv, SubtractsAlways),)),
    ),
    "D, D′ and D″ are the same rows": Mistake(
        16, "three independent batches, not three draws from one iterator that wraps",
        OneIterator(change=one_iterator),
    ),
    "straggler steps by another client's size": Mistake(
        17, "a straggler's steps are its epochs times its own batches",
        OtherPlan(change=previous_clients_steps),
    ),
    "the L2 term is not applied": Mistake(
        18, "(l2/2)‖w‖² belongs to value, gradient and Hessian", OtherModel(wrap=without_l2),
    ),
    "the SVM's loss is summed": Mistake(
        18, "a loss is the mean over the batch", OtherModel(wrap=summed_svm),
    ),
    "HF: the sign of d is flipped": Mistake(
        19, "the meta-gradient is u − αd", OtherHF(gradient=flipped),
    ),
    "HF: divided by δ": Mistake(
        19, "a central difference divides by 2δ", OtherHF(gradient=undivided),
    ),
    "HF: δ = 10⁻⁶ in single precision": Mistake(
        19, "rounding alone: use δ = 10⁻³, or double precision", OtherHF(gradient=tiny_delta),
    ),
    "adaptive μ: the count is not reset": Mistake(
        20, "after five falls μ decreases once, and the count starts anew",
        Swapped(swaps=((FedProx, CountGoesOn),)),
    ),
    "the Hessian is taken on D, not on D″": Mistake(
        0, "differentiating through the inner step gives H(w; D)u; eq.6 has H(w; D″)u",
        HessianOnD(),
    ),
    "FedMAML averages": Mistake(
        0, "the server's meta-update sums over clients, as printed",
        Swapped(swaps=((FedMAML, MeanOfClients),)),
    ),
}  # fmt: skip
