"""Moving slices along one axis: the adjoint of gathering along it."""


def place_along(op, updates, positions, size, axis):
    """Return zeros of `size` along `axis` with slice i of `updates` put at positions[i], each once."""
    return _scatter(op, updates, positions, size, axis, "none")


def spread_along(op, updates, positions, size, axis):
    """As `place_along`, where positions may repeat: slices that meet are added."""
    return _scatter(op, updates, positions, size, axis, "add")


def _scatter(op, updates, positions, size, axis, reduction):
    rank = op.rank(updates)
    shape = [op.dim(updates, i) for i in range(rank)]
    zeros = op.full(op.Concat(*shape[:axis], size, *shape[axis + 1 :], axis=0), 0, op.dtype(updates))
    ones = [1] * rank
    ones[axis] = -1
    # ScatterElements, not ScatterND: onnxruntime adds in ScatterND from several threads at once,
    # without locks, so that indices that repeat lose updates (seen in 1.19.2 and in 1.31.1).
    where = op.Expand(op.Reshape(positions, ones), op.shape(updates))
    return op.ScatterElements(zeros, where, updates, axis=axis, reduction=reduction)
