"""From a float model and data to an integer model, with onnxruntime's own writer of QDQ files.

Its layout is what runtimes fuse into integer kernels, so it is not written here again.
"""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxgrad.errors import DataError, ModelError, OnnxGradError
from onnxgrad.files.models import read_proto
from onnxgrad.files.write import save
from onnxgrad.model.quantize.plan import Names, Plan
from onnxgrad.model.quantize.settings import FLOAT, Quantize
from onnxgrad.model.quantize.weights import quantise_weights

OPSET_OF_CHANNELS = 13
OPSET_OF_SMALL_TYPES = 21  # 4 and 16 bits, and blocks
SMALL_TYPES = {"int4", "uint4", "int16", "uint16"}
Feed = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Calibrated:
    """An integer model, and the float tensors that its integers were made from, by their names."""

    model: onnx.ModelProto
    floats: dict[str, np.ndarray]


def calibrate(
    model: onnx.ModelProto, settings: Quantize, feeds: Callable[[], Iterable[Feed]]
) -> Calibrated:
    """Quantise `model`; ranges of activations are those of `feeds()`, inputs by name.

    Batch normalisations are folded into convolutions first, as a deployed file has them. Raises
    ModelError, with onnxruntime's reason, for a model that it cannot quantise.
    """
    with tempfile.TemporaryDirectory() as folder, _quiet():
        plain, ready, written = (Path(folder) / f"{n}.onnx" for n in ("plain", "ready", "written"))
        model = _named(_newer(model, settings))
        save(model, plain)
        with _as_model_error():
            _prepare(plain, ready, settings)
        prepared = read_proto(ready)
        plan = Plan.of(prepared, settings, Names(model, prepared))
        result = prepared
        if plan.calibrated:
            with _as_model_error():
                _quantise(ready, written, settings, plan, _checked(feeds()))
            result = read_proto(written)
        floats = {
            t.name: onnx.numpy_helper.to_array(t)
            for t in prepared.graph.initializer
            if t.data_type == onnx.TensorProto.FLOAT
        }
        result = _copy(result)
        quantise_weights(result, floats, plan.own)
        _check_result(result)
        return Calibrated(result, floats)


@contextlib.contextmanager
def _as_model_error() -> Iterator[None]:
    try:
        yield
    except OnnxGradError:
        raise
    except Exception as error:
        raise ModelError(f"onnxruntime could not quantise the model: {error}") from error


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def _named(model: onnx.ModelProto) -> onnx.ModelProto:
    """Nodes without a name get that of their first output, by which they can then be chosen."""
    taken = {n.name for n in model.graph.node}
    if "" not in taken:
        return model
    model = _copy(model)
    for node in model.graph.node:
        if not node.name:
            node.name = next(o for o in node.output if o)
    return model


def _newer(model: onnx.ModelProto, settings: Quantize) -> onnx.ModelProto:
    """Raise the opset where the integers need it: 13 for scales by channel, 21 for small types and blocks."""
    used = [settings.precision, *(p for _, p in settings.nodes)]
    small = any(p.block or {p.weights, p.activations} & SMALL_TYPES for p in used)
    needed = OPSET_OF_SMALL_TYPES if small else OPSET_OF_CHANNELS
    version = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    if version >= needed:
        return model
    with _as_model_error():
        return onnx.version_converter.convert_version(model, needed)


def _check_result(model: onnx.ModelProto) -> None:
    """Refuse a model in which nothing is quantised, and scales that are not numbers."""
    nodes = [n for n in model.graph.node if n.op_type == "DequantizeLinear"]
    if not nodes:
        kinds = ", ".join(sorted({n.op_type for n in model.graph.node}))
        raise ModelError(
            f"quantize finds nothing to quantise: of the model's operators ({kinds}) onnxruntime quantises none "
            "that the settings leave in"
        )
    known = {t.name: t for t in model.graph.initializer}
    for node in nodes:
        scale = onnx.numpy_helper.to_array(known[node.input[1]])
        if not (np.isfinite(scale).all() and (scale > 0).all()):
            raise ModelError(
                f"quantize found no range for {node.output[0]!r}: its scale is {scale.reshape(-1)[0]:g}; look for "
                "numbers that are not finite in what the model makes of the rows to calibrate on"
            )


def _checked(feeds: Iterable[Feed]) -> Iterator[Feed]:
    row = 0
    for feed in feeds:
        for name, array in feed.items():
            if np.asarray(array).dtype.kind == "f" and not np.isfinite(array).all():
                bad = int(np.argwhere(~np.isfinite(array))[0][0]) if np.ndim(array) else 0
                raise DataError(
                    f"quantize: input {name!r} is not finite in row {row + bad} of the rows to calibrate on"
                )
        yield feed
        row += max((len(a) for a in feed.values() if np.ndim(a)), default=1)


def _prepare(plain: Path, prepared: Path, settings: Quantize) -> None:
    """Fold batch normalisations and constants, and infer shapes, as onnxruntime's own preparation does.

    A product and the addition of its bias become one Gemm, whose bias then has 32 bits; not so where weights
    alone or blocks are quantised, for which there is a kernel of MatMul.
    """
    import onnxruntime
    from onnxruntime.quantization.shape_inference import quant_pre_process

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    folded = prepared.with_name("folded.onnx")
    options.optimized_model_filepath = str(folded)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    apart = ["MatMulAddFusion"] if settings.block or settings.activations == FLOAT else []
    onnxruntime.InferenceSession(
        str(plain), options, providers=["CPUExecutionProvider"], disabled_optimizers=apart
    )
    quant_pre_process(str(folded), str(prepared), skip_optimization=True, skip_symbolic_shape=True)


def _quantise(prepared: Path, result: Path, settings: Quantize, plan: Plan, feeds) -> None:
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    methods = {
        "minmax": CalibrationMethod.MinMax,
        "percentile": CalibrationMethod.Percentile,
        "entropy": CalibrationMethod.Entropy,
    }
    types = {t.lower(): getattr(QuantType, f"Q{t}") for t in _TYPES if hasattr(QuantType, f"Q{t}")}
    extra: dict[str, Any] = {}
    if plan.types:
        extra["TensorQuantOverrides"] = {
            name: [{"quant_type": types[kind], **({} if axis is None else {"axis": axis})}]
            for name, (kind, axis) in plan.types.items()
        }
    if settings.method == "percentile":
        extra["CalibPercentile"] = settings.percentile
    quantize_static(
        str(prepared),
        str(result),
        _reader(feeds),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=list(settings.op_types) or None,
        per_channel=settings.per_channel,
        weight_type=types[settings.weights],
        activation_type=types[plan.activations],
        nodes_to_quantize=plan.only,
        nodes_to_exclude=plan.excluded,
        calibrate_method=methods[settings.method],
        extra_options=extra,
    )


_TYPES = ("Int8", "UInt8", "Int4", "UInt4", "Int16", "UInt16")


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
        raise DataError(
            f"quantize: the data lack the input {missing[0]!r}; expected arrays by name: {names}"
        )
    count = min(rows, min(len(arrays[n]) for n in names))
    for start in range(0, count, size):
        yield {n: np.asarray(arrays[n][start : min(start + size, count)]) for n in names}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """onnxruntime's writer gives advice to the root logger that does not apply here, and prints what it does."""
    logger = logging.getLogger()
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logger.setLevel(before)
