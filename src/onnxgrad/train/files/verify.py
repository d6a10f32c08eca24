"""The written file, tried before it takes its name: does a plain session say what the trainer says?"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from onnxgrad.data.arrays import Batch
from onnxgrad.errors import ExportError
from onnxgrad.files.models import read_proto
from onnxgrad.files.write import write_bytes
from onnxgrad.model.change import Draft
from onnxgrad.model.past import PAST, empty_past
from onnxgrad.model.rounding import rounds_in_sessions, without_rounding
from onnxgrad.model.source import OriginalModel
from onnxgrad.notes import Note
from onnxgrad.train.files.trial import crash_of

if TYPE_CHECKING:
    import onnxruntime

    from onnxgrad.train.loop.evaluation import Evaluation
    from onnxgrad.train.step.setup import TrainingPlan


def verify(
    file: Path,
    setup: TrainingPlan,
    evaluation: Evaluation,
    path: Path,
    draft: Draft,
    more: Mapping[str, np.ndarray] | None = None,
) -> list[Note]:
    """Run the file in a plain session and compare it with the trainer's own prediction.

    Constant folding and fused layouts of the plain session round differently, half precision more
    so: the draft's tolerance is relative to the largest output. Where a session rounds to 8 bits what products
    read, the file runs without that, too: the trainer's outputs may lie as far off as twice what it moves.
    What still is too far off may be rounding that grew from layer to layer: then both run once more, on the same
    numbers and without optimisers, where nothing but a wrong file could differ. `more` are inputs
    that are not part of a batch.
    """
    model: str | bytes = str(file)
    if draft.as_run is not None:
        model = draft.as_run(read_proto(file), file).SerializeToString()
    crash = crash_of(model) if isinstance(model, str) and _in_halves(draft) else ""
    if crash:
        session, notes = _without_crash(str(model), setup.model.source, path, crash)
    else:
        session, notes = _plain_session(model, setup.model.source, path)
    sample = evaluation.sample or _invented(setup)
    if sample is None or _is_random(setup):
        return notes
    sample = _of_fixed_size(sample, session)
    expected = evaluation.run(Batch(sample, 0))
    feeds = {i.name: _as(sample[i.name], i.type) for i in session.get_inputs() if i.name in sample}
    feeds.update(empty_pasts(session, feeds))
    feeds.update(more or {})
    got = dict(zip(setup.outputs, session.run(setup.outputs, feeds), strict=True))
    del session  # of a large model two would be in memory at once
    moved = _moved_by_rounding(file, draft, feeds, got)
    apart = _apart(expected, got, draft.tolerance, moved)
    if apart and _rounds(draft):
        session = _session(model, optimised=False)
        plain = dict(zip(setup.outputs, session.run(setup.outputs, feeds), strict=True))
        exact = evaluation.run_as_written(Batch(sample, 0), draft.held)
        if not _apart(exact, plain, draft.tolerance, {}):
            change = "--keep-float32 writes float32" if _in_halves(draft) else ""
            for name, worst in apart:
                text = f"rounding moves output {name!r} of a plain session by {worst:.3g}"
                notes.append(Note("rounding", name, text, change))
            return notes
    for name, worst in apart:
        raise ExportError(
            f"{path} was not written: output {name!r} of a plain session differs from the "
            f"trainer's by {worst:.3g}"
        )
    return notes


def _apart(
    expected: Mapping[str, np.ndarray],
    got: Mapping[str, Any],
    tolerance: float,
    moved: Mapping[str, float],
) -> list[tuple[str, float]]:
    """The outputs that are too far from those of the trainer, and how far."""
    return [
        (name, float(np.abs(value - got[name]).max()) if value.shape == got[name].shape else np.inf)
        for name, value in expected.items()
        if isinstance(got[name], np.ndarray)  # not a map, of which the trainer sees the tensor
        and value.dtype.kind == "f"
        and not _close(value, got[name], tolerance, 2 * moved.get(name, 0.0))
    ]


def _rounds(draft: Draft) -> bool:
    """Whether the file rounds what it computes: to integers, or to half precision."""
    integers = any(n.op_type == "QuantizeLinear" for n in draft.proto.graph.node)
    return integers or _in_halves(draft)


def _in_halves(draft: Draft) -> bool:
    kinds = {t.data_type for _, t in OriginalModel.tensors_of(draft.proto)}
    return not kinds.isdisjoint((onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16))


def _moved_by_rounding(
    file: Path, draft: Draft, feeds: Mapping[str, np.ndarray], got: Mapping[str, Any]
) -> dict[str, float]:
    """How far each output moves when the session multiplies in float32; nothing where it does so anyway."""
    if draft.as_run is not None or not rounds_in_sessions(draft.proto):
        return {}
    exact = file.with_name(f"exact.{file.name}")  # in the work folder, beside the data files
    write_bytes(exact, without_rounding(read_proto(file)).SerializeToString())
    session = _session(str(exact), rounding=False)
    values = dict(zip(got, session.run(list(got), dict(feeds)), strict=True))
    return {
        name: float(np.abs(value.astype(np.float64) - got[name]).max(initial=0.0))
        for name, value in values.items()
        if isinstance(value, np.ndarray) and value.dtype.kind == "f"
    }


def _plain_session(
    model: str | bytes, source: OriginalModel, path: Path
) -> tuple[onnxruntime.InferenceSession, list[Note]]:
    """A session as users make it. Raises ExportError where onnxruntime refuses the file.

    It sometimes cannot optimise again what its own optimiser wrote. Where the file that came is refused for
    that, too, ours is tried without optimisers.
    """
    try:
        return _session(model), []
    except Exception as error:
        try:
            _session(source.proto.SerializeToString() if source.path is None else str(source.path))
        except Exception:
            with contextlib.suppress(Exception):
                text = "onnxruntime loads it only without graph optimisations, like the original"
                return _session(model, optimised=False), [Note("unoptimised", path.name, text)]
        raise ExportError(
            f"{path} was not written: a plain onnxruntime session refuses the model: {error}"
        ) from error


def _without_crash(
    model: str, source: OriginalModel, path: Path, crash: str
) -> tuple[onnxruntime.InferenceSession, list[Note]]:
    """A session without optimisers, where they crash on the file, and on the one that came as well."""
    came = source.path if source.path is not None else source.proto
    if not crash_of(came) or crash_of(model, optimised=False):
        raise ExportError(
            f"{path} was not written: onnxruntime crashes while loading it ({crash}); keep_float32 writes float32"
        )
    text = f"onnxruntime crashes while it optimises it ({crash}), like the original"
    change = "load it with ORT_DISABLE_ALL; --keep-float32 writes float32"
    return _session(model, optimised=False), [Note("unoptimised", path.name, text, change)]


def _session(
    model: str | bytes, optimised: bool = True, rounding: bool = True
) -> onnxruntime.InferenceSession:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if not rounding:
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _of_fixed_size(sample: Mapping[str, np.ndarray], session: Any) -> dict[str, np.ndarray]:
    """As many rows as the file takes, where it fixes them and training did not."""
    sizes = {i.name: i.shape[0] for i in session.get_inputs() if i.shape}
    return {
        n: a[np.arange(sizes[n]) % len(a)]
        if a.ndim and isinstance(sizes.get(n), int) and len(a)
        else a
        for n, a in sample.items()
    }


def empty_pasts(session: Any, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inputs of a cache, which a batch does not have: a past of length 0."""
    rows = next((len(a) for a in feeds.values() if a.ndim), 1)
    kinds = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
    return {
        i.name: np.zeros(empty_past(i.shape, rows), kinds[i.type])
        for i in session.get_inputs()
        if i.name not in feeds and i.name.startswith(PAST) and i.type in kinds and len(i.shape) == 4
    }


def _as(array: np.ndarray, kind: str) -> np.ndarray:
    """An input in the type that the file has: half precision, where the trainer works in float32."""
    return array.astype(np.float16) if kind == "tensor(float16)" else array


def _close(a: np.ndarray, b: np.ndarray, tolerance: float, more: float) -> bool:
    if a.shape != b.shape:
        return False
    size = np.abs(a[np.isfinite(a)]).max(initial=0.0)
    return bool(np.allclose(a, b, rtol=0, atol=tolerance * size + more + 1e-6, equal_nan=True))


def _invented(setup: TrainingPlan) -> dict[str, np.ndarray] | None:
    """Return inputs for a model that has not run yet; None where their shapes cannot be told."""
    rng, sample = np.random.default_rng(0), {}
    for name, value in setup.inputs.items():
        if value.shape is None or value.dtype is None:
            return None
        dims = [d if isinstance(d, int) else 2 for d in value.shape]
        dtype: Any = value.dtype.numpy()
        if np.dtype(dtype).kind == "f":
            sample[name] = rng.standard_normal(dims).astype(dtype)
        else:
            sample[name] = np.zeros(dims, dtype)
    return sample


def _is_random(setup: TrainingPlan) -> bool:
    random = ("RandomNormal", "RandomUniform", "Bernoulli", "Multinomial")
    return any(n.op_type.startswith(random) for n in setup.model.source.proto.graph.node)
