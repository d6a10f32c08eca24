"""What `make demo` and `make test` do before anything else: build, and say how it goes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def load(name: str):
    spec = importlib.util.spec_from_file_location(f"tools_{name}", TOOLS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = load("build")


def printing(*lines: str, status: int = 0) -> list[str]:
    return [sys.executable, "-c", f"import sys; print({chr(10).join(lines)!r}); sys.exit({status})"]


def test_every_line_is_kept_and_the_status_handed_on():
    status, lines = build.follow(printing("[1/2] Building a.cpp.o", "error: here", status=3))
    assert status == 3
    assert lines == ["[1/2] Building a.cpp.o", "error: here"]


def test_progress_is_shown_on_a_terminal_alone(monkeypatch, capsys):
    build.follow(printing("[1/2] Building CXX object x/relu_grad.cpp.o"))
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    build.follow(printing("[1/2] Building CXX object x/relu_grad.cpp.o"))
    assert "[1/2] relu_grad.cpp" in capsys.readouterr().out


def test_a_failure_begins_where_the_compiler_complains():
    lines = ["[1/9] fine", "In file a.h:", "a.h:3: error: no such type", *["noise"] * 100]
    assert build.what_failed(lines).splitlines()[0] == "[1/9] fine"
    assert "no such type" in build.what_failed(lines)
    assert build.what_failed(["only", "this"]) == "only\nthis"


def test_all_instruction_sets_are_announced_as_longer():
    assert "this processor" in build.announcement("native")
    assert "every instruction set" in build.announcement("all")


def test_without_a_compiler_it_says_so(monkeypatch, capsys):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert build.main() == 1
    assert "none was found as 'no-such-compiler'" in capsys.readouterr().out


def test_the_extra_for_tests_is_what_pyproject_names():
    packages = load("extra").packages("test")
    assert any(p.startswith("clang-format==") for p in packages)
    assert any(p.startswith("pytest") for p in packages)
    assert not any(p.startswith(("numpy", "tensorboardX")) for p in packages)
