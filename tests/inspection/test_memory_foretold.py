"""The memory that `inspect` foretells is what training takes, within a fifth."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="this system does not tell what a process takes"
)
CASES = [
    ("layers", "all", 8),
    ("layers", "head", 8),
    ("pictures", "all", 32),
    ("pictures", "head", 32),
    ("folded", "head", 8),
    ("words", "all", 32),
    ("words", "head", 32),
    ("bounded", "all", 256),
    ("layers of opset 13", "all", 8),
    ("layers of opset 13", "head", 8),
    ("layers in constants of opset 13", "all", 8),
]


def measured(*arguments: object) -> dict[str, int]:
    script = Path(__file__).with_name("training_memory.py")
    done = subprocess.run(
        [sys.executable, script, *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
def test_within_a_fifth(case):
    found = measured(*case)
    assert found["foretold"] == pytest.approx(found["taken"], rel=0.2), found


def test_the_head_alone_takes_less_than_everything():
    assert measured(*CASES[1])["taken"] < 0.8 * measured(*CASES[0])["taken"]
