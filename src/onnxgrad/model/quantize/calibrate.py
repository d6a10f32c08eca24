"""From a float model and data to an integer model, with onnxruntime's own writer of QDQ files.

Its layout is what runtimes fuse into integer kernels, so it is not written here again.
"""

from __future__ import annotations

import contextlib
import fnmatch
import logging
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxgrad.errors import ModelError
from onnxgrad.files.models import read_proto
from onnxgrad.files.write import save
from onnxgrad.model.quantize.settings import Quantize

OPSET_OF_SMALL_TYPES = 21  # 4 and 16 bits


@dataclass(frozen=True)
class Calibrated:
    """An integer model, and the float tensors that its integers were made from, by their names."""

    model: onnx.ModelProto
    floats: dict[str, np.ndarray]


def calibrate(
    model: onnx.ModelProto, settings: Quantize, feeds: Iterable[Mapping[str, np.ndarray]]
) -> Calibrated:
    """Quantise `model`; ranges of activations are those of `feeds`, inputs by name.

    Batch normalisations are folded into convolutions first, as a deployed file has them. Raises
    ModelError, with onnxruntime's reason, for a model that it cannot quantise.
    """
    with tempfile.TemporaryDirectory() as folder, _quiet():
        plain, prepared, result = (Path(folder) / f"{n}.onnx" for n in ("plain", "ready", "result"))
        save(model, plain)
        try:
            _prepare(plain, prepared)
            _quantise(prepared, result, settings, feeds)
        except Exception as error:
            raise ModelError(f"onnxruntime could not quantise the model: {error}") from error
        floats = {
            t.name: onnx.numpy_helper.to_array(t)
            for t in read_proto(prepared).graph.initializer
            if t.data_type == onnx.TensorProto.FLOAT
        }
        return Calibrated(read_proto(result), floats)


def _prepare(plain: Path, prepared: Path) -> None:
    from onnxruntime.quantization.shape_inference import quant_pre_process

    quant_pre_process(str(plain), str(prepared), skip_symbolic_shape=True)


def _quantise(prepared: Path, result: Path, settings: Quantize, feeds) -> None:
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    methods = {
        "minmax": CalibrationMethod.MinMax,
        "percentile": CalibrationMethod.Percentile,
        "entropy": CalibrationMethod.Entropy,
    }
    types = {t.lower(): getattr(QuantType, f"Q{t}") for t in _TYPES if hasattr(QuantType, f"Q{t}")}
    small = {"int4", "uint4", "int16", "uint16"} & {settings.weights, settings.activations}
    names = [n.name for n in read_proto(prepared).graph.node]
    quantize_static(
        _newer(prepared) if small else str(prepared),
        str(result),
        _reader(feeds),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=list(settings.op_types) or None,
        per_channel=settings.per_channel,
        weight_type=types[settings.weights],
        activation_type=types[settings.activations],
        nodes_to_exclude=_excluded(settings.exclude, names),
        calibrate_method=methods[settings.method],
    )


_TYPES = ("Int8", "UInt8", "Int4", "UInt4", "Int16", "UInt16")


def _newer(path: Path) -> str:
    """Small integers came with opset 21: convert the file to it."""
    model = read_proto(path)
    version = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    if version < OPSET_OF_SMALL_TYPES:
        save(onnx.version_converter.convert_version(model, OPSET_OF_SMALL_TYPES), path)
    return str(path)


def _excluded(patterns: Iterable[str], names: list[str]) -> list[str]:
    found: list[str] = []
    for pattern in patterns:
        matched = fnmatch.filter(names, pattern)
        if not matched:
            listed = ", ".join(map(repr, names[:4]))
            raise ValueError(f"exclude names {pattern!r}, which is no node; nodes are {listed} …")
        found += matched
    return found


def _reader(feeds: Iterable[Mapping[str, np.ndarray]]) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):
        """onnxruntime asks for one batch after the other, until None."""

        def __init__(self) -> None:
            self.feeds = iter([dict(f) for f in feeds])

        def get_next(self):
            return next(self.feeds, None)

    return Reader()


def feeds_of(data: Any, names: list[str], rows: int, size: int = 32) -> Iterator[dict]:
    """Yield batches of `data`, an array or arrays by input name, of at most `rows` rows in all."""
    arrays = data if isinstance(data, Mapping) else {names[0]: np.asarray(data)}
    missing = [n for n in names if n not in arrays]
    if missing:
        raise ValueError(
            f"quantize: the data lack the input {missing[0]!r}; expected arrays by name: {names}"
        )
    count = min(rows, min(len(arrays[n]) for n in names))
    for start in range(0, count, size):
        yield {n: np.asarray(arrays[n][start : min(start + size, count)]) for n in names}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """onnxruntime's writer gives advice to the root logger that does not apply here."""
    logger = logging.getLogger()
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
