"""The boundary: whatever goes wrong with a model leaves onnxgrad as one of its own errors.

onnx, onnx-ir, protobuf and onnxruntime raise classes of their own, some of them not public. They become a
ModelError with the file and their reason. What nobody foresaw is first shown to ONNX's checker: a malformed file
is the likeliest cause. What is left is a bug of onnxgrad, and says so.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from onnxgrad.errors import InternalError, ModelError, OnnxGradError, OutOfMemoryError
from onnxgrad.files import system
from onnxgrad.files.paths import is_path, name_of, printable, root

NO_MEMORY = (
    "bad_alloc", "bad allocation", "failed to allocate memory", "cannot allocate memory",
    "failed to map segment from shared object", "cannot create shared object descriptor",
)  # fmt: skip
LIBRARIES = ("onnx", "onnx_ir", "google", "onnxruntime")
Function = TypeVar("Function", bound=Callable[..., Any])


def guarded(function: Function) -> Function:
    """A function of a model, its first argument, or a method of something with a `source`: behind the boundary."""

    @functools.wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        with boundary(_model_of(arguments, named)):
            return function(*arguments, **named)

    return wrapper


def _model_of(arguments: tuple, named: dict[str, Any]) -> Any:
    if "model" in named:
        return named["model"]
    for argument in arguments[:2]:
        if is_path(argument) or isinstance(argument, bytes) or hasattr(argument, "opset_import"):
            return argument
        plan = getattr(argument, "_plan", None)  # a Trainer
        if plan is not None:
            return plan.model.source.path or plan.model.source.proto
    return None


@contextlib.contextmanager
def boundary(model: Any = None) -> Iterator[None]:
    """Inside the block every failure becomes one of onnxgrad.errors. `model` is what it is about."""
    try:
        yield
    except OSError:
        raise  # it has the file and the reason
    except Exception as error:
        if is_interruption(error):
            raise KeyboardInterrupt from error
        made = translated(error, model)
        if made is error:
            raise
        raise made from error


def is_interruption(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind it: an import that is interrupted may raise another class."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def translated(error: Exception, model: Any = None) -> Exception:
    """What the error means to a caller; the error itself where that is clear already."""
    if isinstance(error, OnnxGradError) or _on_purpose(error):
        return error
    name = name_of(model)
    if isinstance(error, MemoryError) or _is_allocation(error):
        return OutOfMemoryError(f"{name}: not enough memory: {first_line(error)}")
    if isinstance(error, RecursionError):
        return ModelError(f"{name} is nested deeper than can be followed")
    library = _library(error)
    if library:
        return ModelError(f"{name}: {library} refuses it: {first_line(root(error))}")
    complaint = _checker(model)
    if complaint:
        return ModelError(f"{name} is not a valid ONNX model: {complaint}")
    return InternalError(f"{name}: {bug(error)}")


def bug(error: BaseException) -> str:
    """A sentence for what should not happen, with the line to report."""
    last = _frames(error)[-1]
    place = f"{last.filename.rsplit('onnxgrad/', 1)[-1]}, line {last.lineno}"
    return (
        f"this is a bug in onnxgrad ({type(error).__name__}: {first_line(error)}; {place}). "
        "Please report this line and, if you may share it, the file"
    )


def first_line(error: object) -> str:
    """What a library says, in one line, without codes and addresses."""
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", str(error)).strip()
    line = text.splitlines()[0] if text else type(error).__name__
    line = re.sub(r"\S*/onnxruntime/\S+:\d+ .*?\) ?", "", line)
    return printable(line[:500])


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    return traceback.extract_tb(error.__traceback__) or [traceback.FrameSummary("", 0, "")]


def _on_purpose(error: Exception) -> bool:
    """A ValueError, TypeError or the like that onnxgrad raises itself: an argument was wrong."""
    last = _frames(error)[-1]
    line = linecache.getline(last.filename, last.lineno or 0).strip()
    own = "/onnxgrad/" in last.filename.replace("\\", "/") and "site-packages/onnx" not in (
        last.filename.replace("site-packages/onnxgrad", "")
    )
    return own and line.startswith("raise ") and isinstance(error, (ValueError, TypeError))


def _is_allocation(error: Exception) -> bool:
    """By the words of onnxruntime, of C++, and of the system when it loads a library."""
    text = str(error).lower()
    if isinstance(error, (ImportError, SystemError)) and system.memory_is_short():
        return True  # an import that ran out of it says anything
    return any(words in text for words in NO_MEMORY)


def _library(error: BaseException) -> str:
    """The library that an error comes from: by its class, or by the file of the last frame."""
    module = type(root(error)).__module__.split(".")[0]
    if module in LIBRARIES:
        return "protobuf" if module == "google" else module
    for frame in _frames(root(error))[-1:]:
        parts = frame.filename.replace("\\", "/").split("/site-packages/")
        if len(parts) > 1 and parts[1].split("/")[0] in LIBRARIES:
            return parts[1].split("/")[0]
    return ""


def _checker(model: Any) -> str:
    """What ONNX's own checker says against the model; empty where it has no complaint."""
    import onnx

    try:
        from onnxgrad.files.models import read_proto

        proto = read_proto(model)
        onnx.checker.check_model(proto.SerializeToString(), full_check=True)
    except OnnxGradError:
        return ""
    except Exception as error:
        return first_line(error)
    return ""
