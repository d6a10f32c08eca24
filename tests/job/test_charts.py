"""Charts are drawn as in tests/golden/charts.svg, which somebody has looked at. After a change that is meant:
`python tests/job/drawn.py`, and look again.
"""

from __future__ import annotations

import re

import pytest
from job.drawn import FILE, picture

from onnxgrad.charts import Axis, Chart, Picture


def test_every_kind_of_chart_is_drawn_as_it_was():
    parts = re.compile(r"(?=<(?:svg|line|text|circle|polyline))")
    drawn, known = (parts.split(text) for text in (str(picture()), FILE.read_text("utf-8")))
    assert drawn == known


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (0, 10, [0, 2, 4, 6, 8, 10]), (-0.1, 0.1, [-0.1, -0.05, 0, 0.05, 0.1]),
     (3, 17, [5, 10, 15]), (0, 12, [0, 2.5, 5, 7.5, 10])],
)  # fmt: skip
def test_ticks_are_round_numbers(low, high, ticks):
    assert Axis(low, high, 0, 100).ticks == pytest.approx(ticks)


def test_decades_and_their_ends():
    assert Axis(0.01, 1000, 0, 1, log=True).ticks == pytest.approx([0.01, 0.1, 1, 10, 100, 1000])
    assert Axis(2, 5, 0, 1, log=True).ticks == [2, 5]
    assert len(Axis(1e-9, 1e9, 0, 1, log=True).ticks) == 7


def test_a_picture_of_nothing():
    empty = Picture([Chart("nothing", {})])
    assert empty.charts == []
    assert repr(empty).startswith("<Picture of nothing;")
    assert repr(Picture([Chart("t", {"l": [(0, 0)]})])).startswith("<Picture of t;")
    assert Chart("nothing", {}).svg() == ""
