"""The mistakes that `make mutants` plants: each is another program, and the list by hand fits the source."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tools" / "mutants"


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # they import each other
    spec.loader.exec_module(module)
    return module


changes, planted = load("changes"), load("planted")

EXAMPLES = [
    ("a < b", "(a <= b)"),
    ("a + 1", "(a - 1)"),
    ("a and b", "(a or b)"),
    ("not a", "a"),
    ("-a", "a"),
    ("f(a, b)", "f(b, a)"),
    ("f(a, axis=b)", "f(a)"),
    ("op.Add(a, b)", "op.Sub(a, b)"),
    ("a[1:b]", "a[:b]"),
    ("[x for x in a if x]", "[x for x in a if True]"),
    ("a if b else c", "a if (not b) else c"),
    ("True", "False"),
]


@pytest.mark.parametrize(("was", "becomes"), EXAMPLES, ids=[e[0] for e in EXAMPLES])
def test_a_line_is_changed(was, becomes):
    source = f"x = 'é'; y = {was}\nz = 3\n"  # a column is counted in bytes
    results = [m.applied(source) for m in changes.mutants("a.py", source)]
    assert f"x = 'é'; y = {becomes}\nz = 3\n" in results


def test_a_statement_is_removed_and_wording_stays():
    source = (
        '"""Text."""\n'
        "def f(a: int = 1):\n"
        "    a.go()\n"
        "    if a:\n"
        "        raise ValueError(f'{a + 1}')\n"
        "    return a\n"
    )
    kinds = {(m.line, m.kind, m.text) for m in changes.mutants("a.py", source)}
    assert kinds == {
        (2, "constant", "2"),
        (2, "constant", "0"),
        (3, "statement removed", "pass"),
        (4, "condition negated", "(not a)"),
        (5, "statement removed", "pass"),
        (6, "returns nothing", "return None"),
    }


@pytest.mark.parametrize(
    ("source", "count"),
    [("MOST = 1 << 16", 0), ("MOST: float = 2e-3", 0), ("MOST = 3", 2), ("most = 16", 2), ("MOST = f(16, 17)", 5),
     ("def f():\n    file.close()", 0), ("def f():\n    time.sleep(3)", 0), ("run(a, timeout=60)", 0)],
)  # fmt: skip
def test_choices_and_housekeeping_stay(source, count):
    assert len(changes.mutants("a.py", source + "\n")) == count


def test_planted_mistakes_fit_the_source():
    for mutant in planted.mutants(ROOT / "src"):
        source = (ROOT / "src" / mutant.path).read_text(encoding="utf-8")
        assert changes.is_another_program(mutant, source), mutant


def test_a_changed_module_is_imported_here_and_in_programs_that_are_started(tmp_path):
    changed = tmp_path / "changed.py"
    changed.write_text("planted = 17\n")
    program = (
        "import subprocess, sys\n"
        "import onnxgrad.notes; print(onnxgrad.notes.planted)\n"
        "if len(sys.argv) == 2:\n"
        "    sys.exit(subprocess.run([sys.executable, '-c', sys.argv[1], sys.argv[1], '-']).returncode)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, program],
        env={"PYTHONPATH": str(FOLDER / "hook"), "ONNXGRAD_MUTANT": f"onnxgrad.notes:{changed}"},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "17\n17\n", done.stderr
