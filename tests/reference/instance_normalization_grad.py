"""GroupNormalization with one channel per group."""

from reference.group_normalization_grad import group_normalization_grad


def instance_normalization_grad(dY, X, scale, *, epsilon):
    return group_normalization_grad(dY, X, scale, epsilon=epsilon, num_groups=X.shape[1])
