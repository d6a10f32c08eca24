"""LinearCrossEntropy with W as it is kept."""

from reference.linear_cross_entropy import of_scores
from reference.packed_weights import nbits


def mat_mul_n_bits_cross_entropy(
    X, labels, B, scales, zero_points=None, zeros=None, ignore_index=None,
    *, K, N, bits=4, block_size=32, reduction="mean",
):  # fmt: skip
    W = nbits(B, scales, zero_points, zeros, K, N, bits, block_size)
    return of_scores(X, labels, W.T, ignore_index, reduction)
