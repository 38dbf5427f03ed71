"""An experiment as data: what is refused, and in which words."""

import numpy as np
import pytest
from running import TINY, algorithms, document

from fedref import ConfigError
from fedref.experiments import config

# ---- refused -------------------------------------------------------------------------------------

REFUSED = {
    "top key": (document(rouns=3), r"^unknown key 'rouns': did you mean 'rounds'\? known are "),
    "no table": (document(data="digits"), r"^data is 'digits', expected a table"),
    "no table 2": (document(split=3), r"^split is 3, expected a table"),
    "no table 3": (document(model=["mlp"]), r"^model is \['mlp'\], expected a table"),
    "no table 4": (document(algorithms=["fedavg"]), r"^algorithms is \['fedavg'\], expected a tab"),
    "no table 5": (
        document(algorithms={"fedavg": 0.1}),
        r"^algorithms\.fedavg is 0\.1, expected a",
    ),
    "no table 6": (document(sweep=[1]), r"^sweep is \[1\], expected a table"),
    "arrays": (
        document(data={"X": np.zeros((4, 2)), "y": np.zeros(4)}),
        r"^data is a table with the arrays X, y; expected data=\(X, y\) or \(X, y, client\)$",
    ),
    "algorithm": (
        document(algorithms=algorithms("fedavgg")),
        r"^unknown algorithm 'fedavgg': did you mean 'fedavg'\?",
    ),
    "algorithm 2": (
        document(algorithms=algorithms(mine={"algorithm": "fedporx"})),
        r"^unknown algorithm 'fedporx': did you mean 'fedprox'\?",
    ),
    "algorithm 3": (
        document(algorithms=algorithms(fedavg={"algorithm": 3})),
        "algorithm 3: is no",
    ),
    "no algorithm": (document(algorithms={}), r"^no algorithm is named, expected one of fedavg, "),
    "label": (document(algorithms={"a/b": {"algorithm": "fedavg"}}), "the label of an algorithm"),
    "hyperparameter": (
        document(algorithms=algorithms(fedavg={"lrr": 1.0})),
        r"^unknown key of algorithms\.fedavg 'lrr': did you mean 'lr'\?",
    ),
    "hyperparameter type": (
        document(algorithms=algorithms(fedavg={"lr": "fast"})),
        r"^algorithms\.fedavg lr is 'fast', expected a finite number",
    ),
    "bool is no number": (
        document(algorithms=algorithms(fedavg={"lr": True})),
        "lr is True, expec",
    ),
    "number is no bool": (
        document(algorithms=algorithms(fedavg={"drop": 1})),
        "drop is 1, expected",
    ),
    "infinite": (
        document(algorithms=algorithms(fedavg={"lr": float("inf")})),
        "lr is inf, expected",
    ),
    "nan": (document(model={"name": "mlp", "l2": float("nan")}), "l2 is nan, expected a finite"),
    "data name": (document(data={"name": 3}), r"^data name is 3, expected a string"),
    "data key": (
        document(data={"name": "digits", "part": "x"}),
        "unknown parameter of digits 'part'",
    ),
    "data value": (
        document(data={"name": "synthetic", "users": "few"}),
        r"synthetic: users is 'few', expected a whole number, at least 1",
    ),
    "split": (
        document(split={"rule": "per-fedvag"}),
        r"^unknown split rule 'per-fedvag': did you mean 'per-fedavg'\?",
    ),
    "split key": (
        document(split={"rule": "iid", "user": 3}),
        r"^unknown parameter of iid 'user': did you mean 'users'\?",
    ),
    "split value": (
        document(split={"rule": "iid", "users": 0}),
        "users is 0, expected a whole numb",
    ),
    "split seed": (
        document(split={"rule": "iid", "seed": 0.5}),
        "split seed is 0.5, expected a whole",
    ),
    "manifest": (
        document(split={"rule": "split.json", "users": 3}),
        "split.json is a manifest and takes no parameter, got users",
    ),
    "model": (document(model={"name": "mlpp"}), r"^unknown model 'mlpp': did you mean 'mlp'\?"),
    "model name": (document(model={"name": 1}), r"^model name is 1, expected a string"),
    "model key": (
        document(model={"name": "mlp", "hiden": [3]}),
        r"^unknown key of model mlp 'hiden': did you mean 'hidden'\?",
    ),
    "model key of the data": (
        document(model={"name": "logistic", "classes": 3}),
        "unknown key of model logistic 'classes'",
    ),
    "model value": (document(model={"name": "mlp", "hidden": 40}), "hidden is 40, expected a list"),
    "model values": (
        document(model={"name": "mlp", "hidden": [4.5]}),
        "hidden is 4.5, expected a w",
    ),
    "rounds": (document(rounds=-1), r"^rounds is -1, expected a whole number, at least 0"),
    "rounds type": (document(rounds="ten"), r"^rounds is 'ten', expected a whole number"),
    "rounds float": (document(rounds=1.5), r"^rounds is 1\.5, expected a whole number"),
    "rounds bool": (document(rounds=True), r"^rounds is True, expected a whole number"),
    "rounds huge": (
        document(rounds=2**70),
        "whole number, at least 0, below 2",
    ),
    "clients": (
        document(clients_per_round=0),
        r"^clients-per-round is 0, expected a w",
    ),
    "both": (document(steps=3), r"^both epochs and steps are set, expected one of them"),
    "seeds": (document(seed=1, seeds=[1]), r"^both seed and seeds are set, expected one of them"),
    "seed": (document(seed="1"), r"^seeds is '1', expected a whole number"),
    "negative seed": (document(seed=-1), r"^seeds are \[-1\], expected different integers ≥ 0"),
    "same seeds": (document(seeds=[1, 1]), r"^seeds are \[1, 1\], expected different"),
    "no seed": (document(seeds=[]), r"^seeds are \[\]"),
    "batch": (document(batch_size=-1), r"^batch-size is -1, expected a whole number, at least 0"),
    "eval": (document(eval_every=0), r"^eval-every is 0, expected a whole number, at least 1"),
    "eval type": (document(eval_train="yes"), r"^eval-train is 'yes', expected true or false"),
    "sampling": (
        document(sampling="unifrom"),
        r"^unknown sampling 'unifrom': did you mean 'uniform'",
    ),
    "stragglers": (
        document(stragglers=1.5),
        r"^stragglers is 1\.5, .*at least 0 and at most 1",
    ),
    "support": (
        document(support=1),
        r"^support is 1, expected a finite number, above 0 and below 1",
    ),
    "unseen": (
        document(unseen=1),
        r"^unseen is 1, expected a finite number, at least 0 and below 1",
    ),
    "dtype": (document(dtype="float16"), r"^unknown dtype 'float16': did you mean 'float"),
    "policy": (document(on_failure="ignore"), r"^unknown on-failure 'ignore'"),
    "name": (document(name="a/b"), r"^name is 'a/b', expected a word that can be part of a file"),
    "name up": (document(name=".."), r"^name is '\.\.', expected a word"),
    "twice": (
        {**TINY, "batch_size": 3},
        r"^the experiment sets batch-size twice, with a dash and an underscore",
    ),
    "twice below": (
        document(split={"rule": "per-fedavg", "a-test": 2, "a_test": 4}),
        r"^split sets a-test twice",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_what_and_where(name):
    table, message = REFUSED[name]
    with pytest.raises(ConfigError, match=message) as error:
        config.from_table(table)
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match=r"^my\.toml: ") as named:
        config.from_table(table, "my.toml")
    assert str(named.value) == f"my.toml: {error.value}"


def test_the_tiny_experiment_that_the_refused_ones_differ_from_is_right():
    assert config.from_table(TINY).rounds == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"rounds = ", "is not TOML"),
        (b"\xff\xfe", "is not TOML"),
        (b"x = " + b"9" * 5000, "is not TOML"),
        (b"x = " + b"[" * 50_000, "is not TOML"),
        (b"rounds = 1\nrounds = 2", "is not TOML"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_no_toml_is_named(tmp_path, text, message):
    path = tmp_path / "my.toml"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(ConfigError, match=rf"my\.toml: {message}"):
        config.read(path)
