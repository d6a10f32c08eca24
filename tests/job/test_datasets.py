"""Data for `onnxgrad train`: every format, and what is refused before the first step."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from job.problem import LABEL, X, run

# ---- refusals: before the first step, and nothing is lost


def nan_npz(folder):
    bad = X.copy()
    bad[7, 2] = np.nan
    np.savez("bad.npz", x=bad, label=LABEL)
    return "bad.npz"


def npz(**arrays):
    def write(folder):
        np.savez("bad.npz", **arrays)
        return "bad.npz"

    return write


def text(name, content):
    def write(folder):
        (folder / name).write_bytes(content)
        return name

    return write


BAD_DATA = [
    ("a missing file", lambda f: "nothing.npz", "nothing.npz: no such file"),
    ("an empty file", text("e.csv", b""), "e.csv is empty"),
    ("an unknown ending", text("d.xyz", b"1"), "has the ending '.xyz'"),
    ("a folder without images", lambda f: str(f), "holds no images in folders by class"),
    (
        "a ragged CSV",
        text("r.csv", b"a,b,c,d,label\n1,2,3,4,0\n1,2,3,0\n"),
        "r.csv, line 3: 4 fields, expected 5",
    ),
    (
        "an empty cell",
        text("c.csv", b"a,b,c,d,label\n1,2,3,4,0\n1,,3,4,0\n"),
        "c.csv, line 3: column 'b' is empty",
    ),
    ("a binary called .csv", text("b.csv", bytes(range(128, 256)) * 9), "b.csv is not CSV text"),
    ("a text called .npz", text("t.npz", b"hello"), "t.npz is not an .npz file"),
    ("broken JSON", text("j.jsonl", b'{"x": [1,2,3,4], "label": 0}\n{"x": \n'), "j.jsonl, line 2:"),
    (
        "other names",
        npz(z=X, label=LABEL, q=X),
        "has no column for input 'x' of the model; it has z, q",
    ),
    ("no target", npz(x=X), "has no target: every column is an input of the model"),
    ("rows that differ", npz(x=X, label=LABEL[:-1]), "the arrays differ in their number of rows"),
    ("another width", npz(x=X[:, :3], label=LABEL), "'x'"),
    ("labels out of range", npz(x=X, label=LABEL + 5), "label"),
    ("NaN", nan_npz, "row 7"),
]


@pytest.mark.parametrize(("title", "make", "expected"), BAD_DATA, ids=[b[0] for b in BAD_DATA])
def test_bad_data_is_refused_and_an_earlier_result_is_kept(title, make, expected, folder, capsys):
    Path("tuned.onnx").write_bytes(b"an earlier result")
    code, _, err = run(
        capsys, "train", "model.onnx", "--data", make(folder), "-o", "tuned.onnx", "--val", "0"
    )
    assert code == 2
    assert expected in err
    assert "Traceback" not in err
    assert Path("tuned.onnx").read_bytes() == b"an earlier result"


BAD_TEXT = [
    ("no header", b"1,2,3,4,0\n1,2,3,4,1\n", "begins with numbers, expected a first line that names"),
    ("a name twice", b"a,a,c,d,label\n1,2,3,4,0\n", "the header has the name 'a' twice"),
    ("an open quote", b'a,b,c,d,label\n1,2,3,4,"0\n', "is not CSV text"),
    ("a word", b"a,b,c,d,label\n1,2,3,4,0\n1,NA,3,4,0\n", "line 3: column 'b' holds 'NA'"),
    ("NaN", b"a,b,c,d,label\n1,2,3,4,0\n\n1,nan,3,4,0\n", "bad.csv: input 'x' holds NaN in line 4"),
    ("a column too many", b"id,a,b,c,d,label\n7,1,2,3,4,0\n", "has 5 columns beside the target 'label'"),
    ("a label", b"a,b,c,d,label\n1,2,3,4,0\n1,2,3,4,9\n", "target 'label' holds the label 9 in line 3"),
    ("half a label", b"a,b,c,d,label\n1,2,3,4,0.5\n1,2,3,4,1\n", "the label 'label' is 0.5"),
    ("classes", b"a,b,c,d,label\n1,2,3,4,p\n1,2,3,4,q\n1,2,3,4,r\n1,2,3,4,s\n", "has 4 classes (p, q, r, s)"),
]  # fmt: skip


@pytest.mark.parametrize(("title", "content", "expected"), BAD_TEXT, ids=[b[0] for b in BAD_TEXT])
def test_bad_csv_is_refused_with_its_line(title, content, expected, folder, capsys):
    Path("bad.csv").write_bytes(content)
    more = ["--loss", "cross_entropy"] if title == "half a label" else []
    code, out, err = run(
        capsys, "train", "model.onnx", "--data", "bad.csv", "-o", "t.onnx", "--val", "0", *more
    )
    assert code == 2
    assert expected in err
    assert "epoch" not in out
    assert not Path("t.onnx").exists()


# ---- formats that are read piece by piece


def test_csv_in_chunks_is_as_csv_in_one(folder, monkeypatch):
    """A column that is numbers in one chunk and text in another is text, as it stands in the file."""
    from onnxgrad.data import read as data

    rows = [f"{i},{i / 4},{'07' if i < 8 else 'x'},{i if i != 9 else 9.5}" for i in range(10)]
    Path("d.csv").write_text("\n".join(["whole,part,mixed,late", *rows]))
    one = data.read("d.csv")
    monkeypatch.setattr(data, "CSV_ROWS", 3)
    many = data.read("d.csv")
    for name, kind in {"whole": "i", "part": "f", "mixed": "U", "late": "f"}.items():
        assert many.columns[name].dtype.kind == kind
        np.testing.assert_array_equal(many.arrays[name], one.arrays[name])
    assert many.arrays["mixed"][0] == "07"
    assert many.where(9) == "line 11"


def small_parquet(path: str, rows: int = 120, group: int = 17) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    words = np.array(["ant", "bee", "cat"])[LABEL[:rows]]
    table = pa.table({"x": [list(map(float, x)) for x in X[:rows]], "kind": words})
    parquet.write_table(table, path, row_group_size=group)


def test_parquet_is_streamed_and_every_row_comes_once(folder, monkeypatch):
    small_parquet("d.parquet")
    from onnxgrad.data import parquet
    from onnxgrad.data import read as data

    monkeypatch.setattr(parquet, "MOST_ROWS", 5)
    table = data.read("d.parquet")
    assert (table.rows, table.columns["x"].shape) == (120, (4,))
    for rng in (None, np.random.default_rng(0)):
        parts = list(table.parts(["x", "kind"], 32, rng))
        assert [len(rows) for rows, _ in parts] == [32, 32, 32, 24]
        rows = np.concatenate([rows for rows, _ in parts])
        np.testing.assert_array_equal(np.sort(rows), np.arange(120))
        np.testing.assert_allclose(np.concatenate([a["x"] for _, a in parts]), X[rows], rtol=1e-6)
    assert (rows != np.arange(120)).any()
    some = np.arange(0, 120, 3)
    parts = table.parts(["x"], 7, np.random.default_rng(1), some, start=2)
    assert sum(len(rows) for rows, _ in parts) == len(some) - 14


@pytest.mark.parametrize("kind", ["list", "large list", "fixed list", "nested", "tensor"])
def test_parquet_lists_of_every_kind_are_arrays(kind, folder):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    from onnxgrad.data import read as data

    flat, rows = pa.array(X.ravel()), X.tolist()
    column, shape = {
        "list": lambda: (pa.array(rows, pa.list_(pa.float32())), (4,)),
        "large list": lambda: (pa.array(rows, pa.large_list(pa.float32())), (4,)),
        "fixed list": lambda: (pa.FixedSizeListArray.from_arrays(flat, 4), (4,)),
        "nested": lambda: (pa.array(X.reshape(-1, 2, 2).tolist()), (2, 2)),
        "tensor": lambda: (
            pa.FixedShapeTensorArray.from_numpy_ndarray(X.reshape(-1, 2, 2)),
            (2, 2),
        ),
    }[kind]()
    parquet.write_table(pa.table({"x": column}), "d.parquet", row_group_size=50)
    table = data.read("d.parquet")
    assert table.columns["x"].shape == shape
    parts = np.concatenate([arrays["x"] for _, arrays in table.parts(["x"], 32)])
    np.testing.assert_allclose(parts, X.reshape(-1, *shape), rtol=1e-6)


def test_parquet_trains_and_resumes_to_the_same_bits(folder, capsys):
    small_parquet("d.parquet")
    line = ("train", "model.onnx", "--data", "d.parquet", "--lr", 0.05, "--quiet")
    assert run(capsys, *line, "-o", "whole.onnx", "--run-dir", "a", "--epochs", 6)[0] == 0
    assert run(capsys, *line, "-o", "cut.onnx", "--run-dir", "b", "--epochs", 3)[0] == 0
    assert run(capsys, "train", "--resume", "b", "--epochs", 6, "--quiet")[0] == 0
    assert Path("cut.onnx").read_bytes() == Path("whole.onnx").read_bytes()


def test_an_empty_cell_in_parquet_is_named(folder, capsys):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pa.table({"x": [[1.0, 2, 3, 4]] * 5, "label": pa.array([0, 1, 2, None, 1])})
    parquet.write_table(table, "d.parquet")
    code, _, err = run(capsys, "train", "model.onnx", "--data", "d.parquet", "-o", "t.onnx")
    assert (code, err) == (2, "onnxgrad: d.parquet, row 3: column 'label' is empty\n")


def test_mapped_arrays_are_never_copied_whole(folder):
    from onnxgrad.data import read as data

    Path("arrays").mkdir()
    np.save("arrays/x.npy", X)
    np.save("arrays/label.npy", LABEL)
    table = data.read("arrays")
    assert isinstance(table.arrays["x"], np.memmap)
    rows, part = next(table.parts(["x"], 10, np.random.default_rng(0)))
    np.testing.assert_array_equal(part["x"], X[rows])


def test_images_are_brought_to_the_size_and_channels_of_the_model(folder, capsys):
    image = pytest.importorskip("PIL.Image")
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 1, 4, 4] picture) => (float[N, 2] y) <float[2] b = {0, 0}>
        { flat = Flatten(picture)  p = MatMul(flat, w)  y = Add(p, b) }""")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((16, 2), np.float32), "w"))
    onnx.save(model, "net.onnx")
    for number in range(20):
        kind, shade = ("dark", 20) if number % 2 else ("light", 230)
        Path("photos", kind).mkdir(parents=True, exist_ok=True)
        size, mode = ((4, 4), "L") if number % 3 else ((9, 7), "RGB")
        image.new(mode, size, shade if mode == "L" else (shade,) * 3).save(
            f"photos/{kind}/{number}.png"
        )
    code, out, _ = run(capsys, "train", "net.onnx", "--data", "photos", "-o", "t.onnx", "--lr", 0.1)
    assert code == 0
    assert "images: 4×4 pixels, grey, numbers from 0 to 1" in out
    assert run(capsys, "predict", "t.onnx", "--data", "photos", "-o", "p.csv")[0] == 0
    lines = Path("p.csv").read_text().splitlines()
    assert lines[1].startswith("dark/")  # the file
    assert [line.split(",")[1] for line in lines] == ["class", *["dark"] * 10, *["light"] * 10]
    Path("photos/dark/1.png").write_bytes(b"no picture")
    code, _, err = run(capsys, "eval", "t.onnx", "--data", "photos")
    assert code == 2
    assert "photos/dark/1.png cannot be read as an image" in err


# ---- what is guessed


def regression(shape: str = "N, 1") -> None:
    onnx.save(
        onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[{shape.replace("1", "4")}] x) => (float[{shape}] y) <float[4, 1] w = {{1, 1, 1, 1}}>
        {{ y = MatMul(x, w) }}"""),
        "net.onnx",
    )


@pytest.mark.parametrize(
    ("target", "loss"), [(100 * X[:, 0], "mse"), (X[:, 0] > 0, "bce")], ids=["whole numbers", "0 and 1"]
)  # fmt: skip
def test_one_column_of_output_takes_a_plain_column_of_targets(target, loss, folder, capsys):
    regression()
    rows = [",".join(map(str, [*x, int(y)])) for x, y in zip(X, target, strict=True)]
    Path("d.csv").write_text("\n".join(["a;b;c;d;y", *rows]).replace(",", ";"))
    code, out, _ = run(
        capsys, "train", "net.onnx", "--data", "d.csv", "-o", "t.onnx", "--epochs", 1
    )
    assert code == 0
    assert f"loss: {loss}, because" in out


@pytest.mark.parametrize("command", ["train", "eval"])
def test_an_array_of_targets_in_another_form_is_taken_with_a_note(command, folder, capsys):
    """The command line took both without a word, and one-hot labels for several answers at once."""
    regression()
    more = ("-o", "t.onnx", "--epochs", 1) if command == "train" else ()
    np.savez("flat.npz", x=X, y=X[:, 0])
    code, out, _ = run(capsys, command, "net.onnx", "--data", "flat.npz", *more)
    assert code == 0
    assert "target 'y' has shape [120]: taken as a column [N, 1]" in out
    np.savez("hot.npz", x=X, label=np.eye(3, dtype=np.float32)[LABEL])
    code, out, _ = run(capsys, command, "model.onnx", "--data", "hot.npz", *more)
    assert code == 0
    assert "loss: cross_entropy, because the targets are one-hot" in " ".join(out.split())
    assert "target 'label' is one-hot: the place of the 1 is taken as the label" in out
    scores = [
        json.loads(run(capsys, "eval", "model.onnx", "--data", d, "--json")[1])
        for d in ("hot.npz", "d.npz")
    ]
    assert scores[0] == scores[1]


def test_flat_rows_take_the_shape_of_the_model(folder, capsys):
    onnx.save(
        onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 2, 2] x) => (float[N, 2] y) <float[2, 2] w = {1, 0, 0, 1}>
        { s = ReduceSum <keepdims = 0> (x, axis)  y = MatMul(s, w) }"""),
        "net.onnx",
    )
    model = onnx.load("net.onnx")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "axis"))
    onnx.save(model, "net.onnx")
    np.savez("flat.npz", x=X, label=LABEL % 2)
    code, out, _ = run(capsys, "train", "net.onnx", "--data", "flat.npz", "-o", "t.onnx")
    assert code == 0
    assert "input 'x': rows of 4 numbers taken as 2 × 2" in out


def test_a_fixed_batch_is_obeyed_and_predictions_have_every_row(folder, capsys):
    regression("7, 1")
    np.savez("d.npz", x=X, y=X[:, :1])
    code, out, _ = run(
        capsys, "train", "net.onnx", "--data", "d.npz", "-o", "t.onnx", "--epochs", 1
    )
    assert code == 0
    assert "the model fixes its batch at 7: made free for training" in " ".join(out.split())
    assert run(capsys, "predict", "t.onnx", "--data", "d.npz", "-o", "p.npz")[0] == 0
    assert np.load("p.npz")["y"].shape == (120, 1)


def test_the_names_of_classes_travel_with_the_model(folder, capsys):
    words = np.array(["ant", "bee", "cat"])
    np.savez("d.npz", x=X, kind=words[LABEL])
    line = ("train", "model.onnx", "--data", "d.npz", "-o", "t.onnx", "--lr", 0.05, "--epochs", 20)
    assert run(capsys, *line)[0] == 0
    bees = LABEL == 1
    np.savez("bees.npz", x=X[bees], kind=words[LABEL[bees]])
    code, out, _ = run(capsys, "eval", "t.onnx", "--data", "bees.npz", "--json")
    assert code == 0
    assert json.loads(out)["accuracy"] > 0.8  # one class alone would have been numbered 0
    np.savez("other.npz", x=X, kind=np.array(["ant", "dog"])[LABEL % 2])
    code, _, err = run(capsys, "eval", "t.onnx", "--data", "other.npz")
    assert code == 2
    assert "the label is 'dog', expected one of ant, bee, cat" in err


def test_a_model_with_its_own_loss_needs_no_target(folder, capsys):
    onnx.save(
        onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 4] x, float[N, 1] wish) => (float loss) <float[4, 1] w = {1, 1, 1, 1}>
        { y = MatMul(x, w)  d = Sub(y, wish)  s = Mul(d, d)  loss = ReduceMean <keepdims = 0> (s) }"""),
        "net.onnx",
    )
    np.savez("d.npz", x=X, wish=X[:, :1])
    code, out, _ = run(capsys, "train", "net.onnx", "--data", "d.npz", "-o", "t.onnx", "--lr", 0.05)
    assert code == 0
    assert "loss: the model's own, output 'loss'" in out


def test_inputs_that_are_no_rows_are_refused_in_one_sentence(folder, capsys):
    onnx.save(
        onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 4] x, float rate) => (float[N, 4] y) <float[4] w = {1, 1, 1, 1}>
        { a = Mul(x, w)  y = Mul(a, rate) }"""),
        "net.onnx",
    )
    code, _, err = run(capsys, "train", "net.onnx", "--data", "d.npz", "-o", "t.onnx")
    assert code == 2
    assert "input 'rate' of the model is a single number" in err
