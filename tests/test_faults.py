"""Faults of disks, files, words and code: each ends in one line and an exit code, or does no harm.

All through the command line and files: nothing here knows how fedref is made.
Each row of its table makes a fault of its own.
"""

import os
import re
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from running import algorithms, contents, document, main, npz, process, write

from fedref import DataError, load_run

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


def begin(out="D", **changes):
    """Run three rounds into a directory."""
    assert main("run", write(Path("t.toml"), document(**changes)), "-q", "-o", out) == 0
    return Path(out)


def stopped(table, rounds=60, out="D", line=1):
    """Start a run in a process, and stop it when it has told this many rounds."""
    path = write(Path("s.toml"), {**table, "rounds": rounds, "eval-every": 20})
    run = process("run", path, "-o", out, "--json", "--checkpoint-every", "0")
    for _ in range(line):
        assert run.stdout.readline()
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=60)
    return Path(out)


def finish(*words, **how):
    """Run the command as a process; return its exit code and what it wrote."""
    run = process(*words, **how)
    out, err = run.communicate(timeout=100)
    return run.returncode, (out or "") + err


FAULTS = []


def fault(pattern, code=2):
    """Enter a row: the function makes the input and returns the words of the command."""

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
    table = document(data={"name": "a.npz"}, split=IID, clients_per_round=2)
    stopped({**table, "sweep": {"data.name": ["a.npz", "b.npz"]}}, line=70)
    npz(Path("b.npz"), X=2 * np.arange(40.0).reshape(20, 2), y=1 - np.arange(20) % 2)
    return ["resume", "D"]


def checkpoints(out="D"):
    return sorted((Path(out) / "checkpoints").glob("*.ckpt"))


@fault(r"ckpt: holds fedavg-seed1-\w+.ckpt, expected fedavg-seed0-\w+.ckpt")
def checkpoints_are_exchanged():
    begin(seeds=[0, 1])
    one, other = checkpoints()
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    return ["resume", "D"]


@fault(r"ckpt: holds fedavg-seed1-\w+.ckpt, expected fedavg-seed0-\w+.ckpt")
def a_checkpoint_is_copied_over_another_and_drawn():
    begin(seeds=[0, 1])
    shutil.copy(checkpoints()[1], checkpoints()[0])
    return ["plot", "D"]


def own_code_changes():
    Path("own_code.py").write_text(ALGORITHM.format(factor=1))
    table = document(algorithms={"mine": {"algorithm": "own_code:Mine"}})
    stopped(table)
    Path("own_code.py").write_text(ALGORITHM.format(factor=2))


@fault(r"D: own_code changed after mine .* began; .* anew, or `fedref resume --changed-code \S*D`")
def the_users_code_changes():
    own_code_changes()
    return ["resume", "D"]


@fault(r"", 0)
def the_users_code_changes_and_the_user_wants_it():
    own_code_changes()
    environment = Path("D/environment.json")
    begun = re.sub(r'"numpy": "[^"]+"', '"numpy": "1.0"', environment.read_text())
    environment.write_text(begun)
    code, text = finish("resume", "D", "-q", "--changed-code")
    assert code == 0
    assert "begun with numpy 1.0, now" in text
    assert '"numpy": "1.0"' in environment.read_text()  # the run began with it
    for path in (environment, Path("D/summary.md")):
        assert re.search(r"own_code was \w{12}, now \w{12}", path.read_text())
    environment.write_text(environment.read_text().replace('"1.0"', f'"{np.__version__}"'))
    return ["resume", "D", "-q"]  # once is enough


@fault(r"D: helper_of_mine changed after mine")
def a_helper_that_is_imported_in_a_function_changes():
    text = ALGORITHM.format(factor="helper_of_mine.RATE")
    text = text.replace("        return", "        import helper_of_mine\n        return")
    Path("with_helper.py").write_text(text)
    Path("helper_of_mine.py").write_text("RATE = 1.0\n")
    stopped(document(algorithms={"mine": {"algorithm": "with_helper:Mine"}}))
    Path("helper_of_mine.py").write_text("RATE = 0.5\n")
    return finish("resume", "D")


@fault(r"^$", 0)
def a_comment_in_a_helper_changes():
    a_helper_that_is_imported_in_a_function_changes()
    Path("helper_of_mine.py").write_text('"""The rate."""\nRATE = 1.0  # full\n')
    return finish("resume", "D", "-q")


@fault(r"D: begun with numpy 1.0, now", 0)
def another_numpy_goes_on():
    environment = begin() / "environment.json"
    environment.write_text(re.sub(r'"numpy": "[^"]+"', '"numpy": "1.0"', environment.read_text()))
    return ["run", "t.toml", "-q", "-o", "D"]


@fault(r"D: config.toml changed after fedavg")
def config_changes():
    path = begin() / "config.toml"
    path.write_text(path.read_text().replace("rounds = 3", "rounds = 4"))
    return ["resume", "D"]


# ---- the user's files ----------------------------------------------------------------------------


@fault(r"^$", 0)
def a_folder_that_is_named_like_one_of_fedrefs():
    thesis = Path("tmp", "fedref-2024-thesis")
    thesis.mkdir(parents=True)
    (thesis / "notes").write_text("mine")
    path = write(Path("t.toml"), document(seeds=[0, 1]))
    first = f"import tempfile; tempfile.tempdir = {str(Path('tmp').absolute())!r}"
    assert finish("run", path, "-q", "-o", "D", "--workers", 2, first=first) == (0, "")
    assert os.listdir("tmp") == [thesis.name]
    assert (thesis / "notes").read_text() == "mine"
    return ["resume", "D", "-q"]


@fault(r"site: holds files that fedref did not write; expected a new or an empty folder")
def a_foreign_index_html():
    Path("site").mkdir()
    Path("site", "index.html").write_text("mine")
    return ["explain", "--html", "site"]


@fault(r"site/style.css: cannot be read or written \(is a link, which is neither replaced nor")
def a_link_in_a_site():
    Path("site").mkdir()
    Path("site", ".fedref-site").touch()
    Path("style.css").write_text("mine")
    Path("site", "style.css").symlink_to(Path("style.css").absolute())
    code, told = finish("explain", "--html", "site")
    assert Path("style.css").read_text() == "mine"
    return code, told


@fault(r"^$", 0)
def an_algorithm_that_changes_the_working_directory():
    Path("elsewhere").mkdir()
    text = ALGORITHM.format(factor=1).replace(
        "        return", "        os.chdir(HERE)\n        return"
    )
    here = str(Path("elsewhere").absolute())
    Path("moving.py").write_text(f"import os\nHERE = {here!r}\n{text}")
    table = document(algorithms={"mine": {"algorithm": "moving:Mine"}}, seeds=[0, 1])
    code, told = finish("run", write(Path("t.toml"), table), "-o", "D", "--checkpoint-every", 0)
    assert (code, os.listdir("elsewhere")) == (0, []), told
    assert "results go to D/" in told
    assert Path("D", "curves.png").exists()
    return finish("resume", "D", "-q")


@fault(r"D/metrics.csv: .*is a link, which is neither replaced nor followed")
def a_link_in_the_place_of_a_table():
    begin()
    Path("D/metrics.csv").rename("metrics.csv")
    Path("D/metrics.csv").symlink_to("../metrics.csv")
    before = Path("metrics.csv").read_bytes()
    end = finish("resume", "D", "-q")
    assert Path("D/metrics.csv").is_symlink()
    assert Path("metrics.csv").read_bytes() == before
    return end


@fault(r"b.png: is a link, which is neither replaced nor followed")
def a_link_in_the_place_of_a_picture():
    Path("mine").write_text("mine")
    Path("b.png").symlink_to("mine")
    code, told = finish("data", "show", "digits", "--out", "b.png")
    assert Path("mine").read_text() == "mine"
    assert Path("b.png").is_symlink()
    return code, told


@fault(r"D: holds metrics.csv, which fedref did not write; expected another --out")
def a_foreign_table():
    Path("D").mkdir()
    Path("D", "metrics.csv").write_text("mine")
    return ["run", write(Path("t.toml"), document()), "-o", "D"]


@fault(r"^$", 0)
def files_of_another_run_inside():
    begin()
    begin("D/inner")
    partial = Path("D/inner/checkpoints/.fedref-00.new")
    partial.touch()
    assert main("resume", "D", "-q") == 0
    assert partial.exists()
    return ["resume", "D/inner", "-q"]


@fault(r"ckpt: is damaged .*: fedavg \(seed 0\) starts anew", 0)
def a_damaged_checkpoint():
    before = contents(begin())
    checkpoints()[0].write_bytes(checkpoints()[0].read_bytes()[:-1])
    assert main("resume", "D", "-q") == 0
    assert contents(Path("D")) == before
    checkpoints()[0].write_bytes(checkpoints()[0].read_bytes()[:-1])
    return ["resume", "D", "-q"]


# ---- what is missing -----------------------------------------------------------------------------


@fault(r"round000001.ckpt: No such file .*: fedavg \(seed 0\) starts anew", 0)
def parameters_of_an_earlier_round_are_gone():
    before = contents(begin(keep_parameters=1))
    for path in Path("D/parameters").glob("*round000001.ckpt"):
        path.unlink()
    assert main("resume", "D", "-q") == 0
    assert contents(Path("D")) == before
    for path in Path("D/parameters").glob("*round000001.ckpt"):
        path.unlink()
    return ["resume", "D", "-q"]


def parameters():
    return sorted(Path("D/parameters").glob("*.ckpt"))


@fault(r"holds round 0 of fedavg-seed1.*, expected round 0 of .*: fedavg \(seed 0\) starts anew", 0)
def parameters_are_exchanged():
    before = contents(begin(keep_parameters=1, seeds=[0, 1]))
    one, other = (path for path in parameters() if "round000000" in path.name)
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    for seed in (0, 1):
        with pytest.raises(DataError, match="holds round 0 of fedavg-seed"):
            load_run("D").parameters("fedavg", 0, seed=seed)
    shutil.copytree("D", "E")
    assert main("resume", "E", "-q") == 0
    assert contents(Path("E")) == before
    return ["resume", "D", "-q"]


@fault(r"is damaged .*: fedavg \(seed 0\) starts anew", 0)
def a_byte_of_parameters_is_changed():
    before = contents(begin(keep_parameters=1))
    content = bytearray(parameters()[1].read_bytes())
    content[-30] ^= 1
    parameters()[1].write_bytes(content)
    shutil.copytree("D", "E")
    assert main("resume", "E", "-q") == 0
    assert contents(Path("E")) == before
    return ["resume", "D", "-q"]


def with_other_rooms(change):
    """Resume with fedref's numeric code read in another form."""
    stopped(document())
    first = f"""
import pathlib
import fedref.lab.experiments.seal as seal
real, other = seal.parse, pathlib.Path("other.py")
def changed(path):
    other.write_text(path.read_text("utf-8").replace(*{change!r}), "utf-8")
    return real(other)
seal.parse = changed
"""
    return finish("resume", "D", "-q", first=first)


@fault(r"D: fedref.algorithms changed after fedavg .* began; .*--changed-code")
def fedrefs_own_numbers_change():
    return with_other_rooms(("w - self.lr * model.grad", "w - 2 * self.lr * model.grad"))


@fault(r"^$", 0)
def a_word_in_fedref_changes():
    return with_other_rooms(("\n\n\n", "\n\n# a word\n\n"))


@fault(r"asks for up to 1000000000 units .* at most 10000, or --many")
def a_sweep_that_never_ends():
    values = ["lr", "alpha", "beta"]
    sweep = {key: [i / 1000 for i in range(1000)] for key in values}
    table = document(sweep=sweep, algorithms=algorithms("per-fedavg"))
    return ["run", write(Path("t.toml"), table), "--dry-run"]


@fault(r"site: holds files that fedref did not write")
def a_run_directory_as_a_site():
    begin("site")
    return ["explain", "--html", "site"]


@fault(r"environment.json was gone or damaged", 0)
def environment_is_gone():
    before = contents(begin())
    Path("D/environment.json").unlink()
    assert main("resume", "D", "-q") == 0
    assert contents(Path("D")) == before
    Path("D/environment.json").unlink()
    return ["resume", "D", "-q"]


@fault(
    r"D: is not a run directory, expected D/config.toml; .* the same `fedref run` again starts it"
)
def config_is_not_there_yet():
    begin()
    Path("D/config.toml").unlink()
    return ["resume", "D"]


@fault(r"^$", 0)
def a_run_that_saved_nothing_begins_again():
    before = contents(begin())
    for path in checkpoints():
        path.unlink()
    Path("D/split.json").write_text("of another experiment")
    assert main("run", "t.toml", "-q", "-o", "D") == 0
    assert contents(Path("D")) == before
    return ["resume", "D", "-q"]


# ---- work is saved -------------------------------------------------------------------------------

LONG = document(rounds=3000, eval_every=100)


@fault(r"standard output: .*No space left on device.* go on with `fedref resume D`")
def json_to_a_full_pipe():
    if not Path("/dev/full").exists():
        pytest.skip("/dev/full")
    path = write(Path("t.toml"), document(rounds=30))
    with open("/dev/full", "w") as full:
        words = ["run", path, "-o", "D", "--json", "--checkpoint-every", "1000"]
        end = finish(*words, stdout=full)
    assert checkpoints()
    return end


@fault(r"error: (\S+/)?D: cannot be read or written \(Input/output error\)")
def a_folder_that_cannot_be_synced():
    first = """
import errno, os, stat
real = os.fsync
def failing(descriptor):
    if stat.S_ISDIR(os.fstat(descriptor).st_mode) and os.path.exists("D/checkpoints"):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    real(descriptor)
os.fsync = failing
"""
    return finish("run", write(Path("t.toml"), document()), "-q", "-o", "D", first=first)


@fault(r"metrics.csv: cannot be read or written \(Is a directory\)")
def a_folder_in_the_place_of_a_table():
    begin()
    Path("D/metrics.csv").unlink()
    Path("D/metrics.csv").mkdir()
    return ["resume", "D", "-q"]


# ---- numbers that are too large ------------------------------------------------------------------


@fault(r"fedavg \(seed 0\) diverged: round 0: ", 3)
def a_feature_too_large_for_float32():
    npz(Path("a.npz"), X=np.full((20, 2), 1e39))
    table = document(data={"name": "a.npz"}, split=IID, clients_per_round=2, dtype="float32")
    return finish("run", write(Path("t.toml"), table), "-q", "-o", "D")  # with its picture


@fault(r"a.npz.* expected finite")
def a_feature_too_large_for_float64():
    if np.finfo(np.longdouble).max == np.finfo(float).max:
        pytest.skip("long double")
    npz(Path("a.npz"), X=np.full((20, 2), np.longdouble("1e400")))
    return ["data", "show", "a.npz", "--split", "iid", "--set", "split.users=2"]


@fault(r"a.npz.*(9223372036854775807|2\^63)")
def a_label_too_large():
    npz(Path("a.npz"), y=np.full(20, 2**63 - 1))
    return ["run", "--data", "a.npz", "--split", "iid", "--set", "split.users=2"]


@fault(r"seeds.*expected at most 10000 seeds")
def more_seeds_than_there_are_numbers():
    return ["run", "--seeds=-9223372036854775000:9223372036854775000"]


@fault(r"steps.*9223372036854775807|not enough memory .*steps|rows of a batch")
def more_steps_than_there_is_memory():
    return ["run", "--set", "steps=9223372036854775807", "-q", "-o", "D"]


@fault(r"not enough memory .*(allocate|for) \w+")
def a_model_too_large_for_memory():
    return ["run", "--set", "model.hidden=[2000000000]", "--rounds", "1", "-q", "-o", "D"]


@fault(r"^$", 0)
def a_label_larger_than_the_memory():
    Path("a.csv").write_text("x,y\n1,0\n2,1\n3,0\n4,300000000\n")
    limit = "import resource; resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))"
    code, told = finish(
        "data", "show", "a.csv", first=limit, env_more={"OPENBLAS_NUM_THREADS": "1"}
    )
    assert "from 0 to 300000000; no row has label 2, 3, 4, 5, 6, ...\n" in told
    return code, ""


# ---- waiting for ever ----------------------------------------------------------------------------


@fault(r"x.toml: .*is not a regular file")
def a_pipe_as_an_experiment():
    os.mkfifo("x.toml")
    return ["run", "x.toml"]


def pipe_in(name):
    def make():
        begin()
        Path("D", name).unlink(missing_ok=True)
        os.mkfifo(Path("D", name))
        return ["resume", "D", "-q"]

    make.__name__ = f"a_pipe_as_{name}"
    return make


fault(r"config.toml: .*is not a regular file|expected D/config.toml")(pipe_in("config.toml"))
fault(r"environment.json was gone or damaged", 0)(pipe_in("environment.json"))


@fault(r"ckpt: .*is not a regular file")
def a_pipe_as_a_checkpoint():
    begin()
    path = checkpoints()[0]
    path.unlink()
    os.mkfifo(path)
    return ["resume", "D", "-q"]


@fault(r"unknown data set 'loop.npz'")
def a_link_to_itself_as_data():
    Path("loop.npz").symlink_to("loop.npz")
    return ["run", "--data", "loop.npz", "--split", "iid", "--set", "split.users=2"]


@fault(r"unknown data set 'a\\x00b.npz'")
def a_name_with_a_control_character():
    return ["run", write(Path("t.toml"), document(data={"name": "a\0b.npz"}, split=IID))]


@fault(r"a.npz: is not a regular file")
def a_pipe_as_data():
    os.mkfifo("a.npz")
    return ["data", "show", "a.npz"]


@fault(r"slow.py: while it was imported: no answer after 3 s")
def a_backend_whose_import_never_ends():
    Path("slow.py").write_text("import time; time.sleep(1000)")
    return ["conformance", "slow.py", "--timeout", "0.1", "--only", "fedavg"]


# ---- words and code ------------------------------------------------------------------------------


@fault(r"a.csv.*'1_000'|1_000")
def an_underscore_in_a_number():
    Path("a.csv").write_text("x,y\n" + "1_000,0\n2,1\n" * 5)
    return ["data", "show", "a.csv"]


@fault(r"a.csv.*١٢")
def digits_of_another_script():
    Path("a.csv").write_text("x,y\n" + "١٢,0\n2,1\n" * 5, "utf-8")
    return ["data", "show", "a.csv"]


@fault(r"caf\\+udce9|caf\\xe9|UTF-8")
def a_file_name_that_is_not_utf8():
    name = os.fsdecode(b"caf\xe9.npz")
    npz(Path("a.npz")).rename(name)
    return ["run", "--data", name, "--split", "iid", "--set", "split.users=2", "-o", "D"]


@fault(r"^$", 0)
def an_unknown_backend_of_matplotlib():
    words = ["run", "--rounds", 1, "-q", "-o", "D"]
    return finish(*words, env_more={"MPLBACKEND": "nope"})


@fault(r"offers 13 of \d+ cases", 1)
def a_backend_that_closes_standard_output():
    Path("closing.py").write_text(
        "import sys\ndef loss(*_): sys.stdout.close()\nsys.stdout.close()\n"
    )
    return finish("conformance", "closing.py", "--only", "loss")


# ---- golden vectors ------------------------------------------------------------------------------


def vectors_with(change):
    """Test a backend on a copy of the vectors in which the index is changed."""
    first = f"""
import pathlib, shutil
from fedref.conformance import vectors
real = vectors.folder()
copy = pathlib.Path("vectors"); shutil.copytree(real, copy)
index = copy / "index.json"
text = index.read_text("utf-8")
index.write_text({change}, "utf-8")
vectors.folder = lambda: copy
"""
    return finish("conformance", "fedref", "--only", "fedavg", first=first)


@fault(r"index.json: .*SHA-256")
def an_index_with_another_tolerance():
    return vectors_with("""text.replace("1e-", "1e+")""")


@fault(r"index.json: ")
def an_index_that_is_no_table():
    return vectors_with("'[]'")


# ---- the table -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "pattern", "code"), FAULTS)
def test_a_fault_is_one_line(make, pattern, code, capfd, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits for ever"))
    signal.alarm(120)
    try:
        made = make()
        capfd.readouterr()
        if isinstance(made, tuple):
            found, err = made
        else:
            found = main(*made)
            err = capfd.readouterr().err
    finally:
        signal.alarm(0)
    assert found == code, err
    assert "Traceback" not in err
    assert re.search(pattern, err), err
    if code > 1:
        assert len([line for line in err.splitlines() if "error" in line or code == 3]) == 1, err
