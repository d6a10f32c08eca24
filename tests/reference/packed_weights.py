"""Weights in small integers, unpacked number by number as the formats are defined."""

import numpy as np

# Quantiles of a normal distribution, scaled to [-1, 1].
NF4 = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
]  # fmt: skip
# A sign, then 0, 1/192, 2/3, 1, 1/3, 1/2, 1/6, 1/4, to 8 digits.
FP4 = [0.0, 0.00520833333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25]


def nbits(B, scales, zero_points, zeros, K, N, bits, block_size):
    """W [N, K] = (q - z)·scale; the first number of a byte is in its lowest bits."""
    blocks = -(-K // block_size)
    packed = B.reshape(N, -1)
    scales = scales.reshape(N, blocks)
    w = np.zeros((N, K))
    for n in range(N):
        for k in range(K):
            block = k // block_size
            w[n, k] = (_code(packed[n], k, bits) - _zero(zero_points, zeros, N, n, block, bits)) * (
                scales[n, block]
            )
    return w


def _code(row, i, bits):
    per_byte = 8 // bits
    return (int(row[i // per_byte]) >> (bits * (i % per_byte))) % (1 << bits)


def _zero(zero_points, zeros, N, n, block, bits):
    if zeros is not None:
        return zeros.reshape(N, -1)[n, block]
    if zero_points is not None:
        return _code(zero_points.reshape(N, -1)[n], block, bits)
    return 1 << (bits - 1)


def bnb4(B, absmax, K, N, quant_type, block_size):
    """W [N, K] = table[code]·absmax, one after the other; the first of a byte is in its highest bits."""
    table = NF4 if quant_type else [*FP4, *(-x for x in FP4)]
    flat = np.zeros(N * K)
    for i in range(N * K):
        byte = int(B.reshape(-1)[i // 2])
        flat[i] = table[byte % 16 if i % 2 else byte // 16] * absmax.reshape(-1)[i // block_size]
    return flat.reshape(N, K)
