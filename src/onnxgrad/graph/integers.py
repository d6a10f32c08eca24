"""The integers that quantised tensors are made of."""

from __future__ import annotations

from onnx_ir import DataType

# The smallest and the largest of each type.
RANGES = {
    DataType.INT8: (-128, 127), DataType.UINT8: (0, 255),
    DataType.INT16: (-32768, 32767), DataType.UINT16: (0, 65535),
    DataType.INT4: (-8, 7), DataType.UINT4: (0, 15),
}  # fmt: skip
