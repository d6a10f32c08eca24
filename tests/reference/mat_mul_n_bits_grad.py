"""Y = A·Wᵀ is linear in A: dA = dY·W."""

from reference.packed_weights import nbits


def mat_mul_n_bits_grad(
    dY, B, scales, zero_points=None, zeros=None, *, K, N, bits=4, block_size=32
):
    return dY @ nbits(B, scales, zero_points, zeros, K, N, bits, block_size)
