"""Which column feeds which input, and which is the target: a row for every rule, and for every refusal."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxgrad.data.forms import Forms
from onnxgrad.data.matching import TARGETS, check_inputs, find_target, match
from onnxgrad.data.ragged import LengthFeed, PaddedFeed, Ragged
from onnxgrad.data.table import Table
from onnxgrad.errors import DataError

F, LABELS, WORDS = np.zeros(6, np.float32), np.arange(6) % 3, np.array(list("abcabc"))
DAYS = np.array(["2024-01-01", "2024-01-02", "2024-01-03"] * 2)


def model(inputs: str) -> ir.Model:
    """A model with these inputs; what it computes does not matter."""
    text = f'<ir_version: 8, opset_import: ["": 17]> m ({inputs}) => (float[N] out) {{ out = Constant<value_float=1.0>() }}'
    return ir.from_proto(onnx.parser.parse_model(text))


def table(**columns) -> Table:
    return Table("d", columns, loose=columns.pop("loose", False))


def fed(matched) -> dict:
    return {
        name: (feed.columns, feed.shape, feed.dtype and str(feed.dtype))
        for name, feed in matched.inputs.items()
    }


def wide(*shape: int) -> np.ndarray:
    return np.zeros((6, *shape), np.float32)


ROWS = [
    # title, inputs, columns, settings, what feeds each input, the target, words of the notes
    ("a column of an input's name", "float[N, 4] x", {"x": wide(4), "label": LABELS}, {}, {"x": (["x"], None, None)}, "label", ["by its name"]),
    ("capitals of a usual name", "float[N, 4] x", {"x": wide(4), "Label": LABELS}, {}, {"x": (["x"], None, None)}, "Label", ["by its name"]),
    ("the first of the usual names", "float[N, 4] x", {"x": wide(4), "y": LABELS, "target": LABELS}, {}, {"x": (["x"], None, None)}, "target", ["by its name"]),
    ("an input called like a target", "float[N] y, float[N] x", {"y": F, "x": F, "z": F}, {}, {"y": (["y"], None, None), "x": (["x"], None, None)}, "z", ["the only one that is not an input"]),
    ("columns side by side", "float[N, 3] x", {"a": F, "b": F, "c": F, "d": LABELS}, {}, {"x": (["a", "b", "c"], (3,), "float32")}, "d", ["the last column", "3 columns side by side"]),
    ("as many columns as the input is wide: no target", "float[N, 3] x", {"a": F, "b": F, "c": F}, {}, {"x": (["a", "b", "c"], (3,), "float32")}, "", ["3 columns side by side"]),
    ("columns in the shape of the model", "float[N, 2, 2] x", {"a": F, "b": F, "c": F, "d": F, "e": LABELS}, {}, {"x": (["a", "b", "c", "d"], (2, 2), "float32")}, "e", []),
    ("an open axis takes what is left", "float[N, K, 2] x", {"a": F, "b": F, "c": F, "d": F, "e": LABELS}, {}, {"x": (["a", "b", "c", "d"], (-1, 2), "float32")}, "e", []),
    ("an open axis that does not come out", "float[N, K, 2] x", {"a": F, "b": F, "c": F, "e": LABELS}, {}, {"x": (["a", "b", "c"], None, "float32")}, "e", []),
    ("two open axes", "float[N, K, L] x", {"a": F, "b": F, "e": LABELS}, {}, {"x": (["a", "b"], None, "float32")}, "e", []),
    ("no shape at all", "float x", {"x": F, "label": LABELS}, {}, {"x": (["x"], None, None)}, "label", []),
    ("a named target", "float[N, 2] x", {"a": F, "b": F, "label": LABELS}, {"target": "a"}, {"x": (["b", "label"], (2,), "float32")}, "a", []),
    ("several named targets", "float[N] x", {"x": F, "b": F, "c": F}, {"target": "b, c"}, {"x": (["x"], None, None)}, "b", []),
    ("a target with a comma in its name", "float[N] x", {"x": F, "b,c": F}, {"target": "b,c"}, {"x": (["x"], None, None)}, "b,c", []),
    ("a column that is left out", "float[N, 2] x", {"id": F, "a": F, "b": F, "y": LABELS}, {"ignore": ("id",)}, {"x": (["a", "b"], (2,), "float32")}, "y", ["2 columns side by side"]),
    ("the only column left", "float[N, 4] x", {"pixels": wide(4), "y": LABELS}, {}, {"x": (["pixels"], None, None)}, "y", ["'pixels', the only one left"]),
    ("a number for a row of one", "float[N, 1] x", {"x": F, "y": LABELS}, {}, {"x": (["x"], (1,), None)}, "y", []),
    ("a number for a row of any width", "float[N, K] x", {"x": F, "y": LABELS}, {}, {"x": (["x"], (1,), None)}, "y", []),
    ("a number for a row of two stays", "float[N, 2] x", {"x": F, "y": LABELS}, {}, {"x": (["x"], None, None)}, "y", []),
    ("a flat row for a picture", "float[N, 2, 3] x", {"x": wide(6), "y": LABELS}, {}, {"x": (["x"], (2, 3), None)}, "y", ["rows of 6 numbers taken as 2 × 3"]),
    ("a flat row of another length stays", "float[N, 2, 3] x", {"x": wide(5), "y": LABELS}, {}, {"x": (["x"], None, None)}, "y", []),
    ("integers for floats", "float[N, 1] x", {"x": LABELS, "y": LABELS}, {}, {"x": (["x"], (1,), "float32")}, "y", ["int64 used as float32, unscaled"]),
    ("floats for integers stay", "int64[N] x", {"x": F, "y": LABELS}, {}, {"x": (["x"], None, None)}, "y", []),
    ("dates", "float[N, 1] x", {"x": DAYS, "y": LABELS}, {}, {"x": (["x"], (1,), "float32")}, "y", ["holds dates"]),
    ("dates beside numbers", "float[N, 2] x", {"a": F, "b": DAYS, "y": LABELS}, {}, {"x": (["a", "b"], (2,), "float32")}, "y", ["column 'b' holds dates"]),
    ("words for an input of strings", "string[N] x", {"x": WORDS, "y": LABELS}, {}, {"x": (["x"], None, "object")}, "y", []),
    ("two inputs by name", "float[N] a, float[N, 1] b", {"b": F, "a": F, "y": LABELS}, {}, {"a": (["a"], None, None), "b": (["b"], (1,), None)}, "y", []),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[r[0] for r in ROWS])
def test_every_input_gets_its_columns(row):
    _, inputs, columns, settings, expected, target, words = row
    matched = match(model(inputs), table(**columns), **settings)
    assert fed(matched) == expected
    assert matched.target == target
    notes = [note.text for note in matched.notes]
    assert all(any(word in note for note in notes) for word in words), notes
    assert len(notes) >= len(words)
    if not words:
        assert not any("unscaled" in n or "taken as" in n for n in notes)


def test_integers_of_a_format_that_writes_numbers_alike_need_no_note():
    matched = match(model("float[N, 1] x"), Table("d", {"x": LABELS, "y": LABELS}, loose=True))
    assert fed(matched) == {"x": (["x"], (1,), "float32")}
    assert [n.text for n in matched.notes] == ["target: 'y', by its name"]


REFUSED = [
    ("another number of columns", "float[N, 5] x", {"a": F, "b": F, "y": LABELS}, {}, "input 'x' takes 5 numbers per row, and d has 2 columns beside the target 'y': a, b. Leave some out"),
    ("more than twelve columns", "float[N, 5] x", {**{f"c{n}": F for n in range(13)}, "y": LABELS}, {}, "has 13 columns beside the target 'y': c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11 …. Leave"),
    ("an input without a column", "float[N] a, float[N] b", {"a": F, "c": F, "y": LABELS}, {}, "d has no column for input 'b' of the model; it has a, c. Name the columns as the inputs"),
    ("nothing beside the target", "float[N] a, float[N] b", {"y": LABELS}, {}, "has no column for input 'a', 'b' of the model; it has nothing else"),
    ("a target that is not there", "float[N] x", {"x": F}, {"target": "q"}, "d has no column 'q'; it has x"),
    ("an ignored column that is not there", "float[N] x", {"x": F, "y": LABELS}, {"ignore": ("q",)}, "d has no column 'q'; it has x, y"),
    ("many columns are counted", "float[N] x", {f"c{n}": F for n in range(14)}, {"target": "q"}, "c10, c11 and 2 more"),
    ("an output without a column", "float[N] x", {"x": F, "y": LABELS}, {"target": "out="}, "--target 'out=' names no column"),
    ("a word among numbers", "float[N, 2] x", {"a": F, "b": WORDS, "y": LABELS}, {}, "d, row 0: column 'b' holds 'a', and input 'x' takes numbers"),
    ("dates for integers", "int64[N] x", {"x": DAYS, "y": LABELS}, {}, "column 'x' holds '2024-01-01'"),
    ("text that is all numbers", "float[N] x", {"x": np.array(["1", "2"] * 3), "y": LABELS}, {}, "d: column 'x' is text, and input 'x' takes numbers"),
]  # fmt: skip


@pytest.mark.parametrize("row", REFUSED, ids=[r[0] for r in REFUSED])
def test_what_does_not_fit_is_refused(row):
    _, inputs, columns, settings, words = row
    with pytest.raises(DataError) as caught:
        match(model(inputs), table(**columns), **settings)
    assert words in str(caught.value)


def test_gaps_are_refused_unless_somebody_fills_them():
    given = Table(
        "d",
        {"x": F, "t": WORDS, "y": LABELS},
        gaps={"x": "d, line 3: column 'x' is empty", "t": "t is empty"},
    )
    with pytest.raises(
        DataError,
        match=r"^d, line 3: column 'x' is empty; --missing mean or median fills such cells$",
    ):
        match(model("float[N] x"), given, ignore=("t",))
    with pytest.raises(DataError, match=r"^t is empty$"):
        match(model("string[N] t"), given, ignore=("x",))
    with pytest.raises(DataError, match=r"^d, line 3: column 'x' is empty$"):
        match(model("string[N] t"), given, target="x")
    given.filled.add("x")
    assert match(model("float[N] x"), given, ignore=("t",)).target == "y"


# ---- targets


def test_the_usual_names_of_a_target_come_in_an_order():
    for number, name in enumerate(TARGETS):
        columns = {"x": F, **dict.fromkeys(reversed(TARGETS[number:]), LABELS)}
        assert find_target(model("float[N] x"), table(**columns)).target == name


def test_targets_by_output():
    columns = {"x": F, "a": F, "b": F, "c": F}
    found = find_target(model("float[N] x"), table(**columns), target="box = a | b , score=c")
    assert found.targets == {"box": ("a", "b"), "score": ("c",)}
    assert found.target_columns == ["a", "b", "c"]
    assert found.target == "a"


@pytest.mark.parametrize(
    ("columns", "expected"),
    [(("p", "p_target", "q_0", "q_1", "q_3"), {"p": ("p",), "q": ("q_0", "q_1")}), (("p_target", "q"), {"p": ("p_target",), "q": ("q",)})],
)  # fmt: skip
def test_several_outputs_take_the_columns_called_after_them(columns, expected):
    found = find_target(
        model("float[N] x"), table(x=F, **dict.fromkeys(columns, F)), outputs=("p", "q")
    )
    assert found.targets == expected
    assert [(n.kind, n.subject, n.change) for n in found.notes] == [
        ("target", "p, q", "--target names others")
    ]
    with pytest.raises(
        DataError,
        match=r"d has no column for output 'q'; it has x, p\. Name it with --target q=COLUMN",
    ):
        find_target(model("float[N] x"), table(x=F, p=F), outputs=("p", "q"))


def test_classes_of_words():
    found = find_target(model("float[N] x"), Table("d", {"x": F, "y": WORDS}))
    assert found.classes == ["a", "b", "c"]
    assert found.notes[-1].text == "target 'y' is text: 3 classes, numbered in alphabetical order"
    listed = find_target(
        model("float[N] x"), Table("d", {"x": F, "y": WORDS}, classes=["c", "b", "a", "z"])
    )
    assert listed.classes == ["c", "b", "a", "z"]
    assert (
        listed.notes[-1].text
        == "target 'y' is text: 4 classes, numbered as its file of classes lists them"
    )
    other = find_target(model("float[N] x"), Table("d", {"x": F, "y": WORDS}, classes=["p", "q"]))
    assert other.classes == ["a", "b", "c"]


def test_classes_of_numbers_belong_to_a_column_called_label():
    assert find_target(
        model("float[N] x"), Table("d", {"x": F, "label": LABELS}, classes=["p", "q"])
    ).classes == ["p", "q"]
    assert (
        find_target(
            model("float[N] x"), Table("d", {"x": F, "y": LABELS}, classes=["p", "q"])
        ).classes
        == []
    )


# ---- inputs that are no rows


@pytest.mark.parametrize(
    ("shape", "words"),
    [([], "input 'k' of the model is a single number"), ([2, "N"], "input 'k' of the model has its rows on another axis: [2, N]")],
    ids=["a number", "another axis"],
)  # fmt: skip
def test_inputs_without_rows_are_refused_unless_they_are_constants(shape, words):
    given, read = model("float[N] x, float k"), table(x=F, y=LABELS)
    given.graph.inputs[1].shape = ir.Shape(shape)
    with pytest.raises(DataError) as caught:
        check_inputs(given, read, ())
    assert words in str(caught.value)
    check_inputs(given, read, ("k",))


def test_fixed_sizes_are_rows():
    check_inputs(model("float[2, 3] x, float[N] z"), table(x=F, y=LABELS), ())


def test_a_constant_feeds_an_input():
    matched = match(
        model("float[N] x, float[N, 1] k"), table(x=F, y=LABELS), forms=Forms(constants={"k": 2.5})
    )
    assert list(matched.inputs) == ["x", "k"]
    made = matched.inputs["k"]({"x": F})
    assert made.shape == (6, 1)
    assert made.dtype == np.float32
    assert (made == 2.5).all()
    with pytest.raises(DataError, match="only the number of rows may be free in its shape"):
        match(
            model("float[N] x, float[N, K] k"),
            table(x=F, y=LABELS),
            forms=Forms(constants={"k": 2.5}),
        )


# ---- tokens


def test_masks_follow_from_the_lengths_of_tokens():
    rows = Ragged([np.array([5, 6, 7]), np.array([8]), np.array([9, 4])])
    given = Table("d", {"input_ids": rows, "label": LABELS[:3]})
    matched = match(model("int64[N, S] input_ids, int64[N, S] attention_mask"), given)
    assert isinstance(matched.inputs["attention_mask"], LengthFeed)
    assert matched.inputs["attention_mask"].columns == ["input_ids"]
    assert isinstance(matched.inputs["input_ids"], PaddedFeed)
    assert any("by the lengths of 'input_ids'" in n.text for n in matched.notes)
