"""What our two shared libraries show of themselves, and what happens when somebody closes one."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

import onnxgrad
from onnxgrad import _native

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="reads what Linux says of libraries"
)

LIBRARIES = {"RegisterCustomOps": onnxgrad.library_path(), "PyInit__native": _native.__file__}

CLOSED = """
import _ctypes, ctypes, sys
handle = ctypes.CDLL(sys.argv[1])._handle
_ctypes.dlclose(handle)
print(sys.argv[1] in open("/proc/self/maps").read())
"""


@pytest.mark.parametrize("entry", LIBRARIES)
def test_a_library_that_was_loaded_stays(entry):
    """onnxruntime closes ours with the options that know it; handlers of exit and of fork point into it."""
    command = [sys.executable, "-c", CLOSED, str(LIBRARIES[entry])]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


@pytest.mark.skipif(not shutil.which("nm"), reason="needs nm, of binutils")
@pytest.mark.parametrize("entry", LIBRARIES)
def test_a_library_shows_one_function(entry):
    """A C++ library that was linked into it must not meet the one of another package."""
    command = ["nm", "-D", "--defined-only", str(LIBRARIES[entry])]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split()[-1] for line in lines] == [entry]
