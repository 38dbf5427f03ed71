"""What every command refuses: one line, exit code 2, and nothing written. For values see test_schema.py."""

import shlex

import numpy as np
import pytest
from dataset_files import alone  # noqa: F401 (a fixture)
from running import SMALL, TINY, contents, document, main, npz, refused, write

from fedref.lab import plots

IID = "--split iid --set split.users=3"
X = np.arange(40.0).reshape(20, 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs, data and files, right ones and wrong ones."""
    folder = tmp_path_factory.mktemp("refused")
    words = "--data digits --split per-fedavg --set split.users=6 --rounds 2 --clients-per-round 2"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "curves", lambda table: None, raising=False)
        patch.setattr(plots, "save", lambda figure, path: None, raising=False)
        assert main("run", "fedavg", "apfl", *words.split(), "-q", "-o", folder / "run") == 0
    npz(folder / "nan.npz", X=np.where(X == 7, np.nan, X))
    npz(folder / "one.npz", X=X, client=np.arange(20))  # one row a client: for training
    (folder / "real.csv").write_text("x,y\n1,0.5\n2,0.25\n")
    for name in ("mine.json", "proximal.py", "test_suspect.py"):
        (folder / name).write_text("mine")
    (folder / "site").mkdir()
    for name in (".fedref-site", "index.html"):
        (folder / "site" / name).write_text("mine")
    (folder / "torn").mkdir()
    (folder / "torn" / "config.toml").write_text("rounds = ")
    write(folder / "tiny.toml", TINY)
    long = {"é" * 91: {"algorithm": "fedavg"}}
    write(folder / "long.toml", document(algorithms=long))
    write(folder / "pooled.toml", document(algorithms={"centralised": {}}))
    split = {"rule": "iid", "users": 2}
    write(folder / "real.toml", document(data={"name": "real.csv"}, split=split))
    return folder


#: Words of the command, and what its one line says.
REFUSED = [
    # folders and names
    *((f"{command} nowhere", "error: nowhere: no such folder, expected a run directory\n")
      for command in ("plot", "resume")),
    ("plot site", "site: is not a run directory, expected site/config.toml; if"),
    ("plot run/metrics.csv", "run/metrics.csv: no such folder"),
    ("run --dry-run --set name=" + "a" * 181, "expected a part of a file's name, at most 180 bytes of UTF-8"),
    ("run long.toml --dry-run", "expected a part of a file's name, at most 180 bytes of UTF-8"),
    # words that are not known
    ("rum", "unknown command 'rum': did you mean 'run'? known are"),
    ("data shwo", "unknown command 'shwo': did you mean 'show'? known are list, prepare, rules, show, split"),
    ("run fedavgg", "unknown algorithm 'fedavgg': did you mean 'fedavg'? known are"),
    ("data show digits --train-fraction=0.5", "did you mean --set split.train-fraction=0.5?"),
    ("run --lam --rounds 3", "did you mean --set lam=VALUE?"),
    ("run --seed 3", "unknown option '--seed': did you mean '--seeds'?"),
    ("run --model mpl", "unknown model 'mpl': did you mean 'mlp'?"),
    ("run --set muh=1", "unknown key 'muh': did you mean 'mu'?"),
    ("run --set algorithms.fedavgg.lr=1", "table or algorithm of this run 'fedavgg': did you mean 'fed"),
    ("run --set a-test=2", "unknown key 'a-test': did you mean 'split.a-test'?"),
    ("run fedavg --mu 1", "no algorithm of this run takes mu; they take drop, lr, weighting\n"),
    # values
    ("run fedavg --epochs -.5", "epochs is -0.5, expected a whole number, at least 1"),
    ("run fedavg --workers -1e0", "--workers is -1.0, expected a whole number, at least 1"),
    ("run --rounds 1 --out ''", "--out is '', expected a path"),
    ("run --set mu", "--set 'mu': expected KEY=VALUE"),
    ("run --alpha 0.01,0.1,0.5", 'a sweep takes several: --set "sweep.alpha=[0.01,0.1,0.5]"'),
    ("run --set sweep.lr=[]", "sweep lr is [], expected a list of values"),
    ("run --set sweep.seeds=[[1]]", "sweep seeds: cannot be swept (the keys algorithms and seeds"),
    ("run --set sweep.epochs=[1] --set sweep.steps=[1]", "both epochs and steps are given"),
    ("run --set seed=1 --seeds 0:2", "both seeds and seed are given"),
    # what does not fit together
    ("run --split natural", "digits has no natural clients: expected a column or an array called "
     "client, which says whose row it is (of another name: --set data.client=COLUMN), or another split"),
    ("run --model svm", "digits has the labels [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], LinearSVM"),
    ("run --set sweep.clients-per-round=[2,50]", "clients-per-round is 50"),
    ("run --set unseen=0.2 --set split.users=4", "unseen needs 10 clients or more"),
    (f"run --data federating:coded {IID} --model mlp", "arrays holds codes: use one of lstm"),
    # files
    ("run nothing.toml", "nothing.toml: cannot be read (No such file or directory)"),
    ("run --data mnist --data-dir nowhere", "nowhere: no such folder"),
    ("run tiny.toml --out run", "run already holds a run: `fedref resume run`, or another --out"),
    (f"run fedavg --data nan.npz {IID} {' '.join(SMALL)}", "X has nan in row 3; expected finite numbers"),
    (f"run fedavg --data one.npz --split natural {' '.join(SMALL)}", "one.npz: no client has a test row"),
    # pictures
    ("plot run --out x.jpg", "x.jpg ends in '.jpg', expected .png, .svg or .pdf"),
    ("plot run --kind bars --metric accuracy,loss", "names 2 metrics, this picture can show one"),
    ("plot run --best", "--set split.validation=0.1 gives each client rows"),
    ("plot run --out run/config.toml/x.png", "config.toml: File exists; expected a path that can be written"),
    # proofs
    ("check --only 'apfl eq3'", "did you mean 'apfl eq.3'"),
    ("check --plot steps.txt", "expected .png, .svg or .pdf"),
    # data
    ("data show digits --set users=8", "expected data.KEY or split.KEY, as for `fedref run`"),
    ("data split iid --data digits --out m.jsn", "expected FILE.json, which --split"),
    ("data split iid --data digits --out mine.json", "exists already; expected another name, or --over"),
    ("data prepare mnist", "download failed"),
    # Flower
    ("flower write tiny.toml there --nodes 8", "8 nodes for 4 clients, expected 1 to 4"),
    ("flower write tiny.toml there --nodes 2 --clients 7", "are given, expected one of them"),
    ("flower write tiny.toml run", "is not empty, expected a new folder"),
    ("flower write pooled.toml there", "centralised pools clients' rows"),
    ("flower write real.toml there", "real.csv: y is 0.5 in row 0, and model logistic takes labels"),
    # equations, exercises, papers
    ("explain per-fedavg eq.33", "did you mean 'per-fedavg eq.3'"),
    ("explain --html site", "site/index.html: is no page that fedref wrote"),
    ("explain per-fedavg --picture b.svg --set alpah=0.5", "did you mean 'alpha'"),
    ("explain per-fedavg --set alpha=0.5", "--set is for a picture"),
    ("explain cnn --picture b.svg", "per-fedavg"),
    ("exercise start proximal .", "exists"),
    ("exercise hunt 7 --out .", "exists"),
    ("exercise list --exercises torn/config.toml", "torn/config.toml"),
    ("exercise check site", "no .py file in this folder"),
    ("cite site", "site: is not a run directory"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=[words for words, _ in REFUSED])
def test_refused(folder, monkeypatch, capsys, words, message):
    monkeypatch.chdir(folder)
    before = contents(folder)
    line = refused(capsys, *shlex.split(words))
    assert message in line
    assert contents(folder) == before


#: What is other than in TINY, and what is said of it.
CHANGES = [
    ({"model": ["mlp"]}, "model name is ['mlp'], expected a string"),
    ({"algorithms": {"fedavg": 0.1}}, "algorithms.fedavg is 0.1, expected a table"),
    ({"algorithms": {"fedavg": {"weighting": 3}}},
     "algorithms.fedavg weighting is 3, expected one of samples, uniform\n"),
    ({"algorithms": {"fedavg": {"drop": 3}}},
     "algorithms.fedavg drop is 3, expected true or false\n"),
    ({"algorithms": {}}, "no algorithm is named, expected one of fedavg, "),
    ({"algorithms": {"a/b": {"algorithm": "fedavg"}}}, "name 'a/b': expected a part of a file's name"),
    ({"sweep": {"lr": ["fast"]}}, "sweep {'lr': 'fast'}: algorithms.fedavg lr is 'fast', expected"),
    ({"sweep": {"lrr": [3]}},
     "sweep {'lrr': 3}: unknown key 'lrr': did you mean 'lr'"),
    ({"split": {"rule": "split.json", "users": 3}},
     "split split.json has all its values and takes no more, got users"),
    ({"seeds": [1, 1]}, "seeds are [1, 1], expected different"),
    ({"batch_size": 3}, "both batch-size and batch_size are given, expected one of them"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_a_file_that_is_wrong_in_one_thing(here, capsys, change, message):
    line = refused(capsys, "run", write(here / "my.toml", {**TINY, **change}))
    assert f"error: {here}/my.toml: {message}" in line
    assert line.count(".toml:") == 1


#: TOML has hexadecimal numbers, whose length Python does not limit.
HUGE = "0x" + "f" * 5000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rounds = ", "is not TOML"),
        ("\udcff", "is not TOML"),
        (f"rounds = {HUGE}\n[algorithms.fedavg]", "rounds is a number of thousands of digits, expected"),
        ("x = " + "[" * 50_000, "is not TOML"),
        ("a." * 1500 + "a = 1", "tables or lists are nested too deep"),
    ],
    ids=["cut off", "bytes", "hexadecimal", "nested", "key"],
)  # fmt: skip
def test_a_file_that_is_no_toml(here, capsys, text, message):
    (here / "t.toml").write_text(text, "utf-8", "surrogateescape")
    assert f"error: t.toml: {message}" in refused(capsys, "run", "t.toml")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "name=\udcff"], r"--set is 'name=\udcff', expected a string"),
        (["--set", "algorithms=x", "--set", "lr=1"], "unknown algorithm 'x'"),
        (["--set", "model.hidden=" + "[" * 30 + "]" * 30], "model mlp hidden is [[["),
        (["--rounds", "1" * 5000], "rounds is '11"),
        (["--print-config", "--set", f"sweep.lr=[{HUGE}]"], "a value has thousands of digits"),
    ],
)
def test_odd_words_are_one_short_line(capsys, words, message):
    line = refused(capsys, "run", *words)
    assert message in line
    assert len(line) < 400
