"""Y = A·Wᵀ with W as it is kept."""

from reference.packed_weights import bnb4


def mat_mul_bnb4_training(A, B, absmax, *, K, N, quant_type=1, block_size=64):
    return A @ bnb4(B, absmax, K, N, quant_type, block_size).T
