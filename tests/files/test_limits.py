"""Limits: stated, reached with a sentence, raised by a flag."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

from onnxgrad.cli import main
from onnxgrad.data.read import read
from onnxgrad.errors import LimitError, ModelError
from onnxgrad.files import arrays, limits
from onnxgrad.files.models import read_proto
from onnxgrad.files.text import parse_json
from onnxgrad.graph import load


def model(count: int) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N] x) => (float[N] y) {{
            shape = Constant<value = int64[1] {{{count}}}>()  big = ConstantOfShape(shape)
            s = ReduceSum(big)  y = Add(x, s)
        }}""")


def test_a_limit_is_reached_with_the_flag_that_raises_it():
    load(model(1 << 27))
    with pytest.raises(LimitError, match="134,217,729 elements, and the limit is 134,217,728") as e:
        load(model((1 << 27) + 1))
    assert str(e.value).endswith("raise it: --limit constant=134217729")
    with limits.override(constant=1 << 28):
        load(model((1 << 27) + 1))
    with pytest.raises(LimitError):
        load(model((1 << 27) + 1))


def test_the_flag_and_the_variable(tmp_path, monkeypatch, capsys):
    (tmp_path / "m.onnx").write_bytes(model((1 << 27) + 1).SerializeToString())
    command = ["grad", str(tmp_path / "m.onnx"), "--wrt", "x", "-o", str(tmp_path / "g.onnx")]
    assert main(command) == 2
    assert "--limit constant=134217729" in capsys.readouterr().err
    assert main([*command, "--limit", "constant=134217729"]) == 0
    monkeypatch.setenv("ONNXGRAD_LIMITS", "nodes=5000,constant=134217729")
    assert main(command) == 0


@pytest.mark.parametrize("text", ["nodes", "nodes=", "nodes=-1", "nodes=0", "knots=5", "nodes=1e9"])
def test_what_is_no_limit(text, capsys):
    assert main(["ops", "--limit", text]) == 2
    assert f"{text!r} is not a limit, expected NAME=NUMBER" in capsys.readouterr().err


def test_columns(tmp_path):
    np.savez(tmp_path / "d.npz", **{f"a{i}": np.zeros(2) for i in range(12)})
    (tmp_path / "d.csv").write_text(
        ",".join(f"a{i}" for i in range(12)) + "\n" + ",".join("1" * 12)
    )
    for name in ("d.npz", "d.csv"):
        read(tmp_path / name)
        with limits.override(columns=11), pytest.raises(LimitError, match="--limit columns=12"):
            read(tmp_path / name)


def test_well_packed_arrays_below_the_limit_load(tmp_path):
    zeros = np.zeros((1 << 22,), np.float32)  # 16 MiB of nothing in 16 KiB
    np.savez_compressed(tmp_path / "d.npz", x=zeros)
    assert read(tmp_path / "d.npz").rows == 1 << 22


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_one_long_text_among_many_rows(tmp_path, monkeypatch, ending):
    """Every cell of a column of text takes as much as the longest."""
    monkeypatch.setattr(arrays, "UNPACKED_FREELY", 1 << 20)
    words = ["b"] * 3000 + ["a" * 3000]
    path = tmp_path / f"d.{ending}"
    if ending == "csv":
        path.write_text("x,y\n" + "".join(f"1,{word}\n" for word in words))
    elif ending == "jsonl":
        path.write_text("".join(json.dumps({"x": 1, "y": word}) + "\n" for word in words))
    else:
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.table({"x": [1] * 3001, "y": words}), path)
    with pytest.raises(LimitError, match=r"'y' would unpack to 36,012,000 bytes, from a file of"):
        read(path).column("y")
    with limits.override(unpacked=10**6):
        assert read(path).column("y")[-1] == "a" * 3000


def test_equal_rows_of_a_parquet_file(tmp_path, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(arrays, "UNPACKED_FREELY", 1 << 20)
    table = pyarrow.table({"x": np.zeros(10**6), "y": np.zeros(10**6, np.float32)})
    parquet.write_table(table, tmp_path / "d.parquet")
    with pytest.raises(LimitError, match="would unpack to 12,000,000 bytes"):
        read(tmp_path / "d.parquet")
    with limits.override(unpacked=10**6):
        assert read(tmp_path / "d.parquet").rows == 10**6


def test_outputs_count_as_nodes():
    made = model(1)
    made.graph.node[-1].output.extend(f"o{i}" for i in range(300))
    with limits.override(nodes=303), pytest.raises(LimitError, match="it has 304 nodes"):
        load(made)
    with limits.override(nodes=304):
        load(made)


@pytest.mark.parametrize("place", ["op_type", "domain", "name", "attribute", "input", "axis"])
def test_names_anywhere_in_a_model(place):
    made = model(1)
    node, long = made.graph.node[0], "n" * 70_000
    if place == "attribute":
        node.attribute[0].name = long
    elif place == "input":
        made.graph.node[1].input[0] = long
    elif place == "axis":
        made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = long
    else:
        setattr(node, place, long)
    with pytest.raises(
        LimitError, match="a name in it has 70,000 characters, and the limit is 65,536"
    ):
        load(made)


def test_a_line_of_many_keys(tmp_path):
    (tmp_path / "d.jsonl").write_text('{"a": 1, "b": 2}\n')
    with limits.override(columns=1), pytest.raises(LimitError, match="it has 2 keys"):
        read(tmp_path / "d.jsonl")


def test_every_limit_is_in_the_docs():
    from pathlib import Path

    page = (Path(__file__).resolve().parents[2] / "SECURITY.md").read_text()
    for name, (number, what) in limits.LIMITS.items():
        assert f"| `{name}` | {number:,} | {what} |" in page


def functions(count: int) -> onnx.ModelProto:
    """Functions that call the next one; the last has a node of ONNX."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
        net (float[2] x) => (float[2] y) { y = f.f0(x) }""")
    imports = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("f", 1)]
    for i in range(count):
        last = i == count - 1
        node = onnx.helper.make_node(
            "Relu" if last else f"f{i + 1}", ["a"], ["b"], domain="" if last else "f"
        )
        model.functions.append(
            onnx.helper.make_function("f", f"f{i}", ["a"], ["b"], [node], imports)
        )
    return model


def test_functions_as_deep_as_the_limit():
    with limits.override(depth=3):
        read_proto(functions(3))
        with pytest.raises(LimitError, match="its functions call each other 4 deep"):
            read_proto(functions(4))


def test_nodes_of_functions_count_at_every_call():
    model = functions(2)
    model.functions[1].node.append(onnx.helper.make_node("Relu", ["b"], ["c"]))
    model.graph.node.append(onnx.helper.make_node("f0", ["y"], ["z"], domain="f"))
    with limits.override(nodes=4):
        read_proto(model)
    with limits.override(nodes=3), pytest.raises(LimitError, match="4 nodes"):
        read_proto(model)


@pytest.mark.parametrize(("domain", "version", "good"), [
    ("", 1, True), ("", 0, False), ("my", 0, True), ("my", -1, False), ("", 1 << 31, False), ("", (1 << 31) - 1, True),
])  # fmt: skip
def test_opsets_that_do_not_exist(domain, version, good):
    """In the model as in its functions."""
    for place in ("model", "function"):
        model = functions(1)
        entry = (model if place == "model" else model.functions[0]).opset_import.add()
        entry.domain, entry.version = domain, version
        if good:
            read_proto(model)
        else:
            with pytest.raises(
                ModelError, match=f"it imports opset {version} of {domain or 'ai.onnx'}, which"
            ):
                read_proto(model)


@pytest.mark.parametrize(("inner", "outer"), [("[", "]"), ('{"a": ', "}")])
def test_json_as_deep_as_it_may_be(inner, outer):
    good = inner * 100 + "1" + outer * 100
    assert parse_json(good)
    with pytest.raises(ValueError, match="it is nested deeper than 100 levels"):
        parse_json(inner + good + outer)
    with pytest.raises(ValueError, match="it is nested deeper than 100 levels"):
        parse_json(f'[1, {{"b": {good}}}, 2]')


@pytest.mark.parametrize(("ends", "loads"), [("Less(total, most)", True), ("Identity(c)", False)])
def test_a_loop_of_endless_trips_with_a_condition_is_a_while(ends, loads):
    """tf2onnx writes every while loop so: the largest number of trips, and a condition that ends it."""
    made = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N] x) => (float[N] y)
        <int64 trips = {{9223372036854775807}}, bool yes = {{1}}, float most = {{8}}> {{
            y = Loop(trips, yes, x) <body = b (int64 i, bool c, float[N] a) => (bool c2, float[N] a2)
                {{ a2 = Add(a, a)  total = ReduceSum<keepdims = 0>(a2)  c2 = {ends} }}>
        }}""")
    if loads:
        load(made)
        return
    with pytest.raises(LimitError, match="makes 9,223,372,036,854,775,807 trips"):
        load(made)
