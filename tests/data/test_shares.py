"""Shares of batches: every row once, the cut the same for any number of processes, and nobody reads others' rows."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from onnxgrad import DataError
from onnxgrad.data.arrays import ArrayData, Batch
from onnxgrad.data.batches import Batches
from onnxgrad.data.matching import Feed, Matched
from onnxgrad.data.read import read
from onnxgrad.data.share import Share, cut, share_of_rank, shared_epoch

ROWS, BATCH, PARTS = 203, 32, 8


def parquet_file(folder, groups: int = 25):
    table = pyarrow.table({"x": np.arange(ROWS, dtype=np.float32)})
    parquet.write_table(table, folder / "d.parquet", row_group_size=-(-ROWS // groups))
    return read(folder / "d.parquet")


def data_of(kind: str, folder, shuffle: bool = True, chosen=None):
    if kind == "arrays":
        return ArrayData({"x": np.arange(ROWS, dtype=np.float32)}, BATCH, shuffle, 3)
    if kind == "stream":
        rows = np.arange(ROWS, dtype=np.float32)
        batches = [{"x": rows[i : i + BATCH]} for i in range(0, ROWS, BATCH)]
        return _Stream(batches)
    if kind == "mapped":
        (folder / "d").mkdir(exist_ok=True)
        np.save(folder / "d" / "x.npy", np.arange(ROWS, dtype=np.float32))
        table = read(folder / "d")
    else:
        table = parquet_file(folder)
    matched = Matched(inputs={"x": Feed(["x"], None, None)})
    return Batches(table, matched, [], BATCH, shuffle=shuffle, seed=3, chosen=chosen)


class _Stream:
    def __init__(self, batches):
        self.batches = batches

    def epoch(self, epoch, start=0):
        return (Batch(b, n) for n, b in list(enumerate(self.batches))[start:])


def micro_batches(data, size: int, epoch: int = 1, start: int = 0) -> list[list[list[float]]]:
    """By batch and number: the rows of every micro-batch, as `size` processes see them."""
    by_rank = [
        list(shared_epoch(data, epoch, start, share_of_rank(r, size, PARTS))) for r in range(size)
    ]
    found = []
    for batches in zip(*by_rank, strict=True):
        parts = []
        for batch in batches:
            cuts = batch.cuts
            parts += [
                batch.arrays["x"].reshape(-1)[a:b].tolist() for a, b in itertools.pairwise(cuts)
            ]
            assert batch.total == batches[0].total
        found.append(parts)
        assert sum(map(len, parts)) == batches[0].total
    return found


@pytest.mark.parametrize("kind", ["arrays", "mapped", "parquet", "stream"])
def test_micro_batches_do_not_depend_on_the_number_of_processes(kind, tmp_path):
    data = data_of(kind, tmp_path)
    expected = micro_batches(data, 1)
    assert sorted(v for batch in expected for part in batch for v in part) == list(range(ROWS))
    assert all(len(batch) == PARTS for batch in expected)
    for size in (2, 3, 4):
        assert micro_batches(data, size) == expected
    assert micro_batches(data, 2, start=3) == expected[3:]
    if kind != "stream":
        assert micro_batches(data, 1, epoch=2) != expected


@pytest.mark.parametrize("kind", ["mapped", "parquet"])
def test_some_rows_only(kind, tmp_path):
    chosen = np.arange(0, ROWS, 3)
    for shuffle in (True, False):
        found = micro_batches(data_of(kind, tmp_path, shuffle, chosen), 4)
        assert sorted(v for b in found for p in b for v in p) == chosen.tolist()


def test_a_process_reads_the_row_groups_of_its_lanes_alone(tmp_path, monkeypatch):
    data = data_of("parquet", tmp_path)
    groups = data.table.file.num_row_groups
    read_groups: list[int] = []
    whole = data.table._read_blocks

    def watched(names, rng, chosen):
        read_groups.extend(chosen)
        return whole(names, rng, chosen)

    monkeypatch.setattr(data.table, "_read_blocks", watched)
    list(shared_epoch(data, 0, 0, Share(0, 2, PARTS)))  # a quarter of the work
    assert len(set(read_groups)) <= groups / 4 + 3


def test_evaluation_skips_row_groups_before_its_batches(tmp_path, monkeypatch):
    data = data_of("parquet", tmp_path, shuffle=False)
    read_groups: list[int] = []
    whole = data.table._read_blocks

    def watched(names, rng, chosen):
        read_groups.extend(range(data.table.file.num_row_groups) if chosen is None else chosen)
        return whole(names, rng, chosen)

    monkeypatch.setattr(data.table, "_read_blocks", watched)
    found = [v for batch in data.epoch(0, 4) for v in batch.arrays["x"].reshape(-1)]
    assert found == list(range(4 * BATCH, ROWS))
    assert min(read_groups) > 10


def test_fewer_rows_than_micro_batches(tmp_path):
    table = pyarrow.table({"x": np.arange(3, dtype=np.float32)})
    parquet.write_table(table, tmp_path / "d.parquet")
    matched = Matched(inputs={"x": Feed(["x"], None, None)})
    data = Batches(read(tmp_path / "d.parquet"), matched, [], BATCH)
    assert micro_batches(data, 4) == micro_batches(data, 1)
    assert sorted(v for b in micro_batches(data, 4) for p in b for v in p) == [0, 1, 2]


def test_arrays_of_different_lengths_cannot_be_cut():
    batch = Batch({"x": np.zeros((10, 4)), "y": np.zeros(4)}, 7)
    with pytest.raises(DataError, match="batch 7 cannot be cut into micro-batches"):
        cut(batch, Share(0, 4, 4))
