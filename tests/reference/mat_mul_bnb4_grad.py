"""Y = A·Wᵀ is linear in A: dA = dY·W."""

from reference.packed_weights import bnb4


def mat_mul_bnb4_grad(dY, B, absmax, *, K, N, quant_type=1, block_size=64):
    return dY @ bnb4(B, absmax, K, N, quant_type, block_size)
