"""Y = A·Wᵀ with W as it is kept."""

from reference.packed_weights import nbits


def mat_mul_n_bits_training(
    A, B, scales, zero_points=None, zeros=None, *, K, N, bits=4, block_size=32
):
    return A @ nbits(B, scales, zero_points, zeros, K, N, bits, block_size).T
