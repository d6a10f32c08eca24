"""Sums of micro-batches in one fixed binary tree: the same bits for any number of processes.

The leaves are the micro-batches 0 … V-1 of a batch, V a power of two. Node (a, w) is the sum of the leaves
a … a+w-1 and always node (a, w/2) + node (a + w/2, w/2). A process adds up the largest nodes that lie in its
own leaves; the nodes above are added slice by slice, each process a slice, and the slices are collected.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from onnxgrad.data.share import share_of_rank
from onnxgrad.train.parallel.communicator import Communicator


@dataclass
class Node:
    """The sum of the leaves `first` … `first + width - 1`."""

    first: int
    width: int
    values: np.ndarray

    def takes(self, right: Node) -> bool:
        """Whether `right` is the other half of the node above."""
        return right.width == self.width and self.first % (2 * self.width) == 0


def fold(nodes: Iterable[Node]) -> list[Node]:
    """Add up nodes that come from left to right, in place, as far as the tree goes."""
    found: list[Node] = []
    for node in nodes:
        found.append(node)
        while len(found) > 1 and found[-2].takes(found[-1]):
            right = found.pop()
            left = found[-1]
            np.add(left.values, right.values, out=left.values)
            found[-1] = Node(left.first, 2 * left.width, left.values)
    return found


def widths(first: int, last: int) -> list[int]:
    """The widths of the largest nodes that make up the leaves `first` … `last - 1`.

    >>> widths(0, 8), widths(2, 5), widths(5, 8)
    ([8], [2, 1], [1, 2])
    """
    return [n.width for n in fold(Node(v, 1, np.zeros(0)) for v in range(first, last))]


class TreeSum:
    """Adds up one flat buffer over the micro-batches of all processes."""

    def __init__(self, communicator: Communicator, leaves: int):
        self.communicator = communicator
        self.shares = [
            share_of_rank(r, communicator.size, leaves) for r in range(communicator.size)
        ]
        self._nodes: list[Node] = []
        self._spare: list[np.ndarray] = []  # buffers of earlier batches

    def add(self, leaf: int, values: np.ndarray) -> None:
        """Take the next leaf of this process; `values` may be changed afterwards."""
        right = Node(leaf, 1, values)
        if self._nodes and self._nodes[-1].takes(right):
            self._merge([*self._nodes, right])  # a right leaf is added from where it lies
            return
        held = self._spare.pop() if self._spare else np.empty_like(values)
        held[...] = values
        self._merge([*self._nodes, Node(leaf, 1, held)])

    def _merge(self, nodes: list[Node]) -> None:
        before = self._nodes
        self._nodes = fold(nodes)
        kept = {id(n.values) for n in self._nodes}
        self._spare += [n.values for n in before if id(n.values) not in kept]

    def forget(self) -> None:
        """Drop the leaves so far: a batch that is not used."""
        self._spare += [n.values for n in self._nodes]
        self._nodes = []

    def finish(self, total: np.ndarray) -> None:
        """Write the sum over all leaves into `total`, the same bits in every process."""
        communicator, size = self.communicator, self.communicator.size
        if size == 1:
            total[...] = self._nodes[0].values
            self.forget()
            return
        cuts = [len(total) * r // size for r in range(size + 1)]
        counts = [b - a for a, b in itertools.pairwise(cuts)]
        nodes = [(share.first, widths(share.first, share.last)) for share in self.shares]
        mine, own = counts[communicator.rank], len(self._nodes)
        taken = communicator.exchange(
            self._outgoing(cuts), [c * own for c in counts], [mine * len(w) for _, w in nodes]
        )
        slices, at = [], 0
        for first, parts in nodes:
            for width in parts:
                slices.append(Node(first, width, taken[at : at + mine]))
                first, at = first + width, at + mine
        total[cuts[communicator.rank] : cuts[communicator.rank + 1]] = fold(slices)[0].values
        self.forget()
        communicator.collect(total, counts)

    def _outgoing(self, cuts: list[int]) -> np.ndarray:
        """This process's nodes, slice by slice as they are sent."""
        if len(self._nodes) == 1:
            return self._nodes[0].values
        pieces = [node.values[a:b] for a, b in itertools.pairwise(cuts) for node in self._nodes]
        return np.concatenate(pieces)
