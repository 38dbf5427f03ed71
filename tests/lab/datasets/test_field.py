"""Files as other projects write them: read as they mean it, or refused with what would be right."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from dataset_files import leaf_object, npz_bytes, put, put_json, write_idx
from hypothesis import given, settings
from hypothesis import strategies as st

import fedref
from fedref import ConfigError, DataError
from fedref.lab.datasets import RULES, load, split, texts
from fedref.lab.datasets.describe import statistics, statistics_text
from fedref.lab.datasets.formats import recipes
from fedref.lab.datasets.sources import from_memory

ROWS = [[0.5, -1.0], [1.5, 2.0], [0.0, 3.5]]


def leaf(folder, *labels, x=ROWS, **more):
    """A LEAF file of users a, b, ... with these labels."""
    users = {name: (x[: len(y)], y) for name, y in zip("abc", labels)}
    return load(put_json(folder, leaf_object(**users) | more))


def test_labels_of_leaf_are_words_or_real_targets_too(tmp_path):
    words = leaf(tmp_path, ["yes", "no"], ["no", "maybe", ["yes"]])
    assert (words.y.tolist(), words.label_names) == ([2, 1, 1, 0, 2], ("maybe", "no", "yes"))
    real = leaf(tmp_path, [1, 2.0], [[0.75], 3])
    assert (real.y.tolist(), real.real) == ([1, 2, 0.75, 3], True)
    for labels, message in (
        ((["yes", "no"], [1, 2]), "'b': labels are numbers; expected words, as in .*'a'"),
        ((["yes", 1],), r"'a': y\[1\] is 1; expected one number for each row in y, or a word"),
        ((["x" * 201],), "expected one number .*, or a word of at most 200 characters"),
        (([1, "x"],), r"y\[1\] is 'x'"),
        (([1.5, float("1e400")],), "holds|y is inf in row 1"),
    ):
        with pytest.raises(DataError, match=message):
            leaf(tmp_path, *labels)


def test_whole_numbers_that_need_64_bits_are_no_windows_of_characters(tmp_path):
    source = leaf(tmp_path, [0, 1, 1], x=[[2**63]] * 3)
    assert (source.vocabulary, source.X.tolist()) == (None, [[2**63]] * 3)


TEXT = "now is the time for all good men to come to the aid of the party, and so on; " * 4


def test_shakespeare_as_leaf_writes_it(tmp_path):
    x, y = [TEXT[i : i + 80] for i in range(20)], [TEXT[i + 80] for i in range(20)]
    whole = leaf_object(a=(x, y), b=(x[:5], y[:5]))
    path = put_json(tmp_path, whole)
    source, empty = load(path), leaf_object(a=(x, y), b=(x[:5], y[:5]), nan=([], []))
    assert source.vocabulary == texts.CHARACTERS
    assert [texts.decode(row) for row in source.X[:20]] == x
    assert texts.decode(source.y[:20]) == "".join(y)
    # LEAF's script counts 79 rows too many in the part after the gap
    put_json(tmp_path, {**empty, "num_samples": [99, 84, 30]})
    assert load(path).sha256 == source.sha256
    assert "1 of 3 users have no row" in load(path).notes
    for counts, message in (
        ([98, 84, 30], "'a': 20 rows in x, 20 in y, 98 in num_samples"),
        ([99, 84, 80], "'nan': 0 rows in x, 0 in y, 80 in num_samples"),
        ([19, 84, 30], "19 in num_samples"),
    ):
        put_json(tmp_path, {**empty, "num_samples": counts})
        with pytest.raises(DataError, match=message):
            load(path)
    for odd, message in (
        ({"a": (["ab", "abc"], ["c", "d"])}, r"x\[1\] is 'abc'; expected a string of 2 characters"),
        ({"a": (["ab", "ab"], ["c", "dd"])}, r"y\[1\] is 'dd'; expected a string of 1 char"),
        (
            {"a": (["ab"], ["c"]), "b": (ROWS, [1, 2, 3])},
            "'b': x holds numbers; expected windows of ",
        ),
    ):
        put_json(tmp_path, leaf_object(**odd))
        with pytest.raises(DataError, match=message):
            load(path)
    put_json(tmp_path, {**leaf_object(), "num_samples": [81, 82, 83]})  # rows of numbers
    with pytest.raises(DataError, match="2 rows in x, 2 in y, 81 in num_samples"):
        load(path)


def test_sent140_by_its_path_and_in_the_folder_of_all_data(tmp_path):
    def user(name, rows):
        return [["1", "Mon", "NO_QUERY", name, text] for text, _ in rows], [y for _, y in rows]

    data = leaf_object(
        ann=user("ann", [("so happy", 1), ("so sad", 0)]), bob=user("bob", [("so so", 4)])
    )
    put_json(tmp_path, data, "sent140/all_data/all_data.json")
    path = load(tmp_path / "sent140")
    assert path.vocabulary == ("so", "happy", "sad", "·")
    assert (path.y.tolist(), path.client_names) == ([1, 0, 1], ("ann", "bob"))
    assert path.sha256 == load("sent140", tmp_path).sha256
    put_json(tmp_path, data, "one/train/a.json")
    with pytest.raises(DataError, match=r"holds train/\*.json without the other part"):
        load(tmp_path / "one")
    assert load(tmp_path / "one" / "train").sha256 == path.sha256


@pytest.mark.parametrize(
    ("text", "X", "y", "first"),
    [
        ("+1 1:0.5 3:1\n-1 2:1.5 # odd\n\n+1 1:-1 4:2.25", [[0.5, 0, 1, 0], [0, 1.5, 0, 0], [-1, 0, 0, 2.25]],
         [1, -1, 1], 1),
        ("# by scikit-learn\n\n0 0:2 2:1\n2 1:1e-1\n", [[2, 0, 1], [0, 0.1, 0]], [0, 2], 0),
        ("b 1:1\na\n", [[1], [0]], [1, 0], 1),
        ("0.5 1:1\n1.25 2:1\n", [[1, 0], [0, 1]], [0.5, 1.25], 1),
    ],
)  # fmt: skip
def test_svmlight_with_and_without_a_suffix(tmp_path, text, X, y, first):
    sources = [load(put(tmp_path, name, text.encode())) for name in ("a.svm", "a9a", "a9a.t")]
    for source in sources:
        assert (source.X.tolist(), source.y.tolist()) == (X, y)
        assert f"features are numbered from {first}" in source.notes[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2:1 1:1", "line 1: index 1 after 2; expected .*indices ascending"),
        ("1 1:1\n1 1:1 1:2", "line 2: index 1 after 1"),
        ("1 1:x", "line 1: '1:x'"),
        ("1 qid:3 1:1", "line 1: 'qid:3'"),
        ("1 1:nan", "line 1: '1:nan'"),
        ("1 -1:2", "line 1: '-1:2'"),
        ("1\n2", "no line has a value"),
        ("1 999999999:1", "1 rows of 999999999 features take .* bytes; expected at most"),
        ("1 1:1\na 1:1", r"line 2 \(row 1\): the label is 'a', and a number in other rows"),
        ("1,2 1:1\n1 1:1", "the label is '1,2'"),
    ],
)
def test_odd_svmlight_is_refused(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        load(put(tmp_path, "a.svm", text.encode()))


def test_pfllib_is_refused_with_the_lines_that_convert_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (5, 2, 1, 6, 7)).astype(np.float32)
    for k, part in enumerate(("train", "train", "train", "test", "test")):
        data = {"x": X[k], "y": np.array([k, 1])}
        put(tmp_path, f"{part}/{k % 3 * 5}.npz", npz_bytes({"data": np.array(data, object)}))
    for path in (".", "train/0.npz"):
        with pytest.raises(DataError, match=r"how PFLlib becomes one: import numpy as np;"):
            load(path)
    exec("\n".join(recipes.RECIPES["PFLlib"]), {})
    source = load("data.npz")
    assert (source.image, source.test_from, source.client_names) == ((6, 7, 1), 6, ("0", "5", "10"))
    assert source.client.tolist() == [0, 0, 2, 2, 1, 1, 0, 0, 1, 1]
    np.testing.assert_array_equal(source.X[2:4].reshape(2, 6, 7), X[2, :, 0])
    for name in ("a.arff", "b.h5", "c.hdf5"):
        with pytest.raises(
            DataError, match=r"`fedref data --help` says how .* becomes one: import"
        ):
            load(put(tmp_path, name, b"@relation\n"))


def test_labels_in_an_archive_are_those_of_a_csv(tmp_path):
    X = np.arange(4.0)[:, None]
    for words, y, names in (
        (["+1", "-1"], [1, -1], None),
        (["0.5", "-2"], [0.5, -2], None),
        ([b"no", b"yes"], [0, 1], ("no", "yes")),
        (np.array([b"no", b"yes"], object), [0, 1], ("no", "yes")),
    ):
        source = from_memory((X, np.array([*words] * 2)), "data")
        assert (source.y.tolist(), source.label_names) == (y * 2, names)


def csv(folder, header, *lines):
    return load(put(folder, "a.csv", "\n".join([header, *lines]).encode()))


def test_columns_that_look_like_something_else_are_features_and_that_is_said(tmp_path):
    found = csv(
        tmp_path, "a,Is_Test,fold,weight,Unnamed: 0,user-id,y", "1,0,2,1,0,7,0", "2,1,3,1,1,8,1"
    )
    assert found.X.shape == (2, 6)
    assert "taken as features: Is_Test, fold, weight, Unnamed: 0, user-id; leave" in found.notes[0]
    assert csv(tmp_path, "a,heavy,y", "1,0,2").notes == ()
    assert csv(tmp_path, "a,y", "1,inf", "2,sup").label_names == ("inf", "sup")
    (note,) = csv(tmp_path, "a,client,y", "1,NA,2", "2,Nan,1").notes  # Nan is a province
    assert "client is NA, Nan in some rows, taken for a name: leave out these rows if" in note


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("a;y", "1,5;0"), "a is '1,5'; .* with a decimal point in the place of a comma"),
        (("a;y", "-1.234,5;0"), "a is '-1.234,5'; .* a comma, and thousands not set apart"),
        (("a;y", "1 234.5;0"), "a is '1 234.5'; .*, and thousands not set apart"),
        (("a,y", "?,0"), "a is '\\?'; .*fill the cell, or leave out its row"),
        (("a,y", "True,0"), "a is 'True'; .*; words, dates and units become numbers, such as 0"),
        (("a,y", "1,?"), r"y is '\?'; expected a number or a word"),
        (("a,y", "1,ok", "2,nan"), "y is nan in some rows; expected a name in all rows"),
        (("a,y", "1,0", "2,nan"), r"line 3 \(row 1\): y is 'nan'; expected finite numbers in all"),
        (("a,client,y", "1,n,1", "2,nan,0"), "client is nan in some rows; expected a name in all"),
    ],
)
def test_cells_of_other_habits_are_refused(tmp_path, lines, message):
    with pytest.raises(DataError, match=message):
        csv(tmp_path, *lines)


def test_what_holds_arrays_in_memory_is_read_or_refused_in_one_true_sentence():
    X, y = np.arange(6.0).reshape(3, 2), np.array([0, 1, 1])
    records = np.rec.fromarrays([X[:, 0], X[:, 1], y], names="a,b,y")
    table = from_memory({"X": X, "y": y}, "data")
    assert from_memory(records, "data").sha256 == table.sha256
    assert from_memory((records[["a", "b"]], y), "data").sha256 == table.sha256
    sparse = pytest.importorskip("scipy.sparse").csr_array(X)
    with pytest.raises(
        DataError, match=r"is sparse, a csr_array; expected an array: X.toarray\(\)"
    ):
        from_memory((sparse, y), "data")
    torch = pytest.importorskip("torch")
    leaf = torch.tensor(X, requires_grad=True)
    for value in ((leaf, y), {"X": leaf, "y": y}, {"a": (leaf, y)}):
        with pytest.raises(DataError, match=r"call numpy\(\) on Tensor.* this is a Tensor"):
            fedref.run("fedavg", data=value, split="iid")
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y})
    assert from_memory(frame, "data").sha256 == table.sha256


# ---- rows in = rows used + rows named as left out ------------------------------------------------


def formats(folder, X, y, client, test):
    """The same rows as a CSV, an archive, LEAF's folders, idx files and svmlight's text."""
    arrays = {"X": X, "y": y, "client": client, "test": test}
    table = zip(*X.T.tolist(), y.tolist(), client.tolist(), test.tolist())
    lines = ["a,b,y,client,test", *(",".join(map(str, row)) for row in table)]
    yield load(put(folder, "a.csv", "\n".join(lines).encode()))
    yield load(put(folder, "a.npz", npz_bytes(arrays)))
    for part, rows in (("train", ~test), ("test", test)):
        held = {str(k): rows & (client == k) for k in range(6)}
        users = {name: (X[mine].tolist(), y[mine].tolist()) for name, mine in held.items()}
        put_json(folder, leaf_object(**users), f"leaf/{part}/a.json")
    yield load(folder / "leaf")
    yield load(write_idx(folder / "idx", pack=False))
    text = "\n".join(f"{c} 1:{a!r} 2:{b!r}" for (a, b), c in zip(X.tolist(), y.tolist()))
    yield load(put(folder, "a.svm", text.encode()))


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_every_row_is_used_or_named_as_left_out(rule, data):
    n = data.draw(st.integers(40, 80))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    client, y = rng.integers(0, 6, n), rng.integers(0, 4, n)
    y[:4], test = range(4), rng.random(n) < data.draw(st.sampled_from([0.1, 0.4]))
    test[:3] = [True, False, False]
    if rule == "natural" or data.draw(st.booleans()):
        test |= client == client[0]  # a client that is held out
        test[-1], client[-1] = False, 5 - client[0]
    known = {
        "users": 2 if rule in ("fedprox-femnist", "per-fedavg") else 4,
        "base": 1,
        "min_rows": 3,
    }
    given = {key: value for key, value in known.items() if hasattr(RULES[rule], key)}
    given |= {"classes": 2} if hasattr(RULES[rule], "classes") else {}
    with tempfile.TemporaryDirectory() as folder:
        for source in formats(Path(folder), rng.normal(size=(n, 2)), y, client, test):
            assert len(source.y) in (n, 18)  # 18 images
            try:
                found = split(rule, source, 1, **given)
            except ConfigError:  # too few rows, or no clients, as it says
                assert rule == "per-fedavg" or source.client is None
                continue
            used = np.concatenate([part.rows for part in found.every_part.values()])
            assert len(np.unique(used)) == len(used)
            left, text = statistics(found).get("left out", 0), statistics_text(found)
            assert len(used) + left == len(source.y)
            assert (f"{left:,} of {len(source.y):,} rows are left out: " in text) == (left > 0)
            unseen = 0 if found.unseen is None else len(found.unseen.sizes)
            assert (f"{unseen} of {found.clients + unseen} clients never train" in text) == (
                unseen > 0
            )


def test_labels_of_test_rows_alone_and_a_label_that_no_model_takes_are_said():
    X, client = np.zeros((6, 1)), np.zeros(6, int)
    arrays = {"X": X, "y": np.array([0, 0, 1, 7, 7, 1]), "client": client, "test": np.arange(6) > 2}
    text = statistics_text(split("natural", from_memory(arrays, "data")))
    assert "no training row has label 7, 2 test rows do" in text
    arrays |= {"y": np.array([0, 0, 10**9] * 2)}
    text = statistics_text(split("natural", from_memory(arrays, "data")))
    assert "labels run from 0 to 1000000000: no model has more than 100,000 classes" in text
    text = statistics_text(split("iid", from_memory(arrays, "data"), users=2))
    assert "iid deals the 3 rows of the test part as any others; --set split.pool=train" in text
