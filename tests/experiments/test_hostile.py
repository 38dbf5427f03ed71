"""Run directories that somebody else has prepared, and processes that are stopped in bad moments."""

import io
import json
import random
import signal
import sys
import zipfile
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from running import algorithms, contents, document, main, process, refused, write

from fedref import FedrefError
from fedref.experiments import checkpoint, config, run_directory
from fedref.experiments.outcome import load_run
from fedref.experiments.unit import Record, types_of, units

pytestmark = pytest.mark.usefixtures("here")
ALWAYS = ("--checkpoint-every", "0", "--quiet")
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and links")


@pytest.fixture
def begun(here) -> Path:
    """A finished run in the folder a, whose checkpoint can be replaced."""
    table = document(rounds=2, algorithms=algorithms("fedavg"))
    assert main("run", write(here / "t.toml", table), "--out", "a", "--quiet") == 0
    return here / "a"


# ---- nothing outside the directory is written ----------------------------------------------------


@posix
@pytest.mark.parametrize(
    "name", [".lock", "metrics.csv", "metrics.csv.new", "split.json.new", "summary.md",
             "checkpoints/0000-fedavg-seed0.ckpt.new", "checkpoints/0000-fedavg-seed0.ckpt.old"]
)  # fmt: skip
def test_a_link_to_a_file_elsewhere_is_not_written_through(here, begun, name):
    outside = here / "precious"
    outside.write_bytes(b"precious")
    (begun / "metrics.csv").unlink()
    (begun / name).unlink(missing_ok=True)
    (begun / name).symlink_to(outside)
    main("resume", "a", *ALWAYS)
    assert outside.read_bytes() == b"precious"


@posix
def test_a_link_in_the_place_of_the_checkpoints_is_refused(here, begun, capsys):
    (begun / "checkpoints").rename(here / "elsewhere")
    (begun / "checkpoints").symlink_to(here / "elsewhere")
    before = contents(here / "elsewhere")
    assert "checkpoints: is a link, expected a folder" in refused(capsys, "resume", "a")
    assert contents(here / "elsewhere") == before


def test_what_a_killed_write_has_left_is_cleared(begun):
    before = contents(begun)
    for folder in (begun, begun / "checkpoints"):
        (folder / f".fedref-{'0' * 16}.new").write_bytes(b"half")
    (begun / ".mine").write_bytes(b"kept")
    assert main("resume", "a", "--quiet") == 0
    assert contents(begun) == {**before, ".mine": b"kept"}


# ---- a checkpoint is checked as strictly as a config ---------------------------------------------


def sealed(body: bytes) -> bytes:
    return checkpoint.MAGIC + sha256(body).hexdigest().encode() + b"\n" + body


def npz(tree: bytes, compressed: bool = False) -> bytes:
    buffer = io.BytesIO()
    save = np.savez_compressed if compressed else np.savez
    save(buffer, tree=np.frombuffer(tree, np.uint8))
    return buffer.getvalue()


def bomb() -> bytes:
    """10 MB of zeros in 10 kB."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tree.npy", bytes(10**7))
    return buffer.getvalue()


def header(shape: tuple[int, ...]) -> bytes:
    """A member whose header promises more than there is."""
    member = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        member, {"descr": "<f8", "fortran_order": False, "shape": shape}
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("tree.npy", member.getvalue())
    return buffer.getvalue()


BODIES = {
    "nested": npz(b'{"list": [' * 50_000 + b"]}" * 50_000),
    "compressed": npz(b'{"value": 1}', compressed=True),
    "bomb": bomb(),
    "huge": header((2**60,)),
    "overflow": header((2**40, 2**40)),
    "type": npz(b'{"tuple": "os:system", "items": [{"value": "true"}]}'),
    "another type": npz(b'{"tuple": "fedref.algorithms.apfl:Shared", "items": []}'),
    "number": npz(b'{"value": 3}'),
    "not a record": npz(b'{"tuple": "", "items": [{"value": 1}]}'),
    "unhashable": npz(b'{"map": [[[1], {"value": 1}]]}'),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_sealed_file_that_is_no_record_is_one_line_or_a_fresh_start(begun, capsys, name):
    before = contents(begun)
    (path,) = (begun / "checkpoints").iterdir()
    path.write_bytes(sealed(BODIES[name]))
    capsys.readouterr()
    code = main("resume", "a", "--quiet")
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert str(path.relative_to(begun.parent)) in err
    if code:
        assert (code, err.count("\n")) == (2, 1)
    else:  # left aside: the run begins anew
        assert contents(begun) == before


CHANGES = {
    "round 10^30": {"round": 10**30},
    "done early": {"round": 1},
    "negative": {"round": -1, "status": "running"},
    "bool": {"round": True},
    "status": {"status": "finished"},
    "rows": {"rows": []},
    "row": {"rows": [{"round": 0}, {"round": 1}, {"round": 2}]},
    "text in a row": {"rows": "abc"},
    "rounds": {"rounds": [0, 1]},
    "later rounds": {"rounds": [0, 1, 7]},
    "scores": {"scores": [1, 2, 3]},
    "no scores": {"scores": None},
    "state": {"state": 3},
    "reason": {"reason": 3},
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_record_that_no_run_writes_is_refused(begun, capsys, name):
    made = run_directory.resumed(begun)
    (unit,) = units(made)
    path = begun / "checkpoints" / unit.file
    record = checkpoint.load_newest(path, types_of(made, unit))[0]
    assert type(record) is Record
    checkpoint.save(path, record._replace(**CHANGES[name]))
    line = refused(capsys, "resume", "a")
    assert str(path.relative_to(begun.parent)) in line
    with pytest.raises(FedrefError, match=r"\.ckpt"):
        load_run(begun)


def test_a_state_of_another_shape_is_refused(begun, capsys):
    made = run_directory.resumed(begun)
    (unit,) = units(made)
    path = begun / "checkpoints" / unit.file
    record = checkpoint.load_newest(path, types_of(made, unit))[0]
    server = record.state.server
    rows, rounds, scores = record.rows[:2], record.rounds[:2], record.scores[:2]
    running = Record("running", 1, record.state, rows, rounds, scores)
    for w in (server.w[:-1], server.w.astype(int), 3.0):
        state = record.state._replace(server=server._replace(w=w))
        checkpoint.save(path, running._replace(state=state))
        assert "its server state is of another shape" in refused(capsys, "resume", "a")


def test_any_change_of_a_sealed_tree_is_a_result_or_one_error(begun):
    """Structure-aware: the JSON of a real checkpoint, mutated and sealed again."""
    made = run_directory.resumed(begun)
    (unit,) = units(made)
    path = begun / "checkpoints" / unit.file
    _, _, body = path.read_bytes().partition(b"\n")
    with np.load(io.BytesIO(body)) as arrays:
        kept = {name: arrays[name] for name in arrays.files}
    tree = kept.pop("tree").tobytes().decode()
    rng, refusals = random.Random(4), 0
    words = ["null", "-1", "1e999", "[]", "{}", '"a0"', '"list"', '"tuple"', "true", "9" * 30]
    for _ in range(300):
        at = rng.choice([i for i, c in enumerate(tree) if c in '":[{,'])
        new = tree[:at] + rng.choice(words) + tree[at + rng.randrange(1, 8) :]
        buffer = io.BytesIO()
        np.savez(buffer, tree=np.frombuffer(new.encode(), np.uint8), **kept)
        path.write_bytes(sealed(buffer.getvalue()))
        try:
            found = run_directory.saved(begun, unit, made)
        except FedrefError:
            found = None
        assert found is None or type(found) is Record
        refusals += found is None
    assert refusals > 20


# ---- stopped -------------------------------------------------------------------------------------


@posix
@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(signal.SIGTERM, 143, "stopped by SIGTERM"), (signal.SIGINT, 130, "interrupted")],
)
def test_a_signal_stops_the_run_with_a_checkpoint_and_one_line(here, number, code, said):
    path = write(here / "t.toml", document(rounds=3000, eval_every=100))
    run = process("run", path, "--out", "a", "--json", "--checkpoint-every", "1000")
    for _ in range(20):
        run.stdout.readline()
    run.send_signal(number)
    out, err = run.communicate(timeout=60)
    assert run.returncode == code
    assert err == f"fedref: {said}; resume with: fedref resume a\n"
    made = run_directory.resumed(here / "a")
    record = run_directory.saved(here / "a", units(made)[0], made)
    assert record.status == "running"
    assert record.round >= 19 + out.count("\n") - 1  # no round that was told is lost


@posix
def test_a_reader_that_goes_away_stops_the_run_and_is_said_by_the_exit_code(here):
    path = write(here / "t.toml", document(rounds=3000, eval_every=100))
    run = process("run", path, "--out", "a", "--json", "--checkpoint-every", "1000")
    run.stdout.readline()
    run.stdout.close()
    assert run.stderr.read() == ""
    run.stderr.close()
    assert run.wait() == 141
    made = run_directory.resumed(here / "a")
    assert run_directory.saved(here / "a", units(made)[0], made).status == "running"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full")
def test_a_full_standard_output_is_one_line_and_results_are_kept(here):
    path = write(here / "t.toml", document())
    with open("/dev/full", "w") as full:
        run = process("run", path, "--out", "a", stdout=full)
        _, err = run.communicate()
    assert run.returncode == 2
    where, problem = err.splitlines()
    assert where == "fedref: results go to a/"
    assert problem.startswith("fedref: error: standard output: No space left")
    assert (here / "a" / "metrics.csv").exists()


@posix
def test_a_closed_standard_error_is_no_error(here):
    path = write(here / "t.toml", document())
    run = process(
        "run",
        path,
        "--out",
        "a",
        stderr=None,
        first="import os; os.close(2); import sys; sys.stderr = None",
    )
    out, _ = run.communicate()
    assert run.returncode == 0
    assert "| algorithm |" in out


# ---- another machine, another encoding -----------------------------------------------------------


def test_another_kernel_of_blas_is_said_in_one_line(begun, capsys):
    path = begun / "environment.json"
    found = json.loads(path.read_text())
    assert set(found) == {"python", "numpy", "machine", "blas", "kernel"}
    capsys.readouterr()
    path.write_text(json.dumps({**found, "kernel": "Z80"}))
    assert main("resume", "a", "--quiet") == 0
    assert capsys.readouterr().err == (
        f"fedref: a: begun with kernel Z80, now {found['kernel']}: the last digits may differ\n"
    )
    for odd in (b"", b"[]", b'{"kernel": {}}', b"[" * 100_000):
        path.write_bytes(odd)
        assert main("resume", "a", "--quiet") == 0
        assert "environment.json is gone or damaged" in capsys.readouterr().err


def test_ascii_streams_show_help_and_tables(here):
    path = write(here / "t.toml", document(seeds=[0, 1]))
    for words, said in (
        (["run", "--help"], ""),
        (["run", path, "-o", "a"], "fedref: results go to a/\n"),
    ):
        run = process(*words, encoding="ascii", env_more={"PYTHONIOENCODING": "ascii"})
        out, err = run.communicate()
        assert (run.returncode, err) == (0, said)
        assert out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--name", "\udcff"], r"name is '\udcff', expected a string"),
        (["--set", "algorithms=x", "--set", "lr=1"], "algorithms is 'x', expected a table"),
        (["--set", "model.hidden=" + "[" * 30 + "]" * 30], "nested 20 deep"),
        (["--set", "name=" + "{a=" * 30 + "1" + "}" * 30], "nested 20 deep"),
    ],
)
def test_odd_words_are_one_line(capsys, words, message):
    assert message in refused(capsys, "run", *words)


def test_a_key_of_1500_parts_is_one_line(here, capsys):
    (here / "t.toml").write_text("a." * 1500 + "a = 1")
    assert "t.toml: " in refused(capsys, "run", "t.toml")
    nested: dict = {}
    for _ in range(5000):
        nested = {"a": nested}
    with pytest.raises(FedrefError, match="nested 20 deep"):
        config.from_table({"algorithms": {"fedavg": {}}, "model": nested})
