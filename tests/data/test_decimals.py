"""Tables of languages that write 1,5: numbers with a note, and never a number that may be another."""

from __future__ import annotations

import numpy as np
import pytest

from onnxgrad.data.read import read
from onnxgrad.errors import DataError


def written(tmp_path, *lines: str):
    path = tmp_path / "d.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_commas_for_points(tmp_path, delimiter):
    rows = [("a", "b", "y"), ("1,5", "-0,25", "0"), ("3", ",5", "1"), ("", "1,5e3", "1")]
    lines = [delimiter.join(cells) for cells in rows]
    table = read(written(tmp_path, *lines))
    np.testing.assert_array_equal(table.column("a"), np.array([1.5, 3, np.nan], np.float32))
    np.testing.assert_array_equal(table.column("b"), np.array([-0.25, 0.5, 1500], np.float32))
    assert [n.subject for n in table.notes] == ["a, b"]
    assert "writes decimals with a comma: 'a', 'b'" in str(table.notes[0])


def test_words_with_commas_are_words(tmp_path):
    table = read(written(tmp_path, "a;y", "1,5;0", "one, two;1"))
    assert table.column("a").dtype.kind == "U"
    assert not table.notes


def test_what_may_be_thousands_is_refused(tmp_path):
    path = written(tmp_path, "price;y", "1,234;0", "12,500;1", "999;1")
    with pytest.raises(DataError, match=r"'1,234', which may be 1234 or 1\.234"):
        read(path)


def test_one_number_that_is_no_thousand_decides(tmp_path):
    table = read(written(tmp_path, "a;y", "1,234;0", "0,250;1"))
    np.testing.assert_array_equal(table.column("a"), np.array([1.234, 0.25], np.float32))


def test_points_and_commas_do_not_mix(tmp_path):
    table = read(written(tmp_path, "a;y", "1.234,5;0", "2,5;1"))
    assert table.column("a").dtype.kind == "U"
