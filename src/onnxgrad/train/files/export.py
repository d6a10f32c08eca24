"""Export: the caller's own model with new numbers in it, checked before it takes its name."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from onnxgrad.data.arrays import Batch
from onnxgrad.errors import ExportError, FileError, OnnxGradError
from onnxgrad.files.external import Folder, is_external, place
from onnxgrad.files.models import read_proto
from onnxgrad.files.system import flush
from onnxgrad.files.tensors import tensors as every_tensor
from onnxgrad.files.write import check_target, copy_file, replace, work_folder, write_bytes
from onnxgrad.model.change import Draft
from onnxgrad.model.past import PAST, empty_past
from onnxgrad.model.source import OriginalModel
from onnxgrad.notes import Note

if TYPE_CHECKING:
    import onnxruntime

    from onnxgrad.train.loop.evaluation import Evaluation
    from onnxgrad.train.step.setup import TrainingPlan


def export(
    setup: TrainingPlan,
    evaluation: Evaluation,
    path: str | os.PathLike[str],
    metadata: Mapping[str, str],
) -> list[Note]:
    """Write `setup`'s model with the store's tensors to `path`; see Trainer.save. Returns notes."""

    draft = setup.model.write_back(setup.store.tensors())

    def check(file: Path, path: Path) -> list[Note]:
        return verify(file, setup, evaluation, path, draft)

    return export_draft(setup.model.source, draft, path, metadata, check)


def export_draft(
    source: OriginalModel,
    draft: Draft,
    path: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
    verify: Callable[[Path, Path], list[Note]] | None = None,
) -> list[Note]:
    """Write `draft`, made of `source`; `verify` tries the file before it takes its name."""
    path = Path(os.path.abspath(path))
    try:
        check_target(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with work_folder(path.parent, path.name) as work:
            data = _write(source, draft, work, path, metadata or {})
            said = [] if verify is None else verify(work / path.name, path)
            return [*said, *_publish(work, path, data)]
    except (OSError, FileError) as error:
        raise ExportError(
            f"{path} could not be written: {error}; what was there is unchanged"
        ) from error


def _write(
    source: OriginalModel,
    draft: Draft,
    work: Path,
    path: Path,
    metadata: Mapping[str, str],
) -> list[str]:
    """Write the model and its data files into `work`; return the names of the data files."""
    model, tensors = draft.proto, draft.tensors
    known = {entry.key: entry.value for entry in model.metadata_props}
    onnx.helper.set_model_props(model, {**known, **metadata})
    folder, names = Folder(source.path), _data_names(model, path)
    for location, name in names.items():
        with folder.open(location) as file:
            copy_file(file, work / name)
    for tensor in every_tensor(model):
        if is_external(tensor):
            _move(tensor, names[place(tensor).location])
    for name, tensor in OriginalModel.tensors_of(model):
        if name in tensors:
            _set(tensor, tensors[name], work)
    for name in names.values():
        flush(work / name)
    write_bytes(work / path.name, model.SerializeToString())
    return list(names.values())


def _set(tensor: onnx.TensorProto, array: np.ndarray, work: Path) -> None:
    """Put an array where a tensor keeps its numbers."""
    raw = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    if not is_external(tensor):
        for field in ("float_data", "double_data", "int32_data"):
            tensor.ClearField(field)
        tensor.raw_data = raw
        return
    where = place(tensor)
    with open(work / where.location, "r+b") as file:  # our own copy
        file.seek(where.offset)
        file.write(raw)
    for entry in list(tensor.external_data):
        if entry.key == "checksum":  # of the old numbers
            tensor.external_data.remove(entry)


def _move(tensor: onnx.TensorProto, location: str) -> None:
    for entry in tensor.external_data:
        if entry.key == "location":
            entry.value = location


def _data_names(model: onnx.ModelProto, path: Path) -> dict[str, str]:
    """Return the new name of each external file. It begins with the model's own, beside which it lies.

    `resnet.onnx.data` becomes `tuned.onnx.data`, and the last part tells several files apart. A name that
    exists already gets a suffix, so that the model that stands there keeps its numbers.
    """
    found = dict.fromkeys(place(t).location for t in every_tensor(model) if is_external(t))
    names: dict[str, str] = {}
    for location in found:
        name = f"{path.name}.data" if len(found) == 1 else f"{path.name}.{Path(location).name}"
        if name in names.values() or os.path.lexists(path.parent / name):
            name = f"{name}.{secrets.token_hex(4)}"
        names[location] = name
    return names


_made: set[Path] = set()  # the data files that this process wrote, which it may remove again


def _publish(work: Path, path: Path, data: list[str]) -> list[Note]:
    """Move the data files, then the model: until its name changes hands the old one is whole.

    Returns a note on the data of the model that stood there: only what this process wrote is removed.
    """
    old = _data_of(path) - set(data)
    for name in data:
        replace(work / name, path.parent / name)
        _made.add(path.parent / name)
    replace(work / path.name, path)
    mine = {name for name in old if path.parent / name in _made}
    for name in mine:
        (path.parent / name).unlink(missing_ok=True)
    left = sorted(name for name in old - mine if name.startswith(path.name))
    text = "beside {} held the weights of the model that was replaced, and is left there"
    return [Note("left", name, f"{name} {text.format(path.name)}") for name in left]


def _data_of(path: Path) -> set[str]:
    """Return the names of the data files of the model that stands at `path`, if one does."""
    try:
        found = {place(t).location for t in every_tensor(read_proto(path)) if is_external(t)}
    except (OnnxGradError, OSError):
        return set()  # no model: it has none
    return {name for name in found if (path.parent / name).exists()}


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
    so: the draft's tolerance is relative to the largest output. `more` are inputs that are no part of a batch.
    """
    model: str | bytes = str(file)
    if draft.as_run is not None:
        model = draft.as_run(read_proto(file)).SerializeToString()
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
    for name, value in expected.items():
        if not isinstance(got[name], np.ndarray):
            continue  # a map, of which the trainer sees the tensor
        if value.dtype.kind == "f" and not _close(value, got[name], draft.tolerance):
            worst = float(np.abs(value - got[name]).max())
            raise ExportError(
                f"{path} was not written: output {name!r} of a plain session differs from the "
                f"trainer's by {worst:.3g}"
            )
    return notes


def _plain_session(
    model: str | bytes, source: OriginalModel, path: Path
) -> tuple[onnxruntime.InferenceSession, list[Note]]:
    """A session as users make it. Raises ExportError where onnxruntime refuses the file.

    Files that its optimiser wrote it sometimes cannot optimise again. Where the file that came is refused for
    that, too, ours is tried without optimisers.
    """
    try:
        return _session(model), []
    except Exception as error:
        try:
            _session(source.proto.SerializeToString() if source.path is None else str(source.path))
        except Exception:
            with contextlib.suppress(Exception):
                text = "onnxruntime loads it only without graph optimisations, as the original"
                return _session(model, optimised=False), [Note("unoptimised", path.name, text)]
        raise ExportError(
            f"{path} was not written: a plain onnxruntime session refuses the model: {error}"
        ) from error


def _session(model: str | bytes, optimised: bool = True) -> onnxruntime.InferenceSession:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
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


def _close(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    if a.shape != b.shape:
        return False
    size = np.abs(a[np.isfinite(a)]).max(initial=0.0)
    return bool(np.allclose(a, b, rtol=0, atol=tolerance * size + 1e-6, equal_nan=True))


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
