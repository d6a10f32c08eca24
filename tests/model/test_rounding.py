"""Where a model rounds to 8 bits while it runs: by its own nodes, or because onnxruntime does so."""

from __future__ import annotations

import onnx
import pytest

from onnxgrad.model.rounding import rounds_by_itself, rounds_in_sessions, without_rounding

ROWS = [
    ("floats", "y = MatMul(x, w)", False, False),
    ("a dynamic product", "y = com.microsoft.DynamicQuantizeMatMul(x, q, s)", True, False),
    ("its parts", "a, b, c = DynamicQuantizeLinear(x) y = MatMulInteger(a, q, c)", True, False),
    ("a stored matrix", "m = DequantizeLinear(q, s) y = MatMul(x, m)", False, True),
    ("a stored matrix on the left", "m = DequantizeLinear(q, s) y = MatMul(m, x)", False, False),
    ("stored for another operator", "m = DequantizeLinear(q, s) y = Gemm(x, m)", False, False),
    ("4 bits", "y = com.microsoft.MatMulNBits<accuracy_level = 4>(x, q, s)", False, True),
    ("4 bits, exactly", "y = com.microsoft.MatMulNBits<accuracy_level = 1>(x, q, s)", False, False),
    ("4 bits, nothing said", "y = com.microsoft.MatMulNBits<bits = 4>(x, q, s)", False, False),
]


@pytest.mark.parametrize(("title", "body", "itself", "session"), ROWS, ids=[r[0] for r in ROWS])
def test_where_it_rounds(title, body, itself, session):
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        net (float[N, 4] x, float[4, 3] w, int8[4, 3] q, float s) => (float[N, 3] y) {{ {body} }}""")
    assert (rounds_by_itself(model), rounds_in_sessions(model)) == (itself, session)
    exact = without_rounding(model)
    assert rounds_in_sessions(exact) == (session and "4 bits" not in title)
