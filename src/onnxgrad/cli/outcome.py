"""How a command ends: an exit code, and a sentence where something went wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable

from onnxgrad.cli.exit_codes import DIVERGED, INTERNAL, INTERRUPTED, NOT_TRAINABLE, OK, USAGE
from onnxgrad.cli.texts import discard, plain
from onnxgrad.errors import DivergedError, GradientError, InternalError, OnnxGradError
from onnxgrad.files.boundary import is_interruption, translated

Outcome = tuple[int, "Exception | str"]


def outcome(run: Callable[[], int]) -> Outcome:
    """Run a command; return its exit code, and what to say if it failed."""
    try:
        return run(), ""
    except KeyboardInterrupt:
        return INTERRUPTED, "interrupted"
    except GradientError as error:
        return NOT_TRAINABLE, error
    except DivergedError as error:
        return DIVERGED, error
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        discard(sys.stdout)
        return OK, ""
    except OSError as error:
        return USAGE, _os_text(error)
    except MemoryError as error:
        return USAGE, f"not enough memory: {error or 'a smaller --batch-size may help'}"
    except (OnnxGradError, ValueError) as error:
        return (INTERNAL if isinstance(error, InternalError) else USAGE), error
    except Exception as error:
        return _unforeseen(error)


def _unforeseen(error: Exception) -> Outcome:
    """What no command foresaw: an interruption in disguise, a library's complaint, or a bug."""
    if is_interruption(error):
        return INTERRUPTED, "interrupted"
    made = translated(error)
    return (INTERNAL if isinstance(made, InternalError) else USAGE), made


def said(code: int, sentence: Exception | str) -> int:
    """Print the sentence, if there is one; return the code."""
    if not sentence or not str(sentence):
        return code
    try:
        print(f"onnxgrad: {plain(sentence)}", file=sys.stderr, flush=True)
    except OSError:  # nobody reads it, or its disk is full: the exit code says it
        discard(sys.stderr)
    return code


def _os_text(error: OSError) -> str:
    """`runs/x: No space left on device`, without the number."""
    if error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
