"""QuickGelu(x) = x·sigmoid(alpha·x)."""

import numpy as np

from reference.normal import sigmoid


def quick_gelu_grad(dY, X, *, alpha=1.702):
    z = alpha * X
    s = sigmoid(z)
    # z·(1 − s) → 0 as z → ∞, and s·z → 0 as z → −∞: the limits that inf·0 does not give
    tail = np.where(np.isinf(z), 0.0, np.where(np.isinf(z), 0.0, z) * sigmoid(-z))
    return dY * np.where(z == -np.inf, 0.0, s * (1 + tail))
