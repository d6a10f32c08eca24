"""The operators in stock ONNX Runtime: one shared library, registered with a session's options."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxgrad import _native

if TYPE_CHECKING:
    import onnx
    import onnxruntime

# Kept in the options object itself, so that copies of the Python wrapper agree.
_MARK = "onnxgrad.registered"


def library_path() -> str:
    """Path of the shared library for ONNX Runtime; it has no Python in it.

    Other languages register the same file, in C++ `options.RegisterCustomOpsLibrary(path)`.
    """
    suffix = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
    prefix = "" if sys.platform == "win32" else "lib"
    return str(Path(_native.__file__).with_name(f"{prefix}onnxgrad_ops{suffix}"))


def register(session_options: onnxruntime.SessionOptions) -> onnxruntime.SessionOptions:
    """Make onnxgrad's operators known to sessions created with these options; returns the options.

    A second call on the same options changes nothing.

        >>> import onnxruntime, onnxgrad
        >>> options = onnxgrad.register(onnxruntime.SessionOptions())
    """
    try:
        session_options.get_session_config_entry(_MARK)
        return session_options
    except RuntimeError:  # onnxruntime's way of saying that there is no such entry
        pass
    session_options.register_custom_ops_library(library_path())
    session_options.add_session_config_entry(_MARK, "1")
    return session_options


def session(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    options: onnxruntime.SessionOptions | None = None,
    *,
    threads: int | None = None,
    **session_arguments: Any,
) -> onnxruntime.InferenceSession:
    """An `onnxruntime.InferenceSession` in which onnxgrad's operators run.

    `model` is a path, the bytes of a model, or a ModelProto. `threads` sets `intra_op_num_threads`. Other keywords
    go to `InferenceSession`; the provider is the CPU unless `providers` says otherwise.
    """
    import onnxruntime

    options = register(options or onnxruntime.SessionOptions())
    if threads is not None:
        options.intra_op_num_threads = threads
    if hasattr(model, "SerializeToString"):
        model = model.SerializeToString()
    elif isinstance(model, os.PathLike):
        model = os.fspath(model)
    session_arguments.setdefault("providers", ["CPUExecutionProvider"])
    return onnxruntime.InferenceSession(model, options, **session_arguments)
