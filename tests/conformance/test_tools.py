"""Mistakes that a backend's tools make by themselves: each is named, and its hint names the tool."""

from functools import partial
from math import ceil
from types import SimpleNamespace

import numpy as np
import pytest
from golden import GOLDEN

from fedref.conformance import naming, suite, units
from fedref.judge import errata, verdicts

torch = pytest.importorskip("torch", reason="pip install torch")
F = torch.nn.functional
functional_call = torch.func.functional_call
checkpoint = pytest.importorskip("torch.utils.checkpoint").checkpoint


@pytest.fixture(autouse=True)
def _float64():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def loss(model, w, D):
    """The mean cross-entropy of multinomial logistic regression, without an L2 term."""
    d, C = len(D["X"][0]) * model["classes"], model["classes"]
    z = torch.as_tensor(D["X"]) @ w[:d].view(-1, C) + w[d:]
    return F.cross_entropy(z, torch.as_tensor(D["y"]))


def maml(inner, outer):
    """A backend whose inner gradient is inner(model, θ, S), and which differentiates `outer`."""

    def meta_gradient(variant, model, hyper, **inputs):
        theta = torch.tensor(inputs["theta"], requires_grad=True)
        g = inner(model, theta, inputs["S"])
        after = outer(model, theta - hyper["alpha"] * g, inputs["Q"])
        return torch.autograd.grad(after, theta)[0].numpy()

    return SimpleNamespace(meta_gradient=meta_gradient)


def gradient_of(f):
    return lambda model, w, D: torch.autograd.grad(f(model, w, D), w, create_graph=True)[0]


def re_entrant(model, w, D):
    w.grad = None
    checkpoint(lambda w: loss(model, w, D), w, use_reentrant=True).backward(create_graph=True)
    return w.grad.clone()


def fedavg(gradients):
    """A backend of FedAvg's client. gradients(f, n, B) : the gradient of each local step, of (w, D)."""

    def client(algorithm, model, hyper, server, data, rows, **_):
        n, B = len(data["y"]), rows["D"].shape[-1]
        gradient = gradients(lambda w, D: loss(model, w, D), n, B)
        w = torch.tensor(server["w"])
        for index in rows["D"]:
            D = {name: x[index[index >= 0]] for name, x in data.items()}
            w = w - hyper["lr"] * gradient(w, D)
        return {"upload": {"w": w.numpy()}}

    return SimpleNamespace(client=client)


def differentiate(f, w, D):
    w = w.clone().requires_grad_()
    return torch.autograd.grad(f(w, D), w)[0]


def plainly(f, n, B):
    return lambda w, D: differentiate(f, w, D)


def with_expected_batch_size(f, n, B):
    """What Opacus's optimiser does: the sum of the samples' gradients over its `expected_batch_size`."""
    expected = int(n * (1 / ceil(n / B)))  # PrivacyEngine.make_private: rows × 1/len(data_loader)
    return lambda w, D: differentiate(f, w, D) * len(D["y"]) / expected


def cast(**options):
    """A backend of FedAvg's client, of whose local loop torch.autocast rounds the products."""

    def client(algorithm, model, hyper, server, data, rows, **_):
        X, y = torch.tensor(data["X"]), torch.tensor(data["y"])
        W = torch.nn.Parameter(
            torch.tensor(server["w"][: -model["classes"]]).view(-1, model["classes"])
        )
        b = torch.nn.Parameter(torch.tensor(server["w"][-model["classes"] :]))
        optimiser = torch.optim.SGD([W, b], hyper["lr"], weight_decay=model["l2"])
        with torch.autocast("cpu", torch.bfloat16, **options):
            for index in rows["D"]:
                own = index[index >= 0]
                optimiser.zero_grad()
                F.cross_entropy((X[own] @ W + b).float(), y[own]).backward()
                optimiser.step()
        return {"upload": {"w": torch.cat([W.ravel(), b]).detach().numpy()}}

    return SimpleNamespace(client=client)


class Normed(torch.nn.Module):
    """A linear layer under weight_norm, W = g V/‖V‖; with g = ‖V‖ its loss is that of V itself."""

    def __init__(self, features, classes):
        super().__init__()
        linear = torch.nn.Linear(features, classes)
        self.layer = torch.nn.utils.parametrizations.weight_norm(linear)

    def forward(self, w, model, D):
        features, classes = model["shapes"][0]
        V = w[: features * classes].view(features, classes).T
        names = "parametrizations.weight.original0", "parametrizations.weight.original1", "bias"
        values = dict(zip(names, (V.norm(dim=1, keepdim=True), V, w[V.numel() :])))
        z = functional_call(self.layer, values, torch.as_tensor(D["X"]))
        each = F.cross_entropy(z, torch.as_tensor(D["y"]), reduction="none")
        s = torch.as_tensor(D.get("s", np.ones(len(each))))
        return s @ each / s.sum() + model["l2"] / 2 * (w @ w)


def differentiate_normed(model, w, D):
    """Return w as a tensor, and the gradient of the loss behind weight_norm, with its graph."""
    w = torch.tensor(w, requires_grad=True)
    after = Normed(*model["shapes"][0])(w, model, D)
    return w, torch.autograd.grad(after, w, create_graph=True)[0]


def grad(model, w, D):
    return differentiate_normed(model, w, D)[1].detach().numpy()


def hvp(model, w, v, D):
    w, g = differentiate_normed(model, w, D)
    return torch.autograd.grad(g @ torch.tensor(v), w)[0].numpy()


class Corrected(torch.nn.Module):
    """SCAFFOLD's client: its c_i is a buffer, renewed in place, as BatchNorm's statistics are."""

    def __init__(self, d):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(d))
        self.register_buffer("c_i", torch.zeros(d))

    def forward(self, f, c, lr, batches):
        y = self.w.detach()
        for D in batches:
            y = y - lr * (differentiate(f, y, D) - self.c_i + c)
        self.c_i += (self.w.detach() - y) / (len(batches) * lr) - c
        return y


def scaffold(make_buffers):
    """A backend of SCAFFOLD's rounds. make_buffers(net) : the buffers that a client's call is given."""

    def round(algorithm, model, hyper, state, data, plan):
        server, clients = state["server"], dict(state.get("clients", {}))
        w, c = (torch.tensor(server[name]) for name in ("w", "c"))
        net, ends, changes = Corrected(len(w)), [], []
        for k, rows, straggler in zip(plan["clients"], plan["rows"]["D"], plan["straggler"]):
            if hyper["drop"] and straggler:
                continue
            buffers = make_buffers(net)
            if k in clients:
                buffers["c_i"].copy_(torch.tensor(clients[k]["c_i"]))
            c_i = buffers["c_i"].clone()
            own = slice(data["offsets"][k], data["offsets"][k + 1])
            batches = [{name: data[name][own][index[index >= 0]] for name in ("X", "y")}
                       for index in rows if (index >= 0).any()]  # fmt: skip
            f = partial(loss, model)
            y = functional_call(net, {"w": w, **buffers}, (f, c, hyper["lr"], batches))
            clients[k] = {"c_i": buffers["c_i"].clone().numpy()}
            ends.append(y - w)
            changes.append(buffers["c_i"] - c_i)
        w = w + hyper["server_lr"] * sum(ends) / len(ends)
        c = c + sum(changes) / (len(data["offsets"]) - 1)
        return {"server": {"w": w.numpy(), "c": c.numpy()}, "clients": clients}

    return SimpleNamespace(round=round)


def shared(net):
    return dict(
        net.named_buffers()
    )  # what functional_call and learn2learn's clones do by themselves


def copied(net):
    return {name: x.clone() for name, x in Corrected(len(net.w)).named_buffers()}


FIRST_ORDER = "first order: the inner step's graph was cut"
HESSIAN = "H v is wrong where the gradient is right: a layer's norm counts as a constant"
STANDS, SHORT = "the local model does not move between steps", "the mean over a short batch"
LEAK = "a client's state leaks to a new client"
META, CLIENT = [GOLDEN["meta-fedmeta-maml-logistic"]], [GOLDEN["client-uneven-fedavg"]]


def report_of(backend, cases, dtype="float64"):
    results = list(suite.run(backend, cases, dtype))
    return naming.name_mistakes(results, cases, dtype)


def test_a_plain_loss_passes():
    assert {r.status for r in report_of(maml(gradient_of(loss), loss), META)} == {verdicts.PASSED}
    assert {r.status for r in report_of(fedavg(plainly), CLIENT)} == {verdicts.PASSED}


@pytest.mark.filterwarnings("ignore")  # torch's on create_graph=True
@pytest.mark.parametrize(
    ("tool", "inner"),
    [
        ("torch.compile", lambda: gradient_of(torch.compile(loss, backend="aot_eager"))),
        ("torch.utils.checkpoint", lambda: re_entrant),
    ],
)
def test_an_inner_gradient_whose_graph_a_tool_cuts_is_first_order(tool, inner):
    torch._dynamo.reset()
    results = report_of(maml(inner(), loss), META)
    assert [r.mistakes for r in results] == [(FIRST_ORDER,)]
    assert tool in errata.MISTAKES[FIRST_ORDER].why


def test_a_local_loop_in_one_region_of_autocast_is_named():
    """Products are rounded to bfloat16: tolerances are that unit's. Without its cache a region is right."""
    cases = units.with_units(CLIENT, {"client": units.UNITS["bfloat16"]})
    (right,) = report_of(cast(cache_enabled=False), cases, "float32")
    assert right.status == verdicts.PASSED
    (wrong,) = report_of(cast(), cases, "float32")
    assert wrong.mistakes == (STANDS,)
    assert "torch.autocast" in errata.MISTAKES[STANDS].why


def test_a_mean_over_the_expected_batch_is_named():
    (result,) = report_of(fedavg(with_expected_batch_size), CLIENT)
    assert result.mistakes == (SHORT,)
    assert "Opacus" in errata.MISTAKES[SHORT].why


def test_a_hessian_through_weight_norm_is_named_and_the_gradient_is_right():
    cases = [GOLDEN["grad-logistic"], GOLDEN["hvp-logistic"]]
    right, wrong = report_of(SimpleNamespace(grad=grad, hvp=hvp), cases)
    assert right.status == verdicts.PASSED
    assert wrong.mistakes == (HESSIAN,)
    assert "weight_norm" in errata.MISTAKES[HESSIAN].why


def test_buffers_that_clients_share_are_named():
    """The buffer holds c_i here; in a network, the statistics of BatchNorm."""
    cases = [GOLDEN["round-stragglers-scaffold"]]
    (right,), (wrong,) = (report_of(scaffold(buffers), cases) for buffers in (copied, shared))
    assert right.status == verdicts.PASSED
    assert wrong.mistakes == (LEAK,)
    assert all(tool in errata.MISTAKES[LEAK].why for tool in ("functional_call", "learn2learn"))
