"""A folder that one process uses at a time. The system lets go of it when the process ends, however it ends."""

from __future__ import annotations

import os
from pathlib import Path

from onnxgrad.files import system


class Lock:
    """Taken by the constructor, which raises BlockingIOError where another process has it.

    Where the system has no such locks (Windows, some network disks), everyone gets one.
    """

    def __init__(self, folder: Path):
        self._handle: int | None = None
        self._handle = system.lock(folder)

    def release(self) -> None:
        """Let others in."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __del__(self) -> None:
        self.release()
