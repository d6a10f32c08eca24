"""Limits: stated, reached with a sentence, raised by a flag."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxgrad.cli import main
from onnxgrad.data.read import read
from onnxgrad.errors import LimitError
from onnxgrad.files import limits
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


def test_every_limit_is_in_the_docs():
    from pathlib import Path

    page = (Path(__file__).resolve().parents[2] / "SECURITY.md").read_text()
    for name, (number, what) in limits.LIMITS.items():
        assert f"| `{name}` | {number:,} | {what} |" in page
