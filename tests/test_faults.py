"""Faults of disks, files, words and code: each ends in one line and an exit code, or does no harm.

All through the command line and files: nothing here but one test knows how fedref is made.
Each row of its table makes a fault of its own.
"""

import os
import re
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from running import contents, document, main, npz, process, write

from fedref.lab.experiments import run, seal

pytestmark = [
    pytest.mark.usefixtures("here"),
    pytest.mark.skipif(os.name != "posix", reason="pipes, signals and limits of POSIX"),
]
IID = {"rule": "iid", "users": 3}
ALGORITHM = """
from dataclasses import dataclass
import fedref.algorithms.fedavg as base
@dataclass(frozen=True)
class Mine(base.FedAvg):
    def step(self, model, sent, local, D):
        return local - {factor} * self.lr * model.grad(local, D)
"""


def begin(**changes):
    """Run three rounds into the folder D."""
    assert main("run", write(Path("t.toml"), document(**changes)), "-q", "-o", "D") == 0


def ended(*words):
    """Run the command; return its exit code and what it wrote."""
    with redirect_stdout(StringIO()) as told, redirect_stderr(told):
        return main(*words), told.getvalue()


def finish(*words, **how):
    """The same in a process."""
    run = process(*words, **how)
    out, err = run.communicate(timeout=100)
    return run.returncode, (out or "") + err


FAULTS = []


def fault(pattern, code=2):
    """Enter a row: the function makes a fault, and returns what `ended` does of a command."""

    def enter(make):
        FAULTS.append(pytest.param(make, pattern, code, id=make.__name__))
        return make

    return enter


# ---- wrong numbers, silently ---------------------------------------------------------------------


@fault(
    r"D: the data or the split changed after fedavg .*b.npz.* began; expected the same, or `fedref"
)
def data_of_the_second_point_change():
    for name, factor in (("a.npz", 1), ("b.npz", 2)):
        npz(Path(name), X=factor * np.arange(40.0).reshape(20, 2))
    sweep = {"data.name": ["a.npz", "b.npz"]}
    begin(data={"name": "a.npz"}, split=IID, clients_per_round=2, sweep=sweep)
    npz(Path("b.npz"), X=2 * np.arange(40.0).reshape(20, 2), y=1 - np.arange(20) % 2)
    return ended("resume", "D", "--changed-code")


@fault(r"^$", 0)
def the_users_code_changes_and_then_the_user_wants_it():
    path = Path("own_code.py")
    path.write_text(ALGORITHM.format(factor=1))
    begin(algorithms={"mine": {"algorithm": "own_code:Mine"}})
    path.write_text(ALGORITHM.format(factor=2))
    code, text = ended("resume", "D")
    go_on = r"own_code changed after mine .* began; .* anew, or `fedref resume --changed-code \S*D`"
    assert (code, bool(re.search(go_on, text))) == (2, True)
    environment = Path("D/environment.json")
    begun = re.sub(r'"numpy": "[^"]+"', '"numpy": "1.0"', environment.read_text())
    environment.write_text(begun)
    code, text = ended("resume", "D", "-q", "--changed-code")
    assert code == 0
    assert "begun with numpy 1.0, now" in text
    assert '"numpy": "1.0"' in environment.read_text()  # the run began with it
    for path in (environment, Path("D/summary.md")):
        assert re.search(r"own_code was \w{12}, now \w{12}", path.read_text())
    environment.write_text(environment.read_text().replace('"1.0"', f'"{np.__version__}"'))
    return ended("resume", "D", "-q")  # once is enough


@fault(r"D: rates.of_mine changed after mine")
def a_helper_that_is_imported_in_a_function_changes_and_not_only_its_comment():
    text = ALGORITHM.format(factor="RATE")
    line = "        from rates.of_mine import RATE\n"  # in a folder without __init__
    Path("with_helper.py").write_text(text.replace("        return", f"{line}        return"))
    helper = Path("rates/of_mine.py")
    helper.parent.mkdir()
    helper.write_text("RATE = 1.0\n")
    begin(algorithms={"mine": {"algorithm": "with_helper:Mine"}})
    helper.write_text('"""The rate."""\nRATE = 1.0  # full\n')
    assert ended("resume", "D", "-q") == (0, "")
    helper.write_text("RATE = 0.5\n")
    return ended("resume", "D")


def test_fedrefs_own_numbers_are_sealed_and_its_words_are_not(monkeypatch):
    begin()
    monkeypatch.setattr(run, "numeric_rooms", seal.numeric_rooms.__wrapped__)  # it is cached
    real, other = seal.parse, Path("other.py")
    numbers = r"D: fedref.algorithms changed after fedavg .* began; .*--changed-code"
    for old, new, code, pattern in (
        ("\n\n\n", "\n\n# a word\n\n", 0, "^$"),
        ("w - self.lr * model.grad", "w - 2 * self.lr * model.grad", 2, numbers),
    ):

        def changed(path, old=old, new=new):
            other.write_text(path.read_text("utf-8").replace(old, new), "utf-8")
            return real(other)

        monkeypatch.setattr(seal, "parse", changed)
        found, text = ended("resume", "D", "-q")
        assert found == code
        assert re.search(pattern, text)


# ---- the user's files ----------------------------------------------------------------------------


@fault(r"site: holds files that fedref did not write; expected a new or an empty folder")
def a_foreign_index_html():
    Path("site").mkdir()
    Path("site", "index.html").write_text("mine")
    return ended("explain", "--html", "site")


@fault(r"^$", 0)
def an_algorithm_that_changes_the_working_directory():
    Path("elsewhere").mkdir()
    move = f"        import os\n        os.chdir({str(Path('elsewhere').absolute())!r})\n        return"
    Path("moving.py").write_text(ALGORITHM.format(factor=1).replace("        return", move))
    table = document(algorithms={"mine": {"algorithm": "moving:Mine"}}, seeds=[0, 1])
    code, told = finish("run", write(Path("t.toml"), table), "-o", "D", "--checkpoint-every", 0)
    assert (code, os.listdir("elsewhere")) == (0, []), told
    assert "results go to D/" in told
    assert Path("D", "curves.png").exists()
    return code, ""


@fault(r"D: holds metrics.csv, which fedref did not write; expected another --out")
def a_foreign_table():
    Path("D").mkdir()
    Path("D", "metrics.csv").write_text("mine")
    return ended("run", write(Path("t.toml"), document()), "-o", "D")


# ---- what is missing or damaged ------------------------------------------------------------------


def the(pattern):
    """The one file of D that this pattern names first."""
    return min(Path("D").glob(pattern))


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def exchange(one, other):
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def place(make, path):
    """Make a pipe, a link to the file, or a folder in the place of a file."""
    path.rename("moved")
    make(path)


#: What is done to a finished run, and what resuming it says; then it is whole again, or as it was.
DAMAGE = {
    "cut checkpoint": (
        lambda: cut(the("checkpoints/*")), r"ckpt: is damaged .*: fedavg \(seed 0\) starts anew", 0),
    "cut state": (
        lambda: cut(the("parameters/*1.ckpt")), r"1.ckpt: is damaged .*: fedavg \(seed 0\) starts anew", 0),
    "exchanged states": (
        lambda: exchange(the("parameters/*seed0*0.ckpt"), the("parameters/*seed1*0.ckpt")),
        r"holds round 0 of fedavg-seed1.*, expected round 0 of .*: fedavg \(seed 0\) starts anew", 0),
    "lost environment": (
        lambda: the("environment.json").unlink(), r"environment.json was gone or damaged", 0),
    "exchanged checkpoints": (
        lambda: exchange(the("checkpoints/*seed0*"), the("checkpoints/*seed1*")),
        r"ckpt: holds fedavg-seed1-\w+.ckpt, expected fedavg-seed0-\w+.ckpt", 2),
    "pipe as checkpoint": (
        lambda: place(os.mkfifo, the("checkpoints/*")), r"ckpt: .*is not a regular file", 2),
    "link as table": (
        lambda: place(lambda path: path.symlink_to("../moved"), the("metrics.csv")),
        r"D/metrics.csv: .*is a link, which is neither replaced nor followed", 2),
    "folder as table": (
        lambda: place(os.mkdir, the("metrics.csv")),
        r"metrics.csv: cannot be read or written \(Is a directory\)", 2),
    "other config": (
        lambda: the("config.toml").write_text(the("config.toml").read_text().replace("s = 3", "s = 4")),
        r"D: config.toml changed after fedavg", 2),
    "lost config": (
        lambda: the("config.toml").unlink(),
        r"D: is not a run directory, expected D/config.toml; .* the same `fedref run` again starts it", 2),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_run_is_whole_again_or_refused(name):
    damage, pattern, code = DAMAGE[name]
    begin(keep_parameters=1, seeds=[0, 1])
    before = contents(Path("D"))
    damage()
    damaged = contents(Path("D"))
    found, told = ended("resume", "D", "-q")
    assert found == code
    assert re.search(pattern, told)
    assert contents(Path("D")) == (damaged if code else before)


# ---- work is saved -------------------------------------------------------------------------------


@fault(r"standard output: .*No space left on device.* go on with `fedref resume D`")
def json_to_a_full_pipe():
    if not Path("/dev/full").exists():
        pytest.skip("/dev/full")
    path = write(Path("t.toml"), document(rounds=30))
    with open("/dev/full", "w") as full:
        words = ["run", path, "-o", "D", "--json", "--checkpoint-every", "1000"]
        end = finish(*words, stdout=full)
    assert [*Path("D/checkpoints").iterdir()]
    return end


#: What becomes of the folder D while a run writes to it, and what is told of it.
REPLACED = {
    "emptied": (
        "os.rename('D', 'E'); os.mkdir('D')",  # the other worker may write just now
        r"D: .fedref-run is gone|D/checkpoints/.*No such file",
    ),
    "moved": ("os.rename('D', 'E')", r"D: .fedref-run is gone"),
    "removed": ("shutil.rmtree('D')", r"D: .fedref-run is gone"),
    "without config.toml": ("os.unlink('D/config.toml')", r"D: config.toml is gone"),
    "another run's": ("os.rename('D', 'E'); os.rename('F', 'D')", r"D: is another folder than"),
}


def replace_folder(change, *words):
    """Run into D, which is changed in the first round of the second unit, if there is a file `go`."""
    text = ALGORITHM.format(factor=1) + "    def finish(self, *given):\n"
    text += (
        "        import os, shutil\n        if os.path.exists('go'):\n            os.unlink('go')\n"
    )
    text += f"            {change}\n        return super().finish(*given)\n"
    module = re.sub(r"\W+", "_", f"in the way: {change}")  # each is imported by this process
    Path(f"{module}.py").write_text(text)
    algorithms = {"fedavg": {}, "mine": {"algorithm": f"{module}:Mine", "lr": 0.5}}
    path = write(Path("t.toml"), document(algorithms=algorithms))
    assert main("run", path, "-q", "-o", "F") == 0
    Path("go").touch()
    end = (finish if words else ended)("run", path, "-o", "D", "-q", "--checkpoint-every=0", *words)
    if "unlink('D" in change:
        return end
    left, marked = [*Path("D").glob("*")], Path("D/.fedref-run").exists()
    assert not left or marked
    assert Path("D").exists() == ("mkdir" in change or marked)
    if marked:
        assert contents(Path("D"))["config.toml"]
        assert not [*Path("D").rglob("*.new")]
    return end


FAULTS += [
    pytest.param(partial(replace_folder, change, *words), told, 2, id=" ".join([name, *words]))
    for name, (change, told) in REPLACED.items()
    for words in ([], ["--workers", "2"])[: 1 + (name == "emptied")]
]  # fmt: skip


# ---- numbers that are too large ------------------------------------------------------------------


@fault(r"fedavg \(seed 0\) diverged: round 0: ", 3)
def a_feature_too_large_for_float32():
    npz(Path("a.npz"), X=np.full((20, 2), 1e39))
    table = document(data={"name": "a.npz"}, split=IID, clients_per_round=2, dtype="float32")
    return finish("run", write(Path("t.toml"), table), "-q", "-o", "D")  # with its picture


@fault(r"^$", 0)
def a_label_larger_than_the_memory():
    Path("a.csv").write_text("x,y\n1,0\n2,1\n3,0\n4,300000000\n")
    limit = "import resource; resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))"
    one = {"OPENBLAS_NUM_THREADS": "1"}
    code, told = finish("data", "show", "a.csv", first=limit, env_more=one)
    assert "labels run from 0 to 300000000: no model has more tha" in told
    return code, ""


#: Words that ask for too much, or for what never ends.
WORDS = {
    "steps": (["--set", "steps=9223372036854775807", "-q", "-o", "D"],
              "steps.*9223372036854775807|not enough memory .*steps|rows of a batch"),
    "model": (["--set", "model.hidden=[2000000000]", "--rounds", "1", "-q", "-o", "D"],
              r"not enough memory .*(allocate|for) \w+"),
    "sweep": (["per-fedavg", *(f"--set=sweep.{key}={[*range(1, 1001)]}" for key in ("lr", "alpha", "beta"))],
              "asks for up to 1000000000 units .* at most 10000, or --many"),
}  # fmt: skip


FAULTS += [
    pytest.param(partial(ended, "run", *words), pattern, 2, id=name)
    for name, (words, pattern) in WORDS.items()
]


# ---- waiting for ever ----------------------------------------------------------------------------


@fault(r"slow.py: while it was imported: no answer after 1.5 s")
def a_backend_whose_import_never_ends():
    Path("slow.py").write_text("import time; time.sleep(1000)")
    return ended("conformance", "slow.py", "--timeout", "0.05", "--only", "fedavg")


# ---- words and code ------------------------------------------------------------------------------


@fault(r"caf\\+udce9|caf\\xe9|UTF-8")
def a_file_name_that_is_not_utf8():
    name = os.fsdecode(b"caf\xe9.npz")
    npz(Path("a.npz")).rename(name)
    return ended("run", "--data", name, "--split", "iid", "--set", "split.users=2", "-o", "D")


# ---- the table -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "pattern", "code"), FAULTS)
def test_a_fault_is_one_line(make, pattern, code, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits for ever"))
    signal.alarm(120)
    try:
        found, err = make()
    finally:
        signal.alarm(0)
    assert found == code, err
    assert "Traceback" not in err
    assert re.search(pattern, err), err
    if code > 1:
        assert len([line for line in err.splitlines() if "error" in line or code == 3]) == 1, err
