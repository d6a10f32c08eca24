"""In which order rows come, and which of them validate: every row once an epoch, another order in each."""

from __future__ import annotations

import numpy as np
import pytest
from train import problems

from onnxgrad import Trainer
from onnxgrad.data.arrays import ArrayData, Names, TableData
from onnxgrad.data.batches import Batches
from onnxgrad.data.language import Example, Language
from onnxgrad.data.matching import Feed, Matched
from onnxgrad.data.read import read
from onnxgrad.train import callbacks
from onnxgrad.train.loop.epoch_loop import split

ROWS = 23


def arrays(shuffle: bool = True, seed: int = 1) -> ArrayData:
    return ArrayData({"x": np.arange(ROWS)}, 5, shuffle, seed)


def table(folder, shuffle: bool = True, seed: int = 1) -> Batches:
    np.savez(folder / "d.npz", x=np.arange(ROWS, dtype=np.float32))
    matched = Matched(inputs={"x": Feed(["x"], None, None)})
    return Batches(read(folder / "d.npz"), matched, [], 5, shuffle=shuffle, seed=seed)


class Columns:
    """Rows by their numbers, as Hugging Face's datasets give them."""

    column_names = ("x",)

    def with_format(self, kind: str, columns: list[str]) -> Columns:
        assert (kind, columns) == ("numpy", ["x"])
        return self

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, rows: list[int]) -> dict[str, np.ndarray]:
        return {"x": np.array(rows)}


def columns(shuffle: bool = True, seed: int = 1) -> TableData:
    return TableData(Columns(), Names(("x",), ()), 5, shuffle, seed)


def text(shuffle: bool = True, seed: int = 1) -> Language:
    """Examples of two tokens: the number of the row, and one that is learned."""
    examples = [Example([number, 99], [False, True]) for number in range(ROWS)]
    return Language(examples, ("input_ids",), batch_size=5, length=2, shuffle=shuffle, seed=seed)


KINDS = ["arrays", "table", "columns", "text"]


def made(kind: str, folder, **settings):
    if kind == "table":
        return table(folder, **settings)
    return {"arrays": arrays, "columns": columns, "text": text}[kind](**settings)


def rows_of(data, epoch: int, start: int = 0) -> list[int]:
    batches = [batch.arrays for batch in data.epoch(epoch, start)]
    return [int(v) for b in batches for v in (b["x"] if "x" in b else b["input_ids"][:, 0])]


@pytest.mark.parametrize("kind", KINDS)
def test_every_epoch_has_an_order_of_its_own(kind, tmp_path):
    data = made(kind, tmp_path)
    epochs = [rows_of(data, e) for e in range(4)]
    assert all(sorted(rows) == list(range(ROWS)) for rows in epochs)
    assert len({tuple(rows) for rows in epochs}) == 4
    assert list(range(ROWS)) not in epochs


@pytest.mark.parametrize("kind", KINDS)
def test_an_order_is_repeated_and_continued(kind, tmp_path):
    """What a resumed run asks for: the same epoch, from one of its batches on."""
    data, again = (made(kind, tmp_path) for _ in range(2))
    assert rows_of(data, 2) == rows_of(again, 2)
    assert rows_of(again, 2, start=3) == rows_of(data, 2)[15:]


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_says_which_order(kind, tmp_path):
    one, other = (made(kind, tmp_path, seed=s) for s in (1, 2))
    assert rows_of(one, 0) != rows_of(other, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_without_shuffling_rows_come_as_they_lie(kind, tmp_path):
    data = made(kind, tmp_path, shuffle=False)
    assert rows_of(data, 0) == rows_of(data, 1) == list(range(ROWS))
    assert [len(rows_of(data, 0, start)) for start in range(5)] == [23, 18, 13, 8, 3]
    assert len(data) == 5


@pytest.mark.parametrize(("share", "count"), [(0.25, 6), (0.01, 1), (0.9, 21)])
def test_rows_that_validate_are_not_trained_on(share, count):
    train, held = split(arrays(), share, seed=4)
    assert (train.rows, held.rows) == (ROWS - count, count)
    assert sorted([*train.arrays["x"], *held.arrays["x"]]) == list(range(ROWS))
    assert (train.shuffle, held.shuffle) == (True, False)
    again, other = (split(arrays(), share, seed=s)[1].arrays["x"] for s in (4, 5))
    np.testing.assert_array_equal(again, held.arrays["x"])
    assert count in (1, 21) or not np.array_equal(other, again)


class Watch(callbacks.Callback):
    """Notes what a run works on."""

    def on_fit_begin(self, loop):
        self.trained, self.held = loop.data.arrays["x"], loop.validation.arrays["x"]


def test_fit_sets_rows_aside():
    x, y = problems.mlp().batches[0]
    watch = Watch()
    Trainer(problems.mlp().model(), loss="cross_entropy").fit(
        x, y, validation=0.25, epochs=1, callbacks=[watch]
    )
    assert (len(watch.trained), len(watch.held)) == (18, 6)
    trained, held = ({row.tobytes() for row in part} for part in (watch.trained, watch.held))
    assert not trained & held
    assert trained | held == {row.tobytes() for row in x}


def test_only_whole_batches_where_the_model_fixes_their_size(tmp_path):
    data = table(tmp_path)
    whole = Batches(data.table, data.matched, [], 5, whole_only=True)
    assert (whole.rows, len(whole)) == (20, 4)
