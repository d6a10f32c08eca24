"""What files/system.py answers on Windows, where this suite does not run, and what it must not do there."""

import os
import subprocess
import sys

import pytest

from onnxgrad.files import system


@pytest.fixture
def windows(monkeypatch):
    """Take away what Windows lacks, and make its signal 0 an error."""
    monkeypatch.setattr(system, "WINDOWS", True)

    def no_kill(process, number):
        raise AssertionError("on Windows the signal 0 is Ctrl-C")

    monkeypatch.setattr(os, "kill", no_kill)
    really_open = os.open

    def no_folders(path, *rest):
        if os.path.isdir(path):
            raise PermissionError(path)
        return really_open(path, *rest)

    monkeypatch.setattr(os, "open", no_folders)


def test_windows_opens_no_folder_and_sends_no_signal(windows, tmp_path):
    file = tmp_path / "weights"
    file.write_bytes(b"1")
    system.flush(file)
    system.flush(tmp_path)
    assert system.lock(tmp_path) is None
    assert system.is_running(1)


def test_a_flag_that_a_system_lacks_is_left_out(tmp_path):
    code = (
        "import os\n"
        "for name in ('O_CLOEXEC', 'O_NONBLOCK'): delattr(os, name)\n"
        "os.O_BINARY = 1 << 40\n"
        "from onnxgrad.files import system\n"
        "assert system.READ == os.O_RDONLY | 1 << 40, system.READ\n"
        "assert system.CREATE == os.O_WRONLY | os.O_CREAT | os.O_EXCL | 1 << 40, system.CREATE\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_process_that_ended_is_not_running():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert system.is_running(child.pid)
    child.communicate(b"\n")
    assert not system.is_running(child.pid)


def test_memory_that_no_machine_has_is_not_there():
    assert system.memory_is_short(1 << 60)
    assert not system.memory_is_short(1 << 12)


def test_a_lower_bound_that_was_there_stays(monkeypatch):
    resource = pytest.importorskip("resource")
    asked = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 20, 1 << 40))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    with system.bounded_memory(1 << 30):
        pass
    assert asked == [(1 << 20, 1 << 40)] * 2
