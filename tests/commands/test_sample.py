"""`fedref sample`, and the text that a model writes."""

import json
from pathlib import Path

import numpy as np
import pytest
from dataset_files import put_roles
from running import main

from fedref.commands import sample
from fedref.experiments import config
from fedref.models import LSTM

TINY = [
    "--data", "shakespeare", "--rounds", 2, "--eval-every", 1, "--clients-per-round", 2, "--quiet",
    "--set", "data.step=5", "--set", "split.min-rows=1", "--set", "model.hidden=[3]",
]  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A folder of data with three roles, each of which says one thing over and over."""
    return put_roles(tmp_path_factory.mktemp("data") / "shakespeare").parent


@pytest.fixture(scope="module")
def directory(root, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "tiny"
    assert main("run", "fedavg", "fedmeta-sgd", *TINY, "--data-dir", root, "--out", out) == 0
    return out


def test_the_run_is_the_data_s_own_experiment(directory):
    made = config.from_table(config.read(directory / "config.toml"))
    own = config.built_in_table("shakespeare")
    assert (made.dtype, made.eval_train) == (own["dtype"], own["eval-train"])
    assert made.model["name"] == "lstm"
    assert made.algorithms["fedavg"]["lr"] == own["algorithms"]["fedavg"]["lr"]
    assert list(made.algorithms) == ["fedavg", "fedmeta-sgd"]
    assert (directory / "curves.png").exists()


def sampled(capsys, directory, *words) -> list[list[str]]:
    """Return the paragraphs that the command prints, each as its lines."""
    capsys.readouterr()
    assert main("sample", directory, *words) == 0
    *texts, end = capsys.readouterr().out.split("\n\n")
    assert end == ""
    return [text.split("\n") for text in texts]


def test_before_and_after_for_what_adapts(root, directory, capsys):
    fedavg, meta = sampled(capsys, directory, "--data-dir", root, "--characters", 7)
    assert fedavg[0] == "fedavg (seed 0) after 2 rounds, HAMLET"
    starts = [
        "fedmeta-sgd (seed 0) after 2 rounds, HAMLET",
        "  prompt: ",
        "  before: ",
        "  after:  ",
    ]
    assert all(line.startswith(start) for line, start in zip(meta, starts, strict=True))
    assert [len(line) for line in meta[2:]] == [10 + 7] * 2
    assert len(meta[1]) == 10 + 80
    assert len(fedavg) == 3
    king = sampled(capsys, directory, "--data-dir", root, "--client", "KING", "--temperature", 0)
    assert "king speaks" in king[1][1]


def test_a_prompt_is_gone_on_from(root, directory, capsys):
    words = ("--data-dir", root, "--prompt", "My lord", "--characters", 9)
    one, other = (sampled(capsys, directory, *words) for _ in range(2))
    assert one[0][1] == "  prompt: My lord"
    assert one == other != sampled(capsys, directory, *words, "--seed", 1)


class Echo:
    """A model that is sure of the code `features` steps ago."""

    features = 3

    def logits(self, w, X):
        assert X.shape == (1, 3)
        self.seen = [*getattr(self, "seen", []), X[0].tolist()]
        return w * (np.arange(5) == X[:, :1])


@pytest.mark.parametrize(
    ("prompt", "seen"),
    [
        ([2, 0, 1], [[2, 0, 1], [0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]),
        ([4], [[9, 9, 4]]),  # padded in front
    ],
)
def test_each_character_is_the_next_one_s_context(prompt, seen):
    model, n = Echo(), len(seen)
    found = sample.continue_text(model, 1e3, np.array(prompt), n, 9, np.random.default_rng(0))
    assert model.seen == seen
    assert n == 1 or found.tolist() == [2, 0, 1, 2, 0]


def test_characters_are_drawn_by_the_softmax_at_a_temperature():
    model = LSTM(3, 4, 2, 1, (1,))
    w = np.zeros(model.d)
    w[-4:] = z = np.array([0.0, 1.0, 2.0, -1.0])
    for temperature in (0.5, 2.0):
        rng = np.random.default_rng(0)
        drawn = [
            sample.continue_text(model, w, np.array([0, 1]), 1, 3, rng, temperature)[0]
            for _ in range(3000)
        ]
        p = np.exp(z / temperature) / np.exp(z / temperature).sum()
        np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 3000, p, atol=0.03)
    likeliest = sample.continue_text(model, w, np.array([0]), 1, 3, np.random.default_rng(0), 0.0)
    assert likeliest.tolist() == [2]


def test_a_file_of_text_is_modelled_and_written_without_being_asked(tmp_path, capsys):
    said = "to be or not to be " * 7
    data = {name: {"raw": said} for name in ("HAMLET", "GHOST")}
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"users": [*data], "num_samples": [9, 9], "user_data": data}))
    run = ["run", "fedavg", "--data", file, *TINY[2:8], "--quiet", "--set", "model.hidden=[3]"]
    assert main(*run, "--out", tmp_path / "run") == 0
    line = f"fedref: {file} holds text: the model is lstm (--model for another)\n"
    assert capsys.readouterr().err == line
    assert main("sample", tmp_path / "run", "--characters", 5) == 0
    assert "prompt: to be or not" in capsys.readouterr().out
