"""CSV and lines of JSON as tables: which type a column gets, where gaps are, what is refused and in which line."""

from __future__ import annotations

import numpy as np
import pytest

from onnxgrad.data.ragged import Ragged
from onnxgrad.data.read import read
from onnxgrad.errors import DataError, LimitError
from onnxgrad.files import limits


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def table(name: str, content: str):
    with open(name, "w", encoding="utf-8") as file:
        file.write(content)
    return read(name)


def refused(name: str, content: str, kind=DataError) -> str:
    with pytest.raises(kind) as caught:
        table(name, content)
    return str(caught.value)


# ---- CSV


def test_columns_of_csv_have_the_type_of_their_cells():
    found = table("d.csv", "a,b,c,d\n1,1.5,x,\n2,3,4,nan\n-3,1e3,,2\n").arrays
    np.testing.assert_array_equal(found["a"], [1, 2, -3])
    assert found["a"].dtype == np.int64
    np.testing.assert_array_equal(found["b"], np.array([1.5, 3, 1000], np.float32))
    assert found["b"].dtype == np.float32
    assert found["c"].tolist() == ["x", "4", ""]
    np.testing.assert_array_equal(found["d"], np.array([np.nan, np.nan, 2], np.float32))


def test_gaps_of_csv_are_named_where_they_are_first():
    gaps = table("d.csv", "a,b,c,d\n1,2,x,1\n2,,,2\n3,NA,y,3\n").gaps
    assert gaps == {
        "b": "d.csv, line 3: column 'b' is empty",
        "c": "d.csv, line 3: column 'c' is empty",
    }
    assert table("d.csv", "a,b\n1,2\n2,NA\n").gaps == {"b": "d.csv, line 3: column 'b' holds 'NA'"}


CSV = [
    ("1,2\n3,4\n", "d.csv begins with numbers, expected a first line that names the columns"),
    ("a,b,a\n1,2,3\n", "d.csv: the header has the name 'a' twice"),
    ("a,b\n1,2\n3\n", "d.csv, line 3: 1 fields, expected 2 as in the header"),
    ("a,b\n1,2\n3,4,5\n", "d.csv, line 3: 3 fields, expected 2 as in the header"),
    (
        "cat,1\ncat,2\ndog,3\ncat,4\n",
        "d.csv seems to have no header: 'cat' of its first line is a value like those",
    ),
]


@pytest.mark.parametrize(("content", "said"), CSV, ids=[c[1] for c in CSV])
def test_csv_that_is_none(content, said):
    assert refused("d.csv", content).startswith(said)


def test_a_header_may_look_like_one_value():
    assert table("d.csv", "cat,n\ncat,2\ndog,3\n").rows == 2, "once is chance"
    assert table("d.csv", "2020,2021,who\n1,2,a\n3,4,b\n").rows == 2, "years beside a name"


def test_as_many_columns_as_the_limit():
    with limits.override(columns=3):
        assert table("d.csv", "a,b,c\n1,2,3\n").rows == 1
        assert "has 4 columns" in refused("d.csv", "a,b,c,d\n1,2,3,4\n", LimitError)


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_what_parts_the_columns_is_seen(mark):
    content = "a,b\n1,2\n".replace(",", mark)
    assert {n: a.tolist() for n, a in table("d.csv", content).arrays.items()} == {
        "a": [1],
        "b": [2],
    }


def test_a_column_is_of_one_type_in_all_its_parts(monkeypatch):
    """Rows are converted some at a time: text in a later part makes the numbers before it text as they stood there."""
    monkeypatch.setattr("onnxgrad.data.read.CSV_ROWS", 2)
    found = table("d.csv", "a,b,c,d\n01,1,1,1\n2,2,2,2\n\n3,2.5,3,x\nz,4,,4\n5,5,5,5\n")
    assert found.arrays["a"].tolist() == ["01", "2", "3", "z", "5"]
    assert found.arrays["b"].tolist() == [1, 2, 2.5, 4, 5]
    assert found.arrays["b"].dtype == np.float32
    assert np.isnan(found.arrays["c"][3])
    assert found.arrays["d"].tolist() == ["1", "2", "x", "4", "5"]
    assert found.gaps == {"c": "d.csv, line 6: column 'c' is empty"}
    assert [found.where(row) for row in (0, 2, 4)] == ["line 2", "line 5", "line 7"]
    assert refused("d.csv", "a,b\n") == "d.csv has no rows below its header"
    assert (
        refused("d.csv", "a,b\n1,2\n3,4\n5,6\n7\n")
        == "d.csv, line 5: 1 fields, expected 2 as in the header"
    )


# ---- lines of JSON


def test_columns_of_json():
    lines = '{"x": [1, 2.5], "n": 3, "t": "a"}\n\n{"n": -1, "x": [0, 1], "t": "b"}\n'
    found = table("d.jsonl", lines)
    np.testing.assert_array_equal(found.arrays["x"], np.array([[1, 2.5], [0, 1]], np.float32))
    assert (found.arrays["x"].dtype, found.arrays["n"].dtype) == (np.float32, np.int64)
    assert found.arrays["t"].tolist() == ["a", "b"]
    assert [found.where(row) for row in (0, 1)] == ["line 1", "line 3"]
    assert found.loose


def test_lists_of_other_lengths_are_unequal_rows():
    found = table("d.jsonl", '{"x": [1.5]}\n{"x": [2, 3]}\n').arrays["x"]
    assert isinstance(found, Ragged)
    assert [r.tolist() for r in found[[0, 1]]] == [[1.5], [2, 3]]
    grid = table("d.jsonl", '{"x": [[1, 2]]}\n{"x": [[3, 4], [5, 6]]}\n').arrays["x"]
    assert isinstance(grid, Ragged)


def test_null_is_a_gap():
    found = table("d.jsonl", '{"a": 1, "t": "x", "z": null}\n{"a": null, "t": null, "z": null}\n')
    np.testing.assert_array_equal(found.arrays["a"], np.array([1, np.nan], np.float32))
    assert found.arrays["t"].tolist() == ["x", ""]
    assert np.isnan(found.arrays["z"]).all()
    assert found.gaps == {
        "a": "d.jsonl, line 2: 'a' is null", "t": "d.jsonl, line 2: 't' is null", "z": "d.jsonl, line 1: 'z' is null",
    }  # fmt: skip


JSON = [
    ("\n \n", "d.jsonl has no rows"),
    ("[1, 2]\n", 'd.jsonl, line 1: expected an object, such as {"x": [1, 2], "y": 0}'),
    ("{}\n", "d.jsonl, line 1: expected an object"),
    ('{"x": 1}\n{"y": 1}\n', "d.jsonl, line 2: the keys are ['y'], expected ['x']"),
    ('{"x": 1}\n\n{"x": 1, "y": 1}\n', "d.jsonl, line 3: the keys are ['x', 'y'], expected ['x']"),
    ('{"x": [1, 2]}\n{"x": 1}\n', "d.jsonl, line 2: 'x' has shape [], expected [2]"),
    (
        '{"x": [[1, 2]]}\n{"x": [[1, 2, 3]]}\n',
        "d.jsonl, line 2: 'x' has shape [1, 3], expected [1, 2]",
    ),
    ('{"x": [1]}\n{"x": [[1]]}\n', "d.jsonl, line 2: 'x' has shape [1, 1], expected [1]"),
    ('{"x": [1]}\n{"x": []}\n', "d.jsonl, line 2: 'x' is an empty list"),
    ('{"x": [[1], [1, 2]]}\n', "d.jsonl, line 1: 'x' holds lists of different lengths"),
    ('{"x": {"a": 1}}\n', "d.jsonl, line 1: 'x' holds {'a': 1}, expected numbers or text"),
    (
        '{"x": [1]}\n{"x": ["a"]}\n',
        "d.jsonl: 'x' holds lists of numbers in some lines and of text in others",
    ),
]


@pytest.mark.parametrize(("content", "said"), JSON, ids=[j[1] for j in JSON])
def test_json_that_is_no_table(content, said):
    assert refused("d.jsonl", content).startswith(said)
