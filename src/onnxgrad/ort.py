"""The operators in stock ONNX Runtime: one shared library, registered with a session's options."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxgrad import _native
from onnxgrad.contracts import DOMAIN, contracts
from onnxgrad.errors import ContractError, ModelError

if TYPE_CHECKING:
    import numpy as np
    import onnx
    import onnxruntime

# Kept in the options object itself, so that copies of the Python wrapper agree: the optimizers that
# the caller had turned off before the library was registered, and those that are off since.
_BEFORE, _SINCE = "onnxgrad.disabled_before", "onnxgrad.disabled_since"
_KEEP = "onnxgrad.keep_fusions"  # read by the library
_DISABLED = "optimization.disable_specified_optimizers"

# InferenceSession takes the last three without naming them, and ignores every other name without a word.
_SESSION_KEYWORDS = (
    "providers", "provider_options", "enable_fallback", "disabled_optimizers", "read_config_from_model",
)  # fmt: skip


def library_path() -> str:
    """Path of the shared library for ONNX Runtime; it has no Python in it.

    Other languages register the same file, in C++ `options.RegisterCustomOpsLibrary(path)`.
    """
    suffix = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
    prefix = "" if sys.platform == "win32" else "lib"
    return str(Path(_native.__file__).with_name(f"{prefix}onnxgrad_ops{suffix}"))


def register(
    session_options: onnxruntime.SessionOptions, *, fusions: bool = False
) -> onnxruntime.SessionOptions:
    """Make onnxgrad's operators known to sessions created with these options; returns the options.

    A second call on the same options registers nothing anew. It must not follow your own
    `register_custom_ops_library(onnxgrad.library_path())`: no session is made with a library registered twice.

    ONNX Runtime's own fusions into domain `com.microsoft` (FusedConv, FusedGemm, …) fail in a session that knows our
    operators, unless the model imports that domain. They are therefore off for all models of these options, which may
    cost a little speed. With `fusions=True` they stay on: for models that import the domain, as every gradient model
    does. `onnxgrad.session` looks at the model, and decides by itself.

        >>> import onnxruntime, onnxgrad
        >>> options = onnxgrad.register(onnxruntime.SessionOptions())
    """
    _check_options("register: session_options", session_options)
    if _entry(session_options, _BEFORE) is None:
        before = _entry(session_options, _DISABLED) or ""
        if fusions:  # an entry that is set twice makes onnxruntime warn
            session_options.add_session_config_entry(_KEEP, "1")
        session_options.register_custom_ops_library(library_path())
        since = ";".join(filter(None, (before, _native.fusing_optimizers)))
        session_options.add_session_config_entry(_BEFORE, before)
        session_options.add_session_config_entry(_SINCE, since)
    _set_fusions(session_options, fusions)
    return session_options


def disable(options: onnxruntime.SessionOptions, *optimizers: str) -> onnxruntime.SessionOptions:
    """Turn optimizers of ONNX Runtime off in options that the library is not yet registered with."""
    names = filter(None, (_entry(options, _DISABLED), *optimizers))
    options.add_session_config_entry(_DISABLED, ";".join(names))
    return options


def _entry(options: onnxruntime.SessionOptions, key: str) -> str | None:
    try:
        return options.get_session_config_entry(key)
    except RuntimeError:  # onnxruntime's way of saying that there is no such entry
        return None


def _set_fusions(options: onnxruntime.SessionOptions, fusions: bool) -> None:
    """Turn the fusions into com.microsoft on or off, in options that the library is registered with."""
    wanted = _entry(options, _BEFORE if fusions else _SINCE)
    if wanted is not None and wanted != (_entry(options, _DISABLED) or ""):
        options.add_session_config_entry(_DISABLED, wanted)


LARGE = 1 << 28  # bytes: from here on copies of frozen weights cost more than the time they save
BOUND = 1 << 20  # bytes of a tensor that is then read in place


@dataclass(frozen=True)
class HeldModel:
    """A model whose large tensors stay in arrays of the caller: a session takes them from there.

    Inside a message they would be copied three times on the way into a session. In `proto` the ones in `held` are
    external data without a file, which onnxruntime copies once and may pack once more; those in `bound` are inputs,
    which it reads where they lie, be it in the pages of a file.
    """

    proto: onnx.ModelProto
    held: dict[str, np.ndarray]
    bound: dict[str, np.ndarray] = field(default_factory=dict)

    def whole(self) -> onnx.ModelProto:
        """Return a message with the tensors inside."""
        copy = type(self.proto)()
        copy.CopyFrom(self.proto)
        for tensor in copy.graph.initializer:
            if tensor.name in self.held:
                tensor.ClearField("external_data")
                tensor.ClearField("data_location")
                tensor.raw_data = self.held[tensor.name].tobytes()
        for value in [v for v in copy.graph.input if v.name in self.bound]:
            kind = value.type.tensor_type
            tensor = copy.graph.initializer.add(name=value.name, data_type=kind.elem_type)
            tensor.dims.extend(d.dim_value for d in kind.shape.dim)
            tensor.raw_data = self.bound[value.name].tobytes()
            copy.graph.input.remove(value)
        return copy


def session(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto | HeldModel,
    options: onnxruntime.SessionOptions | None = None,
    *,
    threads: int | None = None,
    **session_arguments: Any,
) -> onnxruntime.InferenceSession:
    """An `onnxruntime.InferenceSession` in which onnxgrad's operators run.

    `model` is a path, the bytes of a model, or a ModelProto. `threads` sets `intra_op_num_threads`: 0 lets ONNX
    Runtime choose, None leaves what the options say. Other keywords go to `InferenceSession`; the provider is the CPU
    unless `providers` says otherwise. ONNX Runtime cannot copy options: the operators and `threads` are set in those
    that you give.

    Raises TypeError for an unknown keyword, and ContractError for arguments that cannot be and for a node of ours with
    an attribute that its contract does not have: ONNX Runtime would ignore it without a word.
    """
    import onnxruntime

    _check_model(model)
    _check_keywords(session_arguments)
    if options is None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # a line per weight that is also an input; errors are raised
    _check_options("session: options", options)
    if threads is not None:
        options.intra_op_num_threads = _thread_count(threads)
    held = []  # alive until the session is made
    if isinstance(model, HeldModel):
        held = [onnxruntime.OrtValue.ortvalue_from_numpy(a) for a in model.held.values()]
        if held:
            options.add_external_initializers(list(model.held), held)
        model = proto = model.proto
    else:
        proto = _proto(model)
    imported = proto is not None and any(o.domain == DOMAIN for o in proto.opset_import)
    if imported or proto is None:
        register(options, fusions=imported)
    else:
        _set_fusions(options, False)  # in options that know our operators from another session
    if proto is not None:
        check_attributes(proto)
    if hasattr(model, "SerializeToString"):
        model = model.SerializeToString()
    elif isinstance(model, os.PathLike):
        model = os.fspath(model)
    session_arguments.setdefault("providers", ["CPUExecutionProvider"])
    return _create(model, options, session_arguments)


def _create(model, options, session_arguments: dict[str, Any]) -> onnxruntime.InferenceSession:
    import onnxruntime

    try:
        return onnxruntime.InferenceSession(model, options, **session_arguments)
    except Exception as error:  # the class onnxruntime raises is not public
        if "Domain already set in registry" not in str(error):
            raise
        raise ContractError(
            "session: the options have a domain of operators twice, most likely com.microsoft from session itself and "
            "from register_custom_ops_library(onnxgrad.library_path()), expected options without the latter; make new "
            "options and leave that call out"
        ) from error


def _check_model(model: Any) -> None:
    if isinstance(model, str) and not model:
        raise ModelError("session: model is an empty string, expected the path of an ONNX file")


def _check_keywords(names: Iterable[str]) -> None:
    known = ("options", "threads", *_SESSION_KEYWORDS)
    for name in names:
        if name not in known:
            raise TypeError(f"session: unknown keyword {name!r}, expected {', '.join(known)}")


def _check_options(who: str, options: Any) -> None:
    import onnxruntime

    if not isinstance(options, onnxruntime.SessionOptions):
        raise ContractError(f"{who} is {options!r}, expected an onnxruntime.SessionOptions")


def _thread_count(threads: Any) -> int:
    if not isinstance(threads, Integral) or isinstance(threads, bool) or not 0 <= threads <= 1024:
        raise ContractError(
            f"session: threads is {threads!r}, expected an integer from 0 to 1024 (0: ONNX Runtime chooses), or None"
        )
    return int(threads)


def _proto(model: str | os.PathLike[str] | bytes | onnx.ModelProto) -> onnx.ModelProto | None:
    """The model without its external data; None for what is not an ONNX model: that is ONNX Runtime's to say."""
    from onnxgrad.files.models import read_proto

    try:
        return read_proto(model)
    except Exception:
        return None


def check_attributes(model: onnx.ModelProto) -> None:
    """Raise ContractError when one of our nodes has an attribute that its contract does not have."""
    for graph in (model.graph, *model.functions):
        for node in _nodes(graph):
            if node.domain == DOMAIN and node.op_type in contracts():
                _check_node(node)


def _nodes(graph) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph or function, those of subgraphs included."""
    waiting = [graph]
    while waiting:
        for node in waiting.pop().node:
            yield node
            for attribute in node.attribute:
                waiting.extend([attribute.g] if attribute.HasField("g") else attribute.graphs)


def _check_node(node: onnx.NodeProto) -> None:
    contract = contracts()[node.op_type]
    for attribute in node.attribute:
        if attribute.name not in contract.attribute_names:
            expected = ", ".join(a.name for a in contract.attributes) or "none"
            raise ContractError(
                f"{node.op_type}: unknown attribute '{attribute.name}', expected {expected} (node '{node.name}')"
            )
