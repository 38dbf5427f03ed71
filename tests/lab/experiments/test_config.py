"""An experiment as data: what is filled in and changed, and that it is written back exactly."""

import re
import tomllib
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import TINY, algorithms, document, experiment

from fedref import ConfigError
from fedref.algorithms import ALGORITHMS, HYPERPARAMETERS, MEANINGS
from fedref.boundary.values import literal
from fedref.lab.datasets.rules import RULES
from fedref.lab.experiments import config
from fedref.lab.experiments.config import Experiment
from fedref.lab.experiments.loading import known_labels, make_model
from fedref.lab.experiments.unit import units
from fedref.models import CNN, MODELS, BinaryLogistic, LinearSVM
from fedref.rounds.federation import Source


@pytest.mark.parametrize(
    ("data", "rule", "model"),
    [
        ("digits", "per-fedavg", "mlp"),
        ("synthetic(0.5,0.5)", "natural", "logistic"),
        ("emnist(letters,a-j)", "fedprox-femnist", "logistic"),
        ("cifar10-gray", "cifar10-powerlaw", "cnn"),
        ("vehicle", "natural", "svm"),
        ("shakespeare(step=20)", "natural", "lstm"),
        ("some/folder", "natural", "logistic"),
    ],
)
def test_split_and_model_are_what_is_usual_for_the_data(data, rule, model):
    made = experiment({"data": {"name": data}, "algorithms": {"fedavg": {}}, "seed": 7})
    assert (made.split["rule"], made.model["name"]) == (rule, model)
    assert (made.steps, made.epochs, made.seeds) == (10, None, (7,))


VARIED = {
    **{name: document(algorithms=algorithms(name)) for name in ALGORITHMS},
    **{f"model {name}": document(model={"name": name}) for name in MODELS},
    **{f"split {name}": document(split={"rule": name}) for name in RULES},
    "iid of": document(split={"rule": "iid", "of": "shards", "shards": 3}),
    "synthetic": document(data={"name": "synthetic-iid(users=3)"}, split={"rule": "natural"}),
    "manifest": document(split={"rule": "some/split.json"}),
    "labels": document(algorithms={"my_own.label-1": {"algorithm": "apfl", "z": 5}}),
    "steps": {key: value for key, value in document(steps=4).items() if key != "epochs"},
    "sweep": document(
        algorithms={"a_b": {"algorithm": "fedprox"}},
        sweep={"mu": [0.0, 1.0], "model": {"l2": [0.1]}, "algorithms.a_b.until_gamma": [0.5]},
    ),
    "built in": config.built_in_table(),
}


@pytest.mark.parametrize("name", VARIED)
def test_written_back_is_the_same_experiment(name):
    made = experiment(VARIED[name])
    text = config.toml_text(made)
    again = experiment(tomllib.loads(text))
    assert again == made
    assert config.toml_text(again) == text


@given(st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(st.sampled_from(["name", "rule", "fedavg", "lr", "seed", "x"]), inner,
                        max_size=2),
    ),
    max_leaves=5,
), st.sampled_from([*sorted(TINY), "data", "sweep", "seed", "seeds", "dtype"]))  # fmt: skip
def test_no_value_makes_anything_but_an_experiment_or_one_line(value, key):
    table = {**TINY, key: value}
    message = ""
    try:
        [*config.sweep_points(experiment(table))]
    except ConfigError as error:
        message = str(error)
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10", 10), ("-.5", -0.5), ("1.e-3", 1e-3), ("true", True), ("True", "True"),
        ("[40, 3]", [40, 3]), ('"10"', "10"), ("", ""), ("0:5", "0:5"), ("9" * 5000, "9" * 5000),
    ],
)  # fmt: skip
def test_a_value_on_the_command_line_is_toml_or_a_word(text, value):
    assert literal(text) == value
    assert type(literal(text)) is type(value)


def test_every_hyperparameter_is_explained_and_every_explained_one_exists():
    known = {f.name for cls in ALGORITHMS.values() for f in fields(cls)}
    assert known == set(HYPERPARAMETERS)
    assert not known & {f.name for f in fields(Experiment)}  # or a flag would mean two things


@pytest.mark.parametrize(
    ("names", "setting", "lines"),
    [
        ("per-fedavg feddyn apfl-deng", ("alpha", 0.05),
         "--set per-fedavg.alpha=0.05 --set feddyn.alpha=0.05 --set apfl-deng.alpha=0.05"),
        ("fedmeta-maml per-fedavg-fo fedavg", ("beta", 1),
         "--set fedmeta-maml.beta=1 --set per-fedavg-fo.beta=1"),
        ("pfedme fedcurv", ("lam", 0.5), "--set pfedme.lam=0.5 --set fedcurv.lam=0.5"),
        ("fedprox apfl", ("sweep.mu", [0.1, 1]),
         "--set 'sweep.fedprox.mu=[0.1,1]' --set 'sweep.apfl.mu=[0.1,1]'"),
        ("all", ("mu", 0.1), "--set fedprox.mu=0.1 --set apfl.mu=0.1"),
        ("fedref.spec:feddyn per-fedavg", ("alpha", 1), "--set feddyn.alpha=1 --set per-fedavg.alpha=1"),
    ],
)  # fmt: skip
def test_a_setting_with_two_meanings_is_refused_with_the_lines_to_paste(names, setting, lines):
    with pytest.raises(ConfigError) as error:
        config.compose(names.split(), [setting])
    assert str(error.value).endswith(f"; expected it for those that you mean: {lines}")
    words = [
        word.removeprefix("--set ") for word in re.split(" (?=--set )", lines.replace("'", ""))
    ]
    made = config.compose(
        names.split(), [(k, literal(x)) for k, x in (w.split("=") for w in words)]
    )
    for label in () if made.sweep else (word.partition(".")[0] for word in words):
        assert getattr(made.algorithms[label], setting[0]) == setting[1]
    assert list(made.sweep) == [word.partition("=")[0][6:] for word in words if made.sweep]


def test_a_setting_applies_where_it_means_the_same_and_in_files_as_before():
    made = config.compose(
        ["per-fedavg", "per-fedavg-hf", "fedavg-update", "fedmeta-sgd"], [("alpha", 0.3)]
    )
    assert {one.alpha for one in made.algorithms.values()} == {0.3}
    table = document(algorithms=algorithms("per-fedavg", "feddyn"), alpha=0.3)
    assert {one.alpha for one in config.compose(table, []).algorithms.values()} == {0.3}
    for name, meanings in MEANINGS.items():
        assert all(hasattr(ALGORITHMS[label], name) for label in meanings)


def test_a_sweep_of_one_algorithm_leaves_the_others_alone():
    how = {"sweep.per-fedavg.alpha": [0.1, 0.2], "rounds": 0}
    made = config.compose(["per-fedavg", "feddyn"], how.items())
    titles = [unit.title for unit in units(made)]
    assert titles == [
        "per-fedavg (per-fedavg.alpha=0.1)",
        "feddyn",
        "per-fedavg (per-fedavg.alpha=0.2)",
    ]
    made = experiment({"algorithms": {"a_b": "fedprox", "c": "fedavg"}}, ("sweep.a_b.mu", [0, 1]))
    assert [unit.title for unit in units(made)] == ["a_b (a-b.mu=0)", "c", "a_b (a-b.mu=1)"]
    with pytest.raises(ConfigError, match="no algorithm is named, expected one of fedavg, "):
        config.compose([], [])
    with pytest.raises(ConfigError, match="unknown table or algorithm of this run 'apfl'"):
        config.compose(["feddyn"], [("apfl.mu", 1)])


def test_a_cnn_takes_the_images_of_the_data_and_needs_some():
    table = {"name": "cnn", "channels": [2], "kernel": 2, "hidden": 3}
    source = Source(np.zeros((2, 16)), np.arange(2), image=(4, 4, 1), name="some")
    made = make_model(table, source)
    assert made == CNN((4, 4, 1), channels=(2,), kernel=2, hidden=3, classes=2)
    with pytest.raises(ConfigError, match="model cnn needs images, and some has none"):
        make_model(table, replace(source, image=None))


@pytest.mark.parametrize(
    ("labels", "model", "new"),
    [
        ([-1, 1, -1], BinaryLogistic(4), [0, 1, 0]),
        ([0, 1, 1], LinearSVM(4), [-1, 1, 1]),
    ],
)
def test_two_labels_become_those_of_a_binary_model(labels, model, new):
    y = np.array(labels)
    assert known_labels(y, np.unique(y), model, "some").tolist() == new


def test_values_of_numpy_and_ranges_are_taken_and_written():
    table = document(
        rounds=np.int64(4),
        seeds=range(2),
        unseen=np.float32(0.5),
        split={"rule": "per-fedavg", "users": np.int32(4)},
        model={"name": "mlp", "hidden": np.array([3, 2])},
        sweep={"lr": np.array([0.1, 0.2]), "model.hidden": [(3,), np.array([4])]},
    )
    made = experiment(table, ("lr", np.float64(0.5)))
    assert (made.rounds, made.seeds, made.unseen) == (4, (0, 1), 0.5)
    assert (made.split["users"], made.model["hidden"]) == (4, (3, 2))
    assert made.algorithms["fedavg"].lr == 0.5
    assert made.sweep == {"lr": [0.1, 0.2], "model.hidden": [[3], [4]]}
    assert experiment(tomllib.loads(config.toml_text(made))) == made
