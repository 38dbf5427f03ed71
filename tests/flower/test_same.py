"""A run over nodes that hold their own rows is the local run, to the bit; without Flower itself."""

import numpy as np
import pytest
from federating import experiment_of, far, near, same_tables

from fedref import tree
from fedref.algorithms import ALGORITHMS

FEDERATED = [name for name in ALGORITHMS if not ALGORITHMS[name].pooled]


def same_parameters(one, other):
    """Server states, leaf by leaf, of two records."""
    a, b = (list(tree.leaves(record.state.server)) for record in (one, other))
    assert len(a) == len(b)
    return all(
        np.array_equal(x, y) and np.asarray(x).dtype == np.asarray(y).dtype for x, y in zip(a, b)
    )


@pytest.mark.parametrize("name", FEDERATED)
def test_every_algorithm_to_the_bit(name, tmp_path):
    experiment = experiment_of(algorithms={name: {}}, rounds=4, stragglers=0.4)
    there, _, _ = far(tmp_path, experiment)
    here = near(tmp_path, experiment)
    assert same_tables(tmp_path / "far", tmp_path / "near")
    assert same_parameters(there.records[0], here.records[0])
    assert (tmp_path / "far" / "missed.csv").read_text().count("\n") == 1


VARIANTS = {
    "epochs": {"steps": None, "epochs": 2, "algorithms": {"fedavg": {}, "apfl": {"importance": "si"}}},
    "float32": {"dtype": "float32", "algorithms": {"fedavg": {}, "fedmeta-sgd": {"server": "adam"}}},
    "by samples": {"sampling": "by-samples", "algorithms": {"fedprox": {"adaptive_mu": True}}},
    "all rows": {"batch_size": 0, "algorithms": {"per-fedavg": {}, "fedcurv": {}}},
    "every second": {"eval_every": 2, "eval_train": False, "algorithms": {"fedavg": {}, "apfl": {}}},
    "seeds and sweep": {"seeds": (3, 4), "sweep": {"lr": [0.1, 0.2]}, "algorithms": {"fedavg": {}}},
    "until γ": {"steps": None, "epochs": 3, "algorithms": {"fedprox": {"until_gamma": 0.9}}},
    "episodes": {
        "steps": None, "epochs": 2, "algorithms": {"fedmeta-maml": {"episodes": "epochs"}}
    },
    "a CNN": {
        "model": {"name": "cnn", "channels": [2], "kernel": 3, "hidden": 5},
        "algorithms": {"fedavg": {}}, "rounds": 2,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_every_kind_of_plan_to_the_bit(name, tmp_path):
    experiment = experiment_of(**VARIANTS[name])
    there, _, _ = far(tmp_path, experiment)
    here = near(tmp_path, experiment)
    assert same_tables(tmp_path / "far", tmp_path / "near")
    assert all(map(same_parameters, there.records, here.records))
