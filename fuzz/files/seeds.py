"""What the mutations begin with: small models of every kind, datasets in every format, checkpoints."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import onnx

HEAD = '<ir_version: 8, opset_import: ["" : 17, "mine" : 1, "com.microsoft" : 1]>'

MODELS = {
    "mlp": """net (float[N, 3] x) => (float[N, 2] y) <float[3, 4] w = {1,2,3,4,5,6,7,8,9,1,2,3},
        float[4] b = {0,0,0,0}, float[4, 2] v = {1,0,1,0,1,0,1,0}>
        { h = MatMul(x, w)  i = Add(h, b)  r = Relu(i)  y = MatMul(r, v) }""",
    "conv": """net (float[N, 1, 4, 4] x) => (float[N, 2] y) <float[2, 1, 3, 3] w =
        {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9}, float[2] s = {1,1}, float[2] b = {0,0},
        float[2] m = {0,0}, float[2] v = {1,1}>
        { c = Conv<pads = [1,1,1,1]>(x, w)  n = BatchNormalization(c, s, b, m, v)  r = Relu(n)
          p = MaxPool<kernel_shape = [2,2], strides = [2,2]>(r)  g = GlobalAveragePool(p)  y = Flatten(g) }""",
    "lstm": """net (float[S, N, 2] x) => (float[S, 1, N, 1] y) <float[1, 4, 2] w = {1,2,3,4,5,6,7,8},
        float[1, 4, 1] r = {1,2,3,4}> { y, h, c = LSTM<hidden_size = 1>(x, w, r) }""",
    "norm": """net (float[N, 4] x) => (float[N, 4] y) <float[4] s = {1,1,1,1}, float[4] b = {0,0,0,0},
        float[4, 4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}>
        { n = LayerNormalization(x, s, b)  q = MatMul(n, w)  a = Softmax(q)  y = Mul(a, x) }""",
    "gather": """net (int64[N, 2] x) => (float[N, 3] y) <float[5, 3] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6},
        int64[1] axes = {1}> { g = Gather(w, x)  y = ReduceSum<keepdims = 0>(g, axes) }""",
    "shapes": """net (float[N, 4] x) => (float[N, 4] y) <float[4] w = {1,2,3,4}, int64[2] to = {-1, 2}>
        { m = Mul(x, w)  s = Shape(m)  r = Reshape(m, to)  t = Transpose<perm = [1, 0]>(r)
          u = Transpose<perm = [1, 0]>(t)  y = Reshape(u, s) }""",
    "branch": """net (float[N, 2] x) => (float[N, 2] y) <float[2] w = {1,2}, bool c = {1}>
        { m = Mul(x, w)  y = If(c) <then_branch = a () => (float[N, 2] p) { p = Relu(m) },
          else_branch = b () => (float[N, 2] q) { q = Neg(m) }> }""",
    "loop": """net (float[N, 2] x) => (float[N, 2] y) <float[2] w = {1,2}, int64 trips = {3}, bool c = {1}>
        { y = Loop(trips, c, x) <body = b (int64 i, bool k, float[N, 2] a) => (bool l, float[N, 2] o)
          { l = Identity(k)  o = Mul(a, w) }> }""",
    "function": """net (float[N, 2] x) => (float[N, 2] y) <float[2] w = {1,2}> { y = mine.f(x, w) }
        <domain: "mine", opset_import: ["" : 17]> f (a, b) => (c) { d = Mul(a, b)  c = Tanh(d) }""",
    "resize": """net (float[1, 1, 2, 2] x) => (float[1, 1, 4, 4] y) <float[1, 1, 1, 1] w = {2},
        float[4] scales = {1,1,2,2}> { m = Conv(x, w)  y = Resize<mode = "linear">(m, , scales) }""",
}


def models() -> list[onnx.ModelProto]:
    return [onnx.parser.parse_model(f"{HEAD} {text}") for text in MODELS.values()]


def datasets(folder: Path) -> dict[str, bytes]:
    """Files by their ending."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((6, 3)).astype(np.float32), np.arange(6)
    found: dict[str, bytes] = {}
    for ending, save in (("npz", np.savez), ("packed.npz", np.savez_compressed)):
        file = io.BytesIO()
        save(file, x=x, y=y)
        found[ending] = file.getvalue()
    file = io.BytesIO()
    np.save(file, x)
    found["npy"] = file.getvalue()
    found["csv"] = "\n".join(["a,b,c", *("1,2.5,word" for _ in range(5))]).encode()
    rows = [{"x": [1, 2, 3], "y": i, "z": "word"} for i in range(5)]
    found["jsonl"] = "\n".join(map(json.dumps, rows)).encode()
    try:
        import pyarrow
        from pyarrow import parquet

        file = io.BytesIO()
        parquet.write_table(pyarrow.table({"x": x.tolist(), "y": y, "z": ["w"] * 6}), file)
        found["parquet"] = file.getvalue()
    except ImportError:
        pass
    return found


def picture() -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(file, "png")
    return file.getvalue()
