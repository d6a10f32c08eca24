"""What differs between operating systems where files are concerned. Everything else asks here."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
from collections.abc import Iterator
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


@contextlib.contextmanager
def bounded_memory(more: int) -> Iterator[None]:
    """Let this process take at most `more` bytes beyond what it has; beyond that is a MemoryError.

    Only Linux keeps such a bound; elsewhere there is none.
    """
    try:
        import resource  # not there on Windows

        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = pages * resource.getpagesize() + more
    lower = most if soft == resource.RLIM_INFINITY else min(most, soft)
    resource.setrlimit(resource.RLIMIT_AS, (lower, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def memory_is_short(size: int = 64 << 20) -> bool:
    """Whether the system would not give this process `size` more bytes."""
    try:
        mmap.mmap(-1, size).close()
    except (OSError, MemoryError):
        return True
    return False


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


@contextlib.contextmanager
def freed_memory_returned() -> Iterator[None]:
    """Let what is freed inside go back to the system at once, where the C library can be told (glibc).

    It keeps blocks of up to 32 MiB for itself otherwise: a session that copies its weights three times while it is made
    would hold all three for ever. Afterwards it does as it does in processes that have run for a while.
    """
    change = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if change is None:
        yield
        return
    change(_MAPPED_FROM, 1 << 20)
    try:
        yield
    finally:
        change(_MAPPED_FROM, 32 << 20)
        change(_KEPT_AT_THE_TOP, 64 << 20)


_KEPT_AT_THE_TOP, _MAPPED_FROM = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h
