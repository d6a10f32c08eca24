"""The folder attacks/: every file that is made there is answered as its table says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ATTACKS = Path(__file__).resolve().parents[2] / "attacks"
sys.path.insert(0, str(ATTACKS))

from attack_cases import every_case, readme  # noqa: E402

NAMES = [case.name for case in every_case()]
GROUPS = 4  # processes that share the work; each loads the libraries once


def test_there_are_enough_of_them():
    assert len(NAMES) >= 40


def test_the_table_is_up_to_date():
    assert (ATTACKS / "README.md").read_text() == readme(), "run python attacks/run.py --readme"


@pytest.mark.parametrize("group", range(GROUPS))
def test_nothing_gets_through(group):
    command = [sys.executable, str(ATTACKS / "run.py"), *NAMES[group::GROUPS]]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("✓") == len(NAMES[group::GROUPS])


def test_the_judge_sees_what_is_wrong():
    """A case that asks for another answer than the one that comes is reported."""
    from attack_cases import Case
    from run import Outcome

    case = Case("x", lambda box: [], "is absolute", (2,))
    good = Outcome(2, "onnxgrad: m.onnx: the external data '/x' is absolute", 1.0, 1 << 20, [])
    assert good.faults(case) == []
    for change in (
        {"code": 0}, {"code": -11}, {"text": "Traceback"}, {"text": good.text + "\x1b[2J"},
        {"seconds": 9.0}, {"memory": 2 << 30}, {"changed": ["outside/.bashrc"]},
    ):  # fmt: skip
        assert Outcome(**{**good.__dict__, **change}).faults(case)
