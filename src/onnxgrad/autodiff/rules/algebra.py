"""Einsum, determinants and discrete Fourier transforms: linear algebra beyond the product."""

from onnxgrad.autodiff.rule import NoGradient, rule


@rule("Einsum", wrt="Inputs")
def einsum(op, Inputs, Output, dOutput, *, equation):
    """dX of one term: the cotangent times all other terms, summed to the term's letters.

    "ij,jk->ik" has dA = Einsum("ik,jk->ij", dY, B). A letter that nothing else has was summed
    over: its gradient is repeated. A letter twice in one term is a diagonal: zero beside it.
    """
    terms, result = _letters(op, equation, Inputs, Output)
    gradients = []
    for i, (term, X) in enumerate(zip(terms, Inputs, strict=True)):
        others = [j for j in range(len(terms)) if j != i]
        known = set(result).union(*(terms[j] for j in others))
        unique = list(dict.fromkeys(term))
        kept = [a for a in unique if a in known]
        spelt = ",".join(["".join(result), *("".join(terms[j]) for j in others)])
        dX = op.Einsum(dOutput, *[Inputs[j] for j in others], equation=f"{spelt}->{''.join(kept)}")
        gradients.append(_placed(op, dX, kept, unique, term, X))
    return gradients


def _placed(op, dX, kept, unique, term, X):
    """From the letters that are `kept` to all of a term's, and to the shape of X."""
    new = [n for n, a in enumerate(unique) if a not in kept]
    dX = op.Unsqueeze(dX, new) if new else dX
    if len(unique) == len(term):
        dX.shape = dX.shape if new else None
        return op.expand_like(op.sum_to(dX, X) if not new else dX, X)
    # A diagonal: along each second place of a letter, keep where both indices are the same.
    for place, letter in enumerate(term):
        first = term.index(letter)
        if first == place:
            continue
        rank = place + len(unique) - len(set(term[:place]))
        dX = op.Unsqueeze(dX, [place])
        along = [op.Reshape(op.range(op.dim(X, n)), _ones(rank + 1, n)) for n in (first, place)]
        dX = op.Where(op.Equal(*along), dX, 0.0)
    return op.expand_like(dX, X)


def _ones(rank, axis):
    return [-1 if n == axis else 1 for n in range(rank)]


def _letters(op, equation, inputs, output):
    """Every term and the result as lists of letters; an ellipsis is spelt out, aligned right."""
    left, _, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    spare = [chr(c) for c in range(ord("A"), ord("z") + 1) if chr(c).isalpha()]
    spare = [c for c in spare if c not in equation]
    width = max(
        (op.rank(x) - len(t) + 3 for t, x in zip(terms, inputs, strict=True) if "..." in t),
        default=0,
    )
    free = spare[:width]

    def spell(term, count):
        head, dots, tail = term.partition("...")
        return [*head, *(free[width - count :] if dots else []), *tail]

    spelt = [spell(t, op.rank(x) - len(t) + 3) for t, x in zip(terms, inputs, strict=True)]
    if "->" in equation:
        return spelt, spell(right, width)
    every = [a for t in spelt for a in t if a not in free]
    return spelt, [*free, *sorted(a for a in set(every) if every.count(a) == 1)]


@rule("Det", wrt="X")
def det(op, X, Y, dY):
    """The derivative by an element is its cofactor: ± the determinant without its row and column.

    Taken from minors, not from the inverse: a singular matrix has cofactors, too.
    """
    rank = op.rank(X)
    n = op.dim(X, rank - 1)
    if op.ints(n) == [1]:
        return op.reshape_like(dY, X)
    rows = op.Unsqueeze(op.range(n), [1])  # the row i that is left out
    others = op.Unsqueeze(op.range(op.Sub(n, [1])), [0])
    kept = op.Add(others, op.Cast(op.GreaterOrEqual(others, rows), to=op.dtype(others)))
    minors = op.Gather(X, kept, axis=rank - 2)  # [..., i, n-1, n]
    minors = op.Gather(minors, kept, axis=rank)  # [..., i, n-1, j, n-1]
    lead = list(range(rank - 2))
    minors = op.Transpose(minors, perm=[*lead, rank - 2, rank, rank - 1, rank + 1])
    parity = op.Mod(op.Add(rows, op.Unsqueeze(op.range(n), [0])), [2])
    sign = op.Sub(1.0, op.Mul(op.number(parity, X), 2.0))
    return op.Mul(op.Unsqueeze(dY, [rank - 2, rank - 1]), op.Mul(op.Det(minors), sign))


@rule("DFT", wrt="input")
def dft(op, input, dft_length, axis, output, doutput, *, inverse, onesided):
    """Linear, so the adjoint: Y = F·X has dX = Fᴴ·dY, which is the inverse transform times n.

    The input is cut or filled with zeros to the length n, and so is its gradient. A one-sided
    result leaves out entries, which then have no cotangent. A real input has a real gradient.
    """
    if inverse and onesided:
        raise NoGradient("is a one-sided inverse transform", "use a two-sided one")
    place = op.ints(axis)
    if place is None:
        if axis is not None:
            raise NoGradient("has an axis that only the run knows", "make the axis constant")
        place = [1 if op.opset < 20 else -2]
    rank = op.rank(input)
    place = place[0] % rank
    size = op.dim(input, place)
    n = size if dft_length is None else op.Reshape(dft_length, [1])
    if onesided:
        doutput = _resized(op, doutput, op.dim(output, place), n, place, rank)
    spelt = {"axis": place} if op.opset < 20 else {}
    given = [] if op.opset < 20 else [None, op.constant(place)]
    given = [g if g is None else op.Reshape(g, []) for g in given]
    adjoint = op.DFT(doutput, *given, inverse=1 - inverse, **spelt)
    count = op.number(op.Reshape(n, []), adjoint)
    adjoint = op.Div(adjoint, count) if inverse else op.Mul(adjoint, count)
    if dft_length is not None:
        adjoint = _resized(op, adjoint, n, size, place, rank)
    real = op.dims(input)[-1] == 1
    if not real and not isinstance(op.dims(input)[-1], int):
        return op.crop_like(adjoint, input, [rank - 1])
    return op.Slice(adjoint, [0], [1], [rank - 1]) if real else adjoint


def _resized(op, x, old, new, axis, rank):
    """Cut an axis, or fill it up with zeros at its end."""
    zero = op.constant([0])
    pads = [zero] * (2 * rank)
    pads[rank + axis] = op.Sub(new, old)
    return op.Pad(x, op.Concat(*pads, axis=0))
