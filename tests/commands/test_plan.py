"""`fedref plan export`: what a program without fedref can do with it."""

import json

import numpy as np
import pytest
from running import algorithms, document, main, refused, write

import fedref

pytestmark = pytest.mark.usefixtures("here")


def exported(here, table: dict, *words) -> dict:
    """Run the experiment, export its plans to here/p, and return their index."""
    assert main("run", write(here / "t.toml", table), "-q", "-o", "a") == 0
    assert main("plan", "export", "a", "-o", "p", *words) == 0
    return json.loads((here / "p" / "index.json").read_text("utf-8"))


def softmax_gradient(W, b, X, y):
    """Return (∂/∂W, ∂/∂b) of the mean cross-entropy of multinomial logistic regression."""
    z = X @ W + b
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    return X.T @ p / len(y), p.mean(0)


@pytest.mark.parametrize("more", [{}, {"epochs": None, "steps": 4}], ids=["epochs", "steps"])
def test_fedavg_replayed_by_hand_with_plain_numpy(here, more):
    table = document(rounds=4, stragglers=0.4, sampling="by-samples", **more)
    table = {key: value for key, value in table.items() if value is not None}
    index = exported(here, table)
    (unit,) = index["units"]
    lr = unit["hyperparameters"]["lr"]
    data = np.load(here / "p" / unit["data"])
    X = (data["X"] - data.get("shift", 0.0)) / data.get("scale", 1.0)
    y, features, classes = data["y"], X.shape[1], int(data["y"].max()) + 1
    w = np.load(here / "p" / unit["folder"] / "start.npz")["w"]
    for t in range(*unit["rounds"]):
        plan = np.load(here / "p" / unit["folder"] / f"{t:06d}.npz")
        sent, share = [], []
        for k in range(len(plan["clients"])):
            if plan["straggler"][k]:
                continue  # FedAvg drops them
            W, b = w[:-classes].reshape(features, classes).copy(), w[-classes:].copy()
            for rows in plan["rows.D"][k, : plan["steps"][k]]:
                rows = rows[rows >= 0]
                gradient = softmax_gradient(W, b, X[rows], y[rows])
                W -= lr * gradient[0]
                b -= lr * gradient[1]
            sent.append(np.concatenate([W.ravel(), b]))
            share.append(plan["counts"][k] * plan["sizes"][k])
        if sent:
            w = np.average(sent, axis=0, weights=share)
    expected = fedref.load_run("a").parameters("fedavg").server.w
    np.testing.assert_allclose(w, expected, rtol=0, atol=1e-13)
    assert np.abs(w).max() > 0.01


@pytest.mark.parametrize(
    ("key", "values"),
    [("split.users", [10, 12]), ("unseen", [0.0, 0.3]), ("classes", ["all", "own"])],
)
def test_rows_are_those_of_the_clients_and_of_every_role(here, key, values):
    tables = algorithms("per-fedavg", "fedmeta-maml", "centralised")
    split = {"rule": "shards", "users": 10}
    table = document(algorithms=tables, split=split, seeds=[2, 5], sweep={key: values})
    index = exported(here, table)
    assert len(index["units"]) == 2 * 2 * 3
    pairs = {(unit["sweep"][key], unit["data"]) for unit in index["units"]}
    assert pairs == set(zip(values, ("data-0.npz", "data-1.npz")))
    run = fedref.load_run("a")
    for unit in index["units"]:
        data = np.load(here / "p" / unit["data"])
        for t in range(3):
            plan = np.load(here / "p" / unit["folder"] / f"{t:06d}.npz")
            planned = run.plan(t, unit["label"], unit["seed"], **unit["sweep"])
            for role in unit["roles"]:
                rows = plan[f"rows.{role}"]
                assert ((rows == -1) == (planned.rows[role] == -1)).all()
                for k, exported_rows in zip(plan["clients"], rows):
                    held = data["train_rows"]
                    if unit["label"] != "centralised":
                        held = held[data["train_offsets"][k] : data["train_offsets"][k + 1]]
                    assert np.isin(exported_rows[exported_rows >= 0], held).all()
                    if unit["label"] != "centralised":
                        assert (
                            held[planned.rows[role][list(plan["clients"]).index(k)]]
                            == exported_rows
                        )[exported_rows >= 0].all()
    assert not np.isin(data["test_rows"], data["train_rows"]).any()


def test_some_rounds_are_exported_and_nothing_is_overwritten(here, capsys):
    model = {"name": "mlp", "hidden": [3]}
    table = document(model=model, seeds=[6], keep_parameters=3)
    index = exported(here, table, "--rounds", "1:3")
    assert index["units"][0]["rounds"] == [1, 3]
    folder = here / "p" / "0000-fedavg-seed6"
    assert sorted(path.name for path in folder.iterdir()) == [
        "000001.npz", "000002.npz", "start.npz"
    ]  # fmt: skip
    start = fedref.load_run("a").parameters("fedavg", 0).server.w
    assert np.array_equal(np.load(folder / "start.npz")["w"], start)
    assert np.unique(start).size > 3
    assert "p already holds plans" in refused(capsys, "plan", "export", "a", "-o", "p")


def test_help_says_what_is_written(capsys, here):
    assert main("plan", "export", "--help") == 0
    shown = capsys.readouterr().out
    exported(here, document(rounds=1))
    for name in ("start", "000000"):
        for key in np.load(here / "p" / "0000-fedavg-seed0" / f"{name}.npz").files:
            assert key.replace("rows.D", "rows.ROLE") in shown
    for key in np.load(here / "p" / "data-0.npz").files:
        assert key in shown
