"""An experiment as data: what is refused, and in which words."""

import numpy as np
import pytest
from running import TINY, algorithms, document

from fedref import ConfigError
from fedref.experiments import config

# ---- refused -------------------------------------------------------------------------------------

#: What is other than in TINY, and what is said of it.
REFUSED = [
    (document(rouns=3), r"^unknown key 'rouns': did you mean 'rounds'\? known are "),
    (document(data="digits"), r"^data is 'digits', expected a table"),
    (document(split=3), r"^split is 3, expected a table"),
    (document(model=["mlp"]), r"^model is \['mlp'\], expected a table"),
    (document(algorithms=["fedavg"]), r"^algorithms is \['fedavg'\], expected a tab"),
    (document(algorithms={"fedavg": 0.1}), r"^algorithms\.fedavg is 0\.1, expected a"),
    (document(sweep=[1]), r"^sweep is \[1\], expected a table"),
    (
        document(data={"features": np.zeros((4, 2)), "y": np.zeros(4)}),
        r"^data is a table with the arrays features, y, expected X and y$",
    ),
    (
        document(algorithms=algorithms("fedavgg")),
        r"^unknown algorithm 'fedavgg': did you mean 'fedavg'\?",
    ),
    (
        document(algorithms=algorithms(mine={"algorithm": "fedporx"})),
        r"^unknown algorithm 'fedporx': did you mean 'fedprox'\?",
    ),
    (document(algorithms=algorithms(fedavg={"algorithm": 3})), "algorithm 3: is no"),
    (document(algorithms={}), r"^no algorithm is named, expected one of fedavg, "),
    (document(algorithms={"a/b": {"algorithm": "fedavg"}}), "the label of an algorithm"),
    (
        document(algorithms=algorithms(fedavg={"lrr": 1.0})),
        r"^unknown key of algorithms\.fedavg 'lrr': did you mean 'lr'\?",
    ),
    (
        document(algorithms=algorithms(fedavg={"lr": "fast"})),
        r"^algorithms\.fedavg lr is 'fast', expected a finite number",
    ),
    (document(algorithms=algorithms(fedavg={"lr": True})), "lr is True, expec"),
    (document(algorithms=algorithms(fedavg={"drop": 1})), "drop is 1, expected"),
    (document(algorithms=algorithms(fedavg={"lr": float("inf")})), "lr is inf, expected"),
    (document(model={"name": "mlp", "l2": float("nan")}), "l2 is nan, expected a finite"),
    (document(data={"name": 3}), r"^data name is 3, expected a string"),
    (document(data={"name": "digits", "part": "x"}), "unknown key of digits 'part'"),
    (
        document(data={"name": "synthetic", "users": "few"}),
        r"synthetic users is 'few', expected a whole number, at least 1",
    ),
    (
        document(split={"rule": "per-fedvag"}),
        r"^unknown split rule 'per-fedvag': did you mean 'per-fedavg'\?",
    ),
    (
        document(split={"rule": "iid", "user": 3}),
        r"^unknown key of iid 'user': did you mean 'users'\?",
    ),
    (document(split={"rule": "iid", "users": 0}), "users is 0, expected a whole numb"),
    (document(split={"rule": "iid", "seed": 0.5}), "split seed is 0.5, expected a whole"),
    (
        document(split={"rule": "split.json", "users": 3}),
        "split.json is a manifest and takes no parameter, got users",
    ),
    (document(model={"name": "mlpp"}), r"^unknown model 'mlpp': did you mean 'mlp'\?"),
    (document(model={"name": 1}), r"^model name is 1, expected a string"),
    (
        document(model={"name": "mlp", "hiden": [3]}),
        r"^unknown key of model mlp 'hiden': did you mean 'hidden'\?",
    ),
    (document(model={"name": "logistic", "classes": 3}), "unknown key of model logistic 'classes'"),
    (document(model={"name": "mlp", "hidden": 40}), "hidden is 40, expected a list"),
    (document(model={"name": "mlp", "hidden": [4.5]}), "hidden is 4.5, expected a w"),
    (document(rounds=-1), r"^rounds is -1, expected a whole number, at least 0"),
    (document(rounds="ten"), r"^rounds is 'ten', expected a whole number"),
    (document(rounds=1.5), r"^rounds is 1\.5, expected a whole number"),
    (document(rounds=True), r"^rounds is True, expected a whole number"),
    (document(rounds=2**70), "whole number, at least 0, below 2"),
    (document(clients_per_round=0), r"^clients-per-round is 0, expected a w"),
    (document(steps=3), r"^both epochs and steps are set, expected one of them"),
    (document(seed=1, seeds=[1]), r"^both seed and seeds are set, expected one of them"),
    (document(seed="1"), r"^seeds is '1', expected a whole number"),
    (document(seed=-1), r"^seeds are \[-1\], expected different integers ≥ 0"),
    (document(seeds=[1, 1]), r"^seeds are \[1, 1\], expected different"),
    (document(seeds=[]), r"^seeds are \[\]"),
    (document(batch_size=-1), r"^batch-size is -1, expected a whole number, at least 0"),
    (document(eval_every=0), r"^eval-every is 0, expected a whole number, at least 1"),
    (document(eval_train="yes"), r"^eval-train is 'yes', expected true or false"),
    (document(sampling="unifrom"), r"^unknown sampling 'unifrom': did you mean 'uniform'"),
    (document(stragglers=1.5), r"^stragglers is 1\.5, .*at least 0 and at most 1"),
    (document(support=1), r"^support is 1, expected a finite number, above 0 and below 1"),
    (document(unseen=1), r"^unseen is 1, expected a finite number, at least 0 and below 1"),
    (document(dtype="float16"), r"^unknown dtype 'float16': did you mean 'float"),
    (document(on_failure="ignore"), r"^unknown on-failure 'ignore'"),
    (document(name="a/b"), r"^name is 'a/b', expected a word that can be part of a file"),
    (document(name=".."), r"^name is '\.\.', expected a word"),
    (
        {**TINY, "batch_size": 3},
        r"^the experiment sets batch-size twice, with a dash and an underscore",
    ),
    (document(split={"rule": "per-fedavg", "a-test": 2, "a_test": 4}), r"^split sets a-test twice"),
]


@pytest.mark.parametrize(("table", "message"), REFUSED)
def test_refused_with_what_and_where(table, message):
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
