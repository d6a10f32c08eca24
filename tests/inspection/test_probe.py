"""The child that loads a model first: however it ends, the verdict says so."""

from __future__ import annotations

import subprocess
import sys

import pytest

from onnxgrad.inspection import probe
from onnxgrad.inspection.probe import Probe, Verdict


def ended(program: str) -> Verdict:
    """The verdict on a child that runs another program."""
    running = Probe.__new__(Probe)
    command = [sys.executable, "-c", program]
    running.child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with running:
        return running.verdict()


def test_an_answer_is_taken_from_the_last_line():
    said = 'print("a warning"); print(\'{"loads": %s, "text": "why"}\')'
    assert ended(said % "true") == Verdict(True, "why")
    assert ended(said % "false") == Verdict(False, "why")


@pytest.mark.parametrize("program", ["", "print('no JSON')", "raise SystemExit(3)"])
def test_a_child_that_ends_without_an_answer_did_not_load_the_model(program):
    verdict = ended(program)
    assert (verdict.loads, verdict.crashed) == (False, False)
    assert verdict.text == "onnxruntime ended without an answer while loading it"


def test_a_signal_is_a_crash_with_its_name():
    verdict = ended("import os, signal; os.kill(os.getpid(), signal.SIGABRT)")
    assert verdict == Verdict(False, "onnxruntime crashed while loading it (SIGABRT)", crashed=True)


def test_a_child_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(probe, "SECONDS", 0.2)
    verdict = ended("import time; time.sleep(60)")
    assert verdict == Verdict(False, "onnxruntime did not finish loading it in 0.2 s", crashed=True)
