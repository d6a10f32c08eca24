"""Moving slices along one axis: the adjoint of gathering along it."""


def place_along(op, updates, positions, size, axis, rank=None):
    """Return zeros, `size` along `axis`, with slice i of `updates` at positions[i], each once."""
    return _scatter(op, updates, positions, size, axis, "none", rank)


def spread_along(op, updates, positions, size, axis, rank=None):
    """As `place_along`, where positions may repeat: slices that meet are added."""
    return _scatter(op, updates, positions, size, axis, "add", rank)


def _scatter(op, updates, positions, size, axis, reduction, rank):
    rank = op.rank(updates) if rank is None else rank
    shape = [op.dim(updates, i) for i in range(rank)]
    whole = op.Concat(*shape[:axis], size, *shape[axis + 1 :], axis=0)
    zeros = op.full(whole, 0, op.dtype(updates))
    ones = [1] * rank
    ones[axis] = -1
    # ScatterElements, not ScatterND: onnxruntime adds in ScatterND from several threads at once,
    # without locks, so that indices that repeat lose updates (seen in 1.19.2 and in 1.31.1).
    where = op.Expand(op.Reshape(positions, ones), op.shape(updates))
    return op.ScatterElements(zeros, where, updates, axis=axis, reduction=reduction)


def offsets(op, indices, data, batch_dims=0):
    """Return the row number of each index in data viewed as [all positions, slice].

    indices [..., depth] -> int64 vector: Σ index[i] · stride[i], negative indices counted from
    the end. The leading `batch_dims` axes of both are the same, and number rows as well.
    """
    depth = op.dims(indices)[-1]
    batch = [op.dim(data, i) for i in range(batch_dims)]
    sizes = [op.dim(data, i) for i in range(batch_dims, batch_dims + depth)]
    flat = op.Reshape(indices, op.Concat(*batch, [-1], [depth], axis=0), allowzero=1)
    rows = None
    for i in range(batch_dims):  # Horner's scheme: ((i0·n1 + i1)·n2 + i2)…
        along = op.Reshape(op.range(batch[i]), [-1] + [1] * (batch_dims - i))
        rows = along if rows is None else op.Add(op.Mul(rows, batch[i]), along)
    for i in range(depth):
        one = op.Squeeze(op.Slice(flat, [i], [i + 1], [-1]), [-1])
        one = op.Where(op.Less(one, 0), op.Add(one, sizes[i]), one)
        rows = one if rows is None else op.Add(op.Mul(rows, sizes[i]), one)
    return op.Reshape(rows, [-1])


def scatter_rows(op, rows, updates, data, depth):
    """Add slices to zeros of data's shape; `rows` numbers data's leading `depth` axes."""
    tail = [op.dim(data, i) for i in range(depth, op.rank(data))]
    width = tail[0] if tail else op.constant([1])
    for size in tail[1:]:
        width = op.Mul(width, size)
    count = op.dim(data, 0)
    for i in range(1, depth):
        count = op.Mul(count, op.dim(data, i))
    flat = op.Reshape(updates, op.Concat([-1], width, axis=0))
    return op.reshape_like(spread_along(op, flat, rows, count, 0, rank=2), data)
