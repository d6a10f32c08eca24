"""The sum of micro-batches: one tree, whoever holds which leaves."""

from __future__ import annotations

import numpy as np
import pytest
from train.parallel.threads import together

from onnxgrad.data.share import share_of_rank
from onnxgrad.train.parallel.tree import TreeSum, widths


def in_the_tree(leaves: list[np.ndarray]) -> np.ndarray:
    """The definition: halves of halves."""
    if len(leaves) == 1:
        return leaves[0]
    half = len(leaves) // 2
    return in_the_tree(leaves[:half]) + in_the_tree(leaves[half:])


def drawn(count: int, length: int) -> list[np.ndarray]:
    """Numbers of very different sizes: another order of sums gives other bits."""
    rng = np.random.default_rng(count)
    return [
        (rng.standard_normal(length) * 10.0 ** rng.integers(-6, 6, length)).astype(np.float32)
        for _ in range(count)
    ]


@pytest.mark.parametrize("leaves", [1, 2, 8, 16])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_the_sum_has_the_same_bits_for_any_number_of_processes(leaves, size):
    if size > leaves:
        return
    values = drawn(leaves, 103)
    expected = in_the_tree(values)

    def work(communicator):
        share = share_of_rank(communicator.rank, size, leaves)
        tree, totals = TreeSum(communicator, leaves), []
        for repeat in range(2):  # buffers are used again
            for v in range(share.first, share.last):
                leaf = values[v] * np.float32(1 + repeat)
                tree.add(v, leaf)
                leaf[...] = np.nan  # the caller's own again
            total = np.empty(103, np.float32)
            tree.finish(total)
            totals.append(total)
        return totals

    for totals in together(size, work):
        assert totals[0].tobytes() == expected.tobytes()
        np.testing.assert_array_equal(totals[1], 2 * expected)


def test_another_order_would_have_other_bits():
    values = drawn(8, 103)
    assert sum(values[1:], values[0]).tobytes() != in_the_tree(values).tobytes()


def test_a_process_receives_its_slice_alone():
    """Of n numbers n/size from each of the others, as a ring does; not whole buffers."""

    def work(communicator):
        tree = TreeSum(communicator, 8)
        for v in range(2 * communicator.rank, 2 * communicator.rank + 2):
            tree.add(v, np.ones(1000, np.float32))
        total = np.empty(1000, np.float32)
        tree.finish(total)
        return communicator.received, total.min(), total.max()

    assert together(4, work) == [(750, 8, 8)] * 4


def test_the_largest_nodes_of_a_range():
    assert widths(0, 8) == [8]
    assert widths(3, 8) == [1, 4]
    assert widths(1, 7) == [1, 2, 2, 1]
