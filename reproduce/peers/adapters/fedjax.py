"""FedJAX: `federated_averaging`, `fed_prox` and APFL (fedjax/algorithms), batches in our order."""

import jax
import jax.numpy as jnp
import numpy as np
from fedjax.algorithms import apfl, fed_avg, fed_prox
from fedjax.core import client_datasets, optimizers

jax.config.update("jax_enable_x64", True)


class Dataset:
    """A client's data as FedJAX reads it, with the plan's batches in place of shuffled ones."""

    def __init__(self, data, rows):
        self.batches = [{k: data[k][r[r >= 0]] for k in ("X", "y")} for r in rows]
        self.size = len(data["y"])

    def __len__(self):
        return self.size

    def shuffle_repeat_batch(self, hparams):
        return self.batches


def sample_losses(model, w, D):
    cuts = np.cumsum([int(np.prod(shape)) for shape in model["shapes"]])[:-1]
    layers = [x.reshape(s) for x, s in zip(jnp.split(w, cuts), model["shapes"])]
    *hidden, W, b = layers
    a = D["X"]
    for U, c in zip(hidden[::2], hidden[1::2]):
        a = jax.nn.elu(a @ U + c)
    return -jnp.take_along_axis(jax.nn.log_softmax(a @ W + b), D["y"][:, None], 1)[:, 0]


def client(algorithm, model, hyper, server, data, rows, client=None):
    sgd, hparams = optimizers.sgd, client_datasets.ShuffleRepeatBatchHParams(batch_size=4)
    common = sgd(hyper["lr"]), sgd(1.0), hparams
    grad = jax.grad(lambda w, D, rng: sample_losses(model, w, D).mean())
    if algorithm == "fedavg":
        it = fed_avg.federated_averaging(grad, *common)
    elif algorithm == "fedprox":
        each = lambda w, D, rng: sample_losses(model, w, D)  # noqa: E731
        it = fed_prox.fed_prox(each, *common, hyper["mu"])
    else:
        it = apfl.adaptive_personalized_federated_learning(grad, *common, float(client["a"]))
    state = it.init(jnp.asarray(server["w"]))
    if client:
        state.client_states["k"] = apfl.ClientState(
            jnp.asarray(client["v"]), jnp.asarray(client["a"])
        )
    state, _ = it.apply(state, [("k", Dataset(data, rows["D"]), jax.random.PRNGKey(0))])
    kept = {"client": {"v": np.asarray(state.client_states["k"].params)}} if client else {}
    return {"upload": {"w": np.asarray(state.params)}, **kept}
