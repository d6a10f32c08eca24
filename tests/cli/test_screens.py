"""What commands print of models that are not simple: obstacles, several outputs, many gradients, notes."""

from __future__ import annotations

import json
import re

import numpy as np
import onnx
import pytest
from job.problem import run

from onnxgrad.cli import demo
from onnxgrad.cli.texts import Console

HEAD = '<ir_version: 8, opset_import: ["": 17, "mine": 1]> net '


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    return tmp_path


def written(text: str, name: str = "m.onnx", **weights) -> str:
    model = onnx.parser.parse_model(HEAD + text)
    for key, array in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), key))
    onnx.save(model, name)
    return name


def lines(text: str) -> list[str]:
    return [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if line.strip()]


# ---- inspect


def test_an_obstacle_is_shown_with_its_reason_the_way_out_and_the_path(capsys):
    body = "{ a = Mul(x, w) [odd] b = mine.Odd(a) c = Exp(b) y = Neg(c) }"
    model = written(f"(float[N, 3] x) => (float[N, 3] y) {body}", w=np.ones(3))
    code, out, _ = run(capsys, "inspect", model, "--no-runtime")
    shown = lines(out)
    assert code == 3
    at = next(i for i, line in enumerate(shown) if line.startswith("in the way"))
    assert shown[at] == "in the way mine.Odd: odd"
    assert shown[at + 1].startswith("why has no gradient rule yet")
    assert shown[at + 2].startswith("do add one with onnxgrad.rule('Odd'")
    assert "path Exp → Neg → output 'y'" in shown
    assert "note" not in " ".join(shown[at:])


def test_the_same_obstacle_at_many_nodes_is_counted(capsys):
    chain = " ".join(f"[odd{n}] a{n + 1} = mine.Odd(a{n})" for n in range(9))
    model = written(
        f"(float[N, 3] x) => (float[N, 3] y) {{ a0 = Mul(x, w) {chain} y = Neg(a9) }}", w=np.ones(3)
    )
    _, out, _ = run(capsys, "inspect", model, "--no-runtime")
    shown = " ".join(lines(out))
    named = re.search(r"in the way mine\.Odd: (.*?) and (\d+) more", shown)
    assert named
    assert len(named[1].split(", ")) + int(named[2]) == 9
    assert "→ … →" in shown


def test_inputs_of_every_rank_are_shown(capsys):
    text = "(float[N, 3] x, float[] s, float u) => (float[N, 3] y) { a = Mul(x, w) b = Add(a, s) y = Add(b, u) }"
    model = onnx.load(written(text, w=np.ones(3)))
    model.graph.input[1].type.tensor_type.shape.SetInParent()
    model.graph.input[2].type.tensor_type.ClearField("shape")
    onnx.save(model, "m.onnx")
    code, out, _ = run(capsys, "inspect", "m.onnx", "--no-runtime")
    shown = lines(out)
    assert code == 0
    assert "input x float N × 3" in shown
    assert "input s float scalar" in shown
    assert "input u float rank unknown" in shown


def test_json_says_whether_the_runtime_loads_it(capsys):
    model = written("(float[N, 3] x) => (float[N, 3] y) { y = Mul(x, w) }", w=np.ones(3))
    for flags, loads in ((["--no-runtime"], None), ([], True)):
        code, out, _ = run(capsys, "inspect", model, "--json", *flags)
        assert code == 0
        assert json.loads(out)["onnxruntime"]["loads"] is loads
    odd = written(
        "(float[N, 3] x) => (float[N, 3] y) { a = mine.Odd(x) y = Mul(a, w) }", w=np.ones(3)
    )
    _, out, _ = run(capsys, "inspect", odd, "--json")
    answer = json.loads(out)["onnxruntime"]
    assert answer["loads"] is False
    assert "Odd" in answer["text"]


# ---- grad


def test_grad_of_several_outputs_wants_a_name(capsys):
    model = written(
        "(float[N, 3] x) => (float[N, 3] y, float[N, 3] z) { y = Mul(x, w) z = Neg(y) }",
        w=np.ones(3),
    )
    code, _, err = run(capsys, "grad", model, "-o", "g.onnx")
    assert code == 2
    assert "the model has 2 float outputs ('y', 'z'): name one with --of" in err
    code, out, _ = run(capsys, "grad", model, "-o", "g.onnx", "--of", "z")
    assert code == 0
    assert "feed the cotangent of 'z' as input z_grad" in out
    whole = written("(int64[N] x) => (int64[N] y) { y = Neg(x) }")
    code, _, err = run(capsys, "grad", whole, "-o", "g.onnx")
    assert code == 2
    assert "the model has 0 float outputs (none)" in err


@pytest.mark.parametrize(("count", "dots"), [(12, False), (13, True)])
def test_grad_names_a_dozen_gradients(count, dots, capsys):
    adds = " ".join(f"a{n + 1} = Add(a{n}, w{n})" for n in range(count))
    weights = {f"w{n}": np.ones(3) for n in range(count)}
    model = written(f"(float[N, 3] a0) => (float[N, 3] a{count}) {{ {adds} }}", **weights)
    code, out, _ = run(capsys, "grad", model, "-o", "g.onnx")
    shown = " ".join(lines(out))
    assert code == 0
    assert shown.count("_grad,") + shown.count("_grad feed") >= 11
    assert ("…" in shown) == dots


def test_grad_says_how_a_graph_of_ours_is_run(capsys):
    gelu = written(
        "(float[N, 3] x) => (float[N, 3] y) { a = Mul(x, w) y = Softmax(a) }", w=np.ones(3)
    )
    _, out, _ = run(capsys, "grad", gelu, "-o", "g.onnx")
    assert "run it with onnxgrad.session(...)" in " ".join(lines(out))
    _, out, _ = run(capsys, "grad", gelu, "-o", "g.onnx", "--standard-ops")
    assert "onnxgrad.session" not in out


def test_the_demo_says_how_good_both_files_are(tmp_path, capsys):
    """Four digits: the first model knows one of them, the second three."""
    for name, shift in (("before", "{0, 0, 5}"), ("after", "{0, 0, 0}")):
        text = f"""<ir_version: 8, opset_import: ["" : 17]>
            net (float[N, 3] x) => (float[N, 3] y) <float[3] b = {shift}> {{ y = Add(x, b) }}"""
        onnx.save(onnx.parser.parse_model(text), tmp_path / f"{name}.onnx")
    x = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]], np.float32)
    np.savez(tmp_path / "test.npz", x=x, label=np.array([0, 1, 2, 1]))
    files = [tmp_path / f for f in ("before.onnx", "after.onnx", "test.npz")]
    demo.show_test(Console(width=200), *files)
    first, last = capsys.readouterr().out.strip().splitlines()
    assert first.startswith("4 test digits in a plain onnxruntime ")
    assert last == "accuracy 25.0% before, 75.0% after"
