"""Reports of made-up runs are the pages in tests/golden/pages, which somebody has looked at.

After a change that is meant: `python tests/job/pages.py`, and look again.
"""

from __future__ import annotations

import math

import pytest
from job.pages import RUNS, file_of, run, shown

from onnxgrad.job.judging import Judged
from onnxgrad.job.report import numbers


@pytest.mark.parametrize("title", RUNS)
def test_a_page_is_as_it_was(title):
    assert shown()[title].splitlines() == file_of(title).read_text("utf-8").splitlines()


def test_numbers_for_programs():
    found = numbers(run(None, 0, after={"val_loss": math.inf, "val_accuracy": 0.5}))
    assert found["before"] == {"val_loss": 2.75, "val_accuracy": 0.25}
    assert found["after"] == {"val_loss": None, "val_accuracy": 0.5}
    assert (found["epochs"], found["steps"], found["seconds"]) == (3, 12, 12.345)
    assert found["output"] == "out/tuned.onnx"


def test_calibration_is_weighted_by_rows():
    judged = Judged(bins=[(0.5, 0.25, 3), (1.0, 1.0, 9)])
    assert judged.calibration_error == pytest.approx(0.25 * 3 / 12)
    assert Judged().calibration_error == 0
