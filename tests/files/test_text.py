"""Lines of JSON: where they end, and what in them is text."""

from __future__ import annotations

import numpy as np
import pytest

from onnxgrad.data.language import records
from onnxgrad.data.read import read
from onnxgrad.errors import DataError, LimitError
from onnxgrad.files.text import check_brackets, json_lines, parse_record


@pytest.mark.parametrize("inside", ["\u2028", "\u2029", "\x85", "\x7f"])
def test_a_text_may_hold_what_others_take_for_the_end_of_a_line(tmp_path, inside):
    path = tmp_path / "d.jsonl"
    path.write_text(f'{{"text": "a{inside}b"}}\n{{"text": "c"}}\n', encoding="utf-8")
    assert list(read(path).column("text")) == [f"a{inside}b", "c"]
    assert [number for number, _ in records(path)] == [1, 2]


def test_lines_end_as_on_any_system(tmp_path):
    (tmp_path / "d.jsonl").write_bytes(b"1\r\n2\r3\n\n5")
    assert [n for n, _ in json_lines(tmp_path / "d.jsonl")] == [1, 2, 3, 5]
    assert [line.strip() for _, line in json_lines(tmp_path / "d.jsonl")] == ["1", "2", "3", "5"]


def test_pairs_are_characters_and_halves_are_not():
    assert parse_record(r'{"a": "\ud83d\ude00 \u00e4"}') == {"a": "😀 ä"}
    for text in (r'{"a": ["x", "\uDE00"]}', r'{"\ud83d": 1}'):
        with pytest.raises(
            ValueError, match=r"half a character, \\ud83d|half a character, \\ude00"
        ):
            parse_record(text)


def test_half_a_character_is_named_by_its_line(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_text('{"y": "b"}\n{"y": "\\ud800"}\n')
    with pytest.raises(DataError, match=r"d\.jsonl, line 2: it holds half a character, \\ud800"):
        read(path)


def test_dates_and_spans_of_a_parquet_file_are_as_in_other_files(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    day = np.array(["2026-01-02T03:04:05"] * 2, "M8[ns]")
    span = np.array([1500, 2500], "m8[ms]")
    table = pyarrow.table({"day": day, "span": span})
    parquet.write_table(table, tmp_path / "d.parquet")
    found = read(tmp_path / "d.parquet")
    assert list(found.column("day")) == ["2026-01-02T03:04:05.000000"] * 2
    np.testing.assert_array_equal(found.column("span"), [1.5, 2.5])


@pytest.mark.parametrize(
    "text", ["(" * 404, "{[(" * 135, "()" * 300 + "([" * 202, '")" (' * 404, "# )\n(" * 404]
)
def test_brackets_that_would_end_the_parser_of_onnx(text):
    with pytest.raises(LimitError, match="brackets inside each other, and the limit is 100"):
        check_brackets(text)


@pytest.mark.parametrize(
    "text",
    ["(" * 403, "(){}[]" * 1000, '"' + "(" * 500 + '"', "#" + "(" * 500, r'"\"' + "(" * 500 + '"'],
)
def test_brackets_that_nest_less_deep_or_are_none(text):
    check_brackets(text)
