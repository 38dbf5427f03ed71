"""Tables as text."""

import gzip
from pathlib import Path
from time import process_time

import numpy as np
import pytest
from dataset_files import assert_refused, npz_bytes, put

from fedref import ConfigError, DataError
from fedref.datasets import Source, from_manifest, load, manifest_of, split, write_manifest

TABLE = """\
age,weight,client,y
1,2.5,b,0
3,-4e1,a,2
5,6,b,1
"""


def read(folder: Path, text: str, name: str = "data.csv") -> Source:
    return load(put(folder, name, text.encode()))


def test_features_clients_and_labels_by_their_columns(tmp_path: Path) -> None:
    source = read(tmp_path, TABLE)
    np.testing.assert_array_equal(source.X, [[1, 2.5], [3, -40], [5, 6]])
    assert (source.y.tolist(), source.y.dtype) == ([0, 2, 1], np.int64)
    assert source.client.tolist() == [1, 0, 1]
    assert source.client_names == ("a", "b")
    assert (source.test_from, source.name, source.label_names) == (None, "data.csv", None)
    arrays = {"X": source.X, "y": source.y, "client": np.array(list("bab"))}
    assert load(put(tmp_path, "a.npz", npz_bytes(arrays))).sha256 == source.sha256


@pytest.mark.parametrize("name", ["a.csv.gz", "b.tsv", "C.CSV"])
@pytest.mark.parametrize(
    "text",
    [
        TABLE.replace(",", ";"),
        TABLE.replace(",", "\t"),
        TABLE.replace("\n", "\r\n"),
        "\ufeff" + TABLE,
        TABLE.replace("weight", '"weight, ""kg"""').replace("-4e1", '"-40.0"'),
        TABLE.replace(",", " , ").replace("a ", "a  ").rstrip("\n"),
        TABLE + "\n\n",
        *(TABLE.replace("y\n", f"{name}\n") for name in ("class", "target", "label")),
    ],
)
def test_other_spellings_of_the_same_table(tmp_path: Path, text: str, name: str) -> None:
    data = gzip.compress(text.encode()) if name.endswith("gz") else text.encode()
    found = load(put(tmp_path, name, data))
    assert (found.sha256, found.name) == (read(tmp_path, TABLE).sha256, name)


def test_the_test_part_comes_last(tmp_path: Path) -> None:
    source = read(tmp_path, "x,test,y,client\n1,0,0,a\n2,TRUE,1,b\n3,false,1,a\n4,1,0,a\n5,0,1,b\n")
    assert source.X[:, 0].tolist() == [1, 3, 5, 2, 4]
    assert source.y.tolist() == [0, 1, 1, 1, 0]
    assert source.client.tolist() == [0, 0, 1, 1, 0]
    numbers = read(tmp_path, "x,client,y\n1,10,0\n2,9,1\n3,10,1\n")  # in the order of numbers
    assert (numbers.client.tolist(), numbers.client_names) == ([1, 0, 1], ("9", "10"))
    assert source.test_from == 3


def test_words_are_labels_and_other_numbers_real_targets(tmp_path: Path) -> None:
    words = read(tmp_path, "x,y\n1,dog\n2,cat\n3,dog\n")
    assert (words.y.tolist(), words.label_names) == ([1, 0, 1], ("cat", "dog"))
    real = read(tmp_path, "x,y\n1,0.5\n2,3\n")
    assert (real.y.tolist(), real.y.dtype, real.real) == ([0.5, 3.0], np.float64, True)
    assert not read(tmp_path, "x,y\n1,2.0\n2,3\n").real


def test_label_and_client_may_have_other_names(tmp_path: Path) -> None:
    text = TABLE.replace("client", "hospital").replace("y\n", "outcome\n").encode()
    path = put(tmp_path, "data.csv", text)
    source = load(path, label="outcome", client="hospital")
    assert source.sha256 == read(tmp_path / "..", TABLE).sha256
    assert source.columns == (("label", "outcome"), ("client", "hospital"))
    described = manifest_of(split("natural", source, train_fraction=0.5))
    write_manifest(described, tmp_path / "m.json")
    assert manifest_of(from_manifest(tmp_path / "m.json")) == described
    text = TABLE.replace("client", "shop").replace("weight", "client").encode()
    other = load(put(tmp_path, "b.csv", text), client="shop")  # then `client` is a feature
    assert (other.X.tolist(), other.client_names) == (source.X.tolist(), ("a", "b"))
    with pytest.raises(
        DataError, match=r"data\.label: unknown column 'outcme': did you mean 'outc"
    ):
        load(path, label="outcme")
    with pytest.raises(DataError, match="age is to be two things; expected a column for each"):
        load(path, label="age", client="age")
    with pytest.raises(ConfigError, match="unknown key of data 'lable': did you mean 'label'"):
        load(path, lable="age")


BAD = {
    "line 3 .row 1.: weight is 'heavy'; expected a finite number": TABLE.replace("-4e1", "heavy"),
    "line 3 .row 1.: weight is empty; expected a finite number": TABLE.replace("-4e1", ""),
    "line 3 .row 1.: weight is '1,5'": TABLE.replace(",", ";").replace("-4e1", "1,5"),
    "line 3 .row 1.: weight is 'nan'; expected a finite": TABLE.replace("-4e1", "nan"),
    "line 4 .row 2.: age is '1e999'; expected a finite": TABLE.replace("5,6", "1e999,6"),
    "line 3 .row 1. has 5 cells; expected 4, as the header has": TABLE.replace("-4e1", "-4,1"),
    "line 2 .row 0.: client is empty": TABLE.replace("b,0", ",0"),
    "line 2 .row 0.: y is empty": TABLE.replace("b,0", "b,"),
    "line 3 .row 1.: y is 'two', and a number in other rows": TABLE.replace("a,2", "a,two"),
    "line 2 .row 0.: y is 'nan', and": TABLE.replace("b,0", "b,nan"),
    r"no column y, only age, weight, client, z; .* with one of y, label, class, target": TABLE.replace(
        "y\n", "z\n"
    ),
    "no column y, only 1, 2": "1,2\n3,4\n",
    "columns y and label are there": TABLE.replace("age", "label"),
    "two columns are called age": TABLE.replace("weight", "age"),
    "column 1 has no name": TABLE.replace("age", ""),
    "no column of features, only y, client": "y,client\n1,a\n",
    "data.csv: is empty": "\n\n",
    "no row below the header": "x,y\n",
    "line 2 .row 0.: test is 'yes'; expected 1 or true": "x,test,y\n1,yes,0\n",
    "test is not true for some rows": "x,test,y\n1,1,0\n2,1,0\n",
    "line 3: ": 'x,y\n1,2\n"1,2\n',
    "expected a table as UTF-8 text": "x,y\n\udcff,1\n",
}


@pytest.mark.parametrize("message", BAD)
def test_mistakes_are_named_with_their_line(tmp_path: Path, message: str) -> None:
    data = BAD[message].encode(errors="surrogateescape")
    assert_refused(put(tmp_path, "data.csv", data), message)


def test_the_time_for_a_header_grows_with_its_length_alone(tmp_path: Path) -> None:
    def seconds(columns: int) -> float:
        names = ",".join(f"x{i}" for i in range(columns))
        start = process_time()
        assert read(tmp_path, f"{names},y\n{'1,' * columns}0\n").X.shape == (1, columns)
        return process_time() - start

    assert seconds(20_000) < 20 * seconds(2_000) + 0.1  # was 90 times as long
    names = ",".join(f"x{i}" for i in range(20_000))
    with pytest.raises(DataError, match="no column y, only x0, x1") as caught:
        read(tmp_path, f"{names}\n")
    assert len(str(caught.value)) < 1000
