"""What differs between operating systems where files are concerned. Everything else asks here."""

from __future__ import annotations

import os
import sys
from pathlib import Path

WINDOWS = sys.platform == "win32"

# For os.open: nothing that a child process inherits, no waiting at a pipe, and bytes as they are.
READ = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)
# O_EXCL: never a file, a link or a device that stands there.
CREATE = (
    os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
)


def flush(path: str | os.PathLike[str]) -> None:
    """Have the system write a file, or the names in a folder, to the disk.

    Windows opens no folders, and writes their names with the files; a file must be open for writing there.
    """
    if WINDOWS and os.path.isdir(path):
        return
    handle = os.open(path, os.O_RDWR if WINDOWS else READ)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def lock(folder: Path) -> int | None:
    """A handle that holds the folder for this process until it is closed.

    Raises BlockingIOError where another process has it. None where the system has no such locks (Windows);
    some network disks give everyone one.
    """
    if WINDOWS:
        return None
    import fcntl  # not there on Windows

    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise
    except OSError:
        pass
    return handle


def is_running(process: int) -> bool:
    """Whether a process with this number runs; True where the system does not say.

    On Windows the signal 0 is Ctrl-C, so nobody is asked there.
    """
    if WINDOWS:
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
