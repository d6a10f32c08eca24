"""`onnxgrad` and `python -m onnxgrad`: Ctrl-C, SIGTERM or a lack of memory while it loads ends in a sentence, too."""

from __future__ import annotations

import _signal as signal  # what `signal` is made of: that one loads `enum`, and Ctrl-C meanwhile is a traceback
import os
import sys

INTERRUPTED, TERMINATED = 130, 143
USAGE = 2


def main() -> int:
    """Run the command line; returns the exit code."""
    _open_streams()
    before = _on_interrupt(_leave)
    signal.signal(signal.SIGTERM, _end)  # `train` has another: it saves a checkpoint first
    try:
        from onnxgrad.cli import main as run
    except (MemoryError, ImportError, OSError) as error:
        reason = "not enough memory" if isinstance(error, MemoryError) else str(error)
        print(f"onnxgrad could not be loaded: {reason}", file=sys.stderr)
        return USAGE
    _on_interrupt(before)
    try:
        return run()
    except KeyboardInterrupt:
        return _leave()
    except MemoryError:  # so little is left that not even the sentence could be made
        os.write(2, b"onnxgrad: not enough memory\n")
        os._exit(USAGE)
    finally:
        _on_interrupt(signal.SIG_IGN)  # what is left is to exit
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _open_streams() -> None:
    """Give standard streams that were closed (`>&-`) somewhere to go.

    The first file that is opened would take the number of one, and be written into by whatever a library prints.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))


def _on_interrupt(handler):
    return signal.signal(signal.SIGINT, handler)


def _leave(*_: object) -> int:
    os.write(2, b"onnxgrad: interrupted\n")
    os._exit(INTERRUPTED)


def _end(*_: object) -> None:
    os.write(2, b"onnxgrad: terminated\n")
    os._exit(TERMINATED)


if __name__ == "__main__":
    sys.exit(main())
