"""Moving slices along one axis: the adjoint of gathering along it."""


def place_along(op, updates, positions, size, axis, rank=None):
    """Return zeros of `size` along `axis` with slice i of `updates` put at positions[i], each once."""
    return _scatter(op, updates, positions, size, axis, "none", rank)


def spread_along(op, updates, positions, size, axis, rank=None):
    """As `place_along`, where positions may repeat: slices that meet are added."""
    return _scatter(op, updates, positions, size, axis, "add", rank)


def _scatter(op, updates, positions, size, axis, reduction, rank):
    rank = op.rank(updates) if rank is None else rank
    size = size if rank > 1 or op.dims(size) != () else op.Unsqueeze(size, [0])
    shape = [op.dim(updates, i) for i in range(rank)]
    zeros = op.full(op.Concat(*shape[:axis], size, *shape[axis + 1 :], axis=0), 0, op.dtype(updates))
    ones = [1] * rank
    ones[axis] = -1
    # ScatterElements, not ScatterND: onnxruntime adds in ScatterND from several threads at once,
    # without locks, so that indices that repeat lose updates (seen in 1.19.2 and in 1.31.1).
    where = op.Expand(op.Reshape(positions, ones), op.shape(updates))
    return op.ScatterElements(zeros, where, updates, axis=axis, reduction=reduction)


def offsets(op, indices, data):
    """Return the row number of each index in data viewed as [all positions, slice].

    indices [..., depth] -> int64 vector: Σ index[i] · stride[i], negative indices counted from
    the end.
    """
    depth = op.dims(indices)[-1]
    sizes = op.Slice(op.shape(data), [0], [depth], [0])
    flat = op.Reshape(indices, [-1, depth])
    flat = op.Where(op.Less(flat, 0), op.Add(flat, sizes), flat)
    rows = None
    for i in range(depth):  # Horner's scheme: ((i0·n1 + i1)·n2 + i2)…
        one = op.Reshape(op.Slice(flat, [i], [i + 1], [1]), [-1])
        rows = one if rows is None else op.Add(op.Mul(rows, op.dim(data, i)), one)
    return rows


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
