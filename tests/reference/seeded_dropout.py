"""Element i is dropped where a 32-bit hash of (seed, step, stream, i) lies below ratio·2³²."""

import numpy as np

MASK = (1 << 64) - 1


def _splitmix(z):
    z = (z + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def _hash(h):
    h = ((h ^ (h >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    h = ((h ^ (h >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return h ^ (h >> 16)


def seeded_dropout(X, key, *, ratio=0.5, stream=0):
    seed = 0
    for part in (int(key[0]), int(key[1]), stream):
        seed = _splitmix((seed ^ part) & MASK)
    i = np.arange(X.size, dtype=np.uint64).reshape(X.shape)
    random = _hash((_hash(i ^ np.uint64(seed & 0xFFFFFFFF)) + np.uint64(seed >> 32)) & 0xFFFFFFFF)
    ratio = float(np.float32(ratio))  # attributes are floats
    return np.where(random < int(ratio * 2**32), 0.0, X / (1 - ratio))
