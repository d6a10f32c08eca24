"""Rows as batches and columns as targets: every form that is taken, every refusal, the last short batch."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxgrad.data.arrays import ArrayData, Names, StreamData, make_data
from onnxgrad.data.goals import Goal, RowWeights, goal
from onnxgrad.data.matched import Feed
from onnxgrad.data.sounds import resampled
from onnxgrad.data.table import Table, batch_sizes, check_lengths, in_pieces, is_number, rejoin
from onnxgrad.data.texts import TextForm, text_columns
from onnxgrad.errors import DataError

ONE, TWO = Names(("x",), ("y",)), Names(("a", "b"), ("p", "q"))
X, Y = np.arange(10.0).reshape(5, 2), np.arange(5)
F32 = np.dtype(np.float32)


def table(**columns) -> Table:
    return Table("d.csv", columns or {"x": X, "y": Y}, where=lambda row: f"line {row + 2}")


# ---- arrays


def test_the_last_batch_may_be_short_and_an_epoch_begins_where_it_is_told():
    data = ArrayData({"x": X, "y": Y}, 2, False, 0)
    assert len(data) == 3
    batches = list(data.epoch(0))
    assert [len(b.arrays["x"]) for b in batches] == [2, 2, 1]
    assert [b.number for b in batches] == [0, 1, 2]
    assert [b.number for b in data.epoch(0, start=1)] == [1, 2]
    np.testing.assert_array_equal(np.concatenate([b.arrays["y"] for b in batches]), Y)
    np.testing.assert_array_equal(np.concatenate([b.rows for b in batches]), Y)


@pytest.mark.parametrize(
    ("arrays", "size", "kind", "words"),
    [({"x": X, "y": Y[:4]}, 2, DataError, "'y' has 4 rows, and 'x' has 5"), ({"x": X[:0]}, 2, DataError, "the data has no rows"),
     ({}, 2, DataError, "the data has no rows"), ({"x": X}, 0, ValueError, "batch_size is 0, expected at least 1"),
     ({"x": 3.0}, 1, DataError, "'x' is a single number, expected one row per sample")],
)  # fmt: skip
def test_arrays_that_are_no_rows(arrays, size, kind, words):
    with pytest.raises(kind, match=words):
        ArrayData(arrays, size, False, 0)


def test_a_digest_of_arrays_sees_rows_behind_the_first_thousand():
    big = np.zeros(3000)
    other = big.copy()
    other[2999] = 1
    digests = [ArrayData({"x": a}, 8, False, 0).digest() for a in (big, big.copy(), other)]
    assert digests[0] == digests[1] != digests[2]


def test_batches_of_a_function_and_of_a_list():
    batches = [(X, Y), {"x": X, "y": Y}, {"x": X, "labels": Y}, [X, Y]]
    for source in (batches, lambda epoch: iter(batches)):
        found = list(StreamData(source, ONE).epoch(0, start=1))
        assert [b.number for b in found] == [1, 2, 3]
        assert all(set(b.arrays) == {"x", "y"} for b in found)
    with pytest.raises(ValueError, match="can be used only once"):
        StreamData(iter(batches), ONE)


def test_names_of_batches():
    four = (X, X + 1, Y, Y + 1)
    assert list(TWO.to_dict(four)) == ["a", "b", "p", "q"]
    assert TWO.to_dict(four)["q"][0] == 1
    assert list(TWO.join((X, X), (Y, Y))) == ["a", "b", "p", "q"]
    assert list(TWO.join({"a": X, "b": X})) == ["a", "b"]
    assert list(ONE.join(X)) == ["x"]
    with pytest.raises(
        DataError, match="x is one array, and the inputs are 'a', 'b': give a dict by name"
    ):
        TWO.join(X)
    with pytest.raises(DataError, match="y is one array, and the targets are none"):
        Names(("x",), ()).join(X, Y)
    with pytest.raises(
        DataError, match=r"a batch is a tuple, expected a dict by name or a pair \(x, y\)"
    ):
        TWO.to_dict((X, Y, Y))
    with pytest.raises(DataError, match="a batch is a float"):
        ONE.to_dict(1.0)


def test_a_target_under_a_usual_name_unless_an_input_has_it():
    assert set(ONE.to_dict({"x": X, "label": Y})) == {"x", "y"}
    assert set(Names(("label",), ("y",)).to_dict({"label": X})) == {"label"}
    assert set(ONE.to_dict({"x": X, "label": Y, "labels": Y})) == {"x", "label", "labels"}
    assert set(TWO.to_dict({"a": X, "b": X, "label": Y})) == {"a", "b", "label"}


def test_what_fit_is_given():
    own = ArrayData({"x": X}, 2, False, 0)
    assert make_data(own, None, ONE, 2, False, 0) is own
    assert isinstance(make_data(X, Y, ONE, 2, False, 0), ArrayData)
    assert isinstance(make_data({"x": X, "y": Y}, None, ONE, 2, False, 0), ArrayData)
    assert isinstance(make_data([(X, Y)], None, ONE, 2, False, 0), StreamData)
    assert isinstance(make_data(lambda epoch: [(X, Y)], None, ONE, 2, False, 0), StreamData)


# ---- tables


def test_parts_of_a_table():
    given = table()
    parts = list(given.parts(["y"], 2))
    assert [list(rows) for rows, _ in parts] == [[0, 1], [2, 3], [4]]
    assert [list(arrays["y"]) for _, arrays in parts] == [[0, 1], [2, 3], [4]]
    assert [list(r) for r, _ in given.parts(["y"], 2, start=1)] == [[2, 3], [4]]
    assert [list(r) for r, _ in given.parts(["y"], 2, chosen=np.array([1, 4]))] == [[1, 4]]
    np.testing.assert_array_equal(given.column("y"), Y)
    assert len(given.head("y", 3)) == 3
    assert given.where(0) == "line 2"
    assert Table("d", {"x": X}).where(3) == "row 3"


def numbered(*sizes: int):
    at = 0
    for size in sizes:
        yield np.arange(at, at + size), {"v": np.arange(at, at + size) * 10}
        at += size


@pytest.mark.parametrize(
    ("sizes", "size"), [((3, 3, 1), 2), ((1, 1, 1, 1), 3), ((8,), 3), ((2, 2), 2), ((5,), 8)]
)
def test_parts_of_any_lengths_become_parts_of_one(sizes, size):
    found = list(rejoin(numbered(*sizes), size))
    assert [len(rows) for rows, _ in found] == batch_sizes(sum(sizes), size)
    assert list(np.concatenate([rows for rows, _ in found])) == list(range(sum(sizes)))
    assert all((arrays["v"] == rows * 10).all() for rows, arrays in found)


def test_parts_become_pieces_of_given_sizes():
    nothing = next(numbered(0))
    found = list(in_pieces(numbered(3, 1, 4), [0, 2, 0, 4, 2], nothing))
    assert [len(rows) for rows, _ in found] == [0, 2, 0, 4, 2]
    assert list(np.concatenate([rows for rows, _ in found])) == list(range(8))
    assert all((arrays["v"] == rows * 10).all() for rows, arrays in found)


def test_lengths_of_columns():
    check_lengths("d", {"a": X, "b": Y})
    with pytest.raises(
        DataError, match=r"d: the arrays differ in their number of rows: a has 5, b has 4"
    ):
        check_lengths("d", {"a": X, "b": Y[:4]})
    for nothing in ({}, {"a": X[:0]}):
        with pytest.raises(DataError, match="d has no rows"):
            check_lengths("d", nothing)


def test_what_reads_as_a_number():
    assert [is_number(t) for t in ("1", "-2.5e3", "nan", "a", "", "1,5")] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]


def test_a_feed_stacks_converts_and_shapes():
    arrays = {"a": np.array([1, 2]), "b": np.array([3, 4])}
    made = Feed(["a", "b"], (2, 1), F32)(arrays)
    assert made.dtype == F32
    assert made.tolist() == [[[1], [3]], [[2], [4]]]
    assert Feed(["a"], None, None)(arrays) is arrays["a"]
    assert Feed(["a"], (1,), None)(arrays).tolist() == [[1], [2]]
    words = Feed(["w"], None, np.dtype(object))({"w": np.array(["p", "q"])})
    assert words.dtype == object


# ---- targets


def made(values: np.ndarray, **more) -> np.ndarray:
    settings = {"labels": True, "column": False, "dtype": F32, "classes": [], **more}
    return Goal("t", ("y",), **settings)({"y": values}, np.arange(len(values)), table())


def test_goals_of_every_kind():
    assert made(np.array([0.0, 2.0])).dtype == np.int64
    assert made(np.array([1, 2]), labels=False).dtype == F32
    assert made(np.array([1, 2]), labels=False, column=True).shape == (2, 1)
    assert made(np.array([[1, 2]]), labels=False, column=True).shape == (1, 2)
    assert made(np.array(["q", "p"]), classes=["p", "q"]).tolist() == [1, 0]
    assert made(np.array([1, 0]), shares=3).tolist() == [[0, 1, 0], [1, 0, 0]]
    both = Goal("t", ("a", "b"), False, False, F32, [])
    stacked = both({"a": np.array([1, 2]), "b": np.array([3, 4])}, np.arange(2), table())
    assert stacked.tolist() == [[1, 3], [2, 4]]


NINE = [f"c{n}" for n in range(9)]


@pytest.mark.parametrize(
    ("column", "more", "words"),
    [(np.array([0.0, 0.5]), {}, "d.csv, line 3: the label 'y' is 0.5, expected a whole number"),
     (np.array([np.nan, 1]), {}, "d.csv, line 2: the label 'y' is nan, expected a whole number"),
     (np.array([np.inf, 1]), {}, "the label 'y' is inf"),
     (np.array(["p", "z"]), {"classes": ["p", "q"]}, "d.csv, line 3: the label is 'z', expected one of p, q"),
     (np.array(["z"]), {"classes": NINE}, "expected one of c0, c1, c2, c3, c4, c5, c6, c7 …"),
     (np.array(["z"]), {}, "expected one of numbers"),
     (np.array([0, 3]), {"shares": 3}, "d.csv, line 3: the label is 3, expected 0 to 2"),
     (np.array([0, -1]), {"shares": 3}, "d.csv, line 3: the label is -1, expected 0 to 2")],
)  # fmt: skip
def test_labels_that_are_none(column, more, words):
    with pytest.raises(DataError) as caught:
        made(column, **more)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("loss", "shape", "target", "labels", "column"),
    [("cross_entropy", ["N", 3], Y, True, False), ("nll", ["N", 3], Y, True, False), ("mse", ["N", 1], X[:, 0], False, True),
     ("mse", ["N", None], X[:, 0], False, True), ("mse", ["N", 2], X[:, 0], False, False), ("mse", ["N"], X[:, 0], False, False),
     ("mse", ["N", 1], X, False, False), ("mse", None, X[:, 0], False, False)],
)  # fmt: skip
def test_what_a_loss_wants(loss, shape, target, labels, column):
    output = ir.Value(name="o", type=ir.TensorType(ir.DataType.FLOAT))
    output.shape = None if shape is None else ir.Shape(shape)
    found = goal(loss, output, target, "t", ("y",), [])
    assert (found.labels, found.column, found.dtype) == (labels, column, F32)


def test_weights_of_rows():
    weights = RowWeights("w", ("w",), F32)
    assert weights({"w": np.array([0, 2])}, np.arange(2), table()).tolist() == [0, 2]
    for bad, at in ((np.array([1.0, -0.5]), "line 3: the weight 'w' is -0.5"), (np.array([1, np.nan]), "line 3: the weight 'w' is nan"),
                    (np.array([np.inf, 1]), "line 2: the weight 'w' is inf"), (np.array(["a", "b"]), "line 2: the weight 'w' is a")):  # fmt: skip
        with pytest.raises(DataError, match=at):
            weights({"w": bad}, np.arange(2), table())


# ---- sounds and texts


def test_silence_of_no_length_has_no_other_rate():
    assert len(resampled(np.zeros(0), 8000, 16000)) == 0
    same = np.ones(4)
    assert resampled(same, 8000, 8000) is same
    assert len(resampled(np.ones(100), 8000, 16000)) == 200
    assert len(resampled(np.ones(101), 16000, 8000)) == 51


def test_which_columns_are_text():
    words = np.array(["a", "b"])
    read = Table("d", {"one": words, "two": words, "n": np.arange(2)})
    assert text_columns(read, ["one", "two", "n"], TextForm(), False) == ["one", "two"]
    assert text_columns(read, ["one", "n"], TextForm(columns=("two",)), True) == ["two"]
    usual = Table("d", {"a": words, "sentence": words})
    assert text_columns(usual, ["a", "sentence"], TextForm(), False) == ["sentence"]
    three = Table("d", {"a": words, "b": words, "c": words})
    with pytest.raises(
        DataError, match=r"d has 3 columns of text: a, b, c\. Say which with --text"
    ):
        text_columns(three, ["a", "b", "c"], TextForm(), False)
    many = Table("d", {f"c{n}": words for n in range(14)})
    with pytest.raises(DataError) as caught:
        text_columns(many, list(many.columns), TextForm(columns=("z",)), True)
    assert str(caught.value) == "--text: d has no column 'z'; it has " + ", ".join(
        f"c{n}" for n in range(12)
    )
    assert text_columns(usual, ["a"], TextForm(columns=("z",)), False) == ["a"]
