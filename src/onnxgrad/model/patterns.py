"""What numbers betray about a tensor: masks, tables and windows are functions of the index, weights never."""

from __future__ import annotations

import numpy as np

HUGE = 1e4  # beyond it, below zero: what masks add to scores
LOW = 100  # the same where nothing but zeros is beside it: windows that are shifted have such masks
NEAR = 1e-4  # relative to how far the elements lie apart: a scale that has hardly left 1 is not a progression
ROUNDING = 5e-7  # relative to the largest element: tables are computed in float
NOISE = 1e-5  # relative to the largest element: sin(πk) in float
LEAST = 3  # equations that must hold beside the unknowns: chance does not meet as many


MOST = 256  # elements along an axis that are looked at in large tensors: a pattern shows in a corner as well
LARGE = 1 << 18  # elements


def is_uniform(array: np.ndarray) -> bool:
    """Say whether all elements are one number, and not NaN; large tensors are not read to their end in vain."""
    flat = array.reshape(-1)
    first = flat[:1]
    blocks = (flat[i : i + LARGE] for i in range(0, flat.size, LARGE))
    return bool(flat.size and (first == first).all() and all((b == first).all() for b in blocks))


def is_identity(array: np.ndarray) -> bool:
    """Say whether a matrix is the identity, or a multiple of it: some networks begin so, whatever their seed."""
    if array.ndim != 2 or array.shape[0] != array.shape[1] or len(array) < 2:
        return False
    first = array[0, 0]
    return bool(
        first and np.count_nonzero(array) == len(array) and (array.diagonal() == first).all()
    )


def is_of_two_numbers(array: np.ndarray) -> bool:
    """Say whether an array holds two numbers that people write down, and no other: a forget gate's 1, a Dirac kernel.

    >>> is_of_two_numbers(np.array([0.0, 1.0, 1.0, 0.0])), is_of_two_numbers(np.array([0.0, 0.123456, 0.0]))
    (True, False)
    """
    flat = array.reshape(-1)
    others = flat[flat != flat[:1]]
    few = others.size > 0 and is_uniform(others) and bool(np.isfinite(flat[0]))
    return few and is_round(float(flat[0])) and is_round(float(others[0]))


def is_symmetric(array: np.ndarray) -> bool:
    """Say whether square matrices equal their transposes, with more than a diagonal: no weight is drawn so.

    >>> is_symmetric(np.ones((3, 3)) - np.eye(3)), is_symmetric(np.eye(3)), is_symmetric(np.ones((3, 3)))
    (True, False, False)
    """
    if array.ndim < 2 or array.shape[-1] != array.shape[-2] or array.shape[-1] < 3:
        return False
    if array.size > LARGE or not (array == np.swapaxes(array, -1, -2)).all():
        return False
    off = array[..., ~np.eye(array.shape[-1], dtype=bool)]
    return bool(off.any()) and not is_uniform(array)


def is_one_filter(array: np.ndarray) -> bool:
    """Say whether a kernel is one filter of several numbers for every channel: no weight is drawn so.

    >>> blur = np.outer([1, 2, 1], [1, 2, 1]) / 16
    >>> is_one_filter(np.stack([[blur]] * 4)), is_one_filter(np.ones((4, 1, 3, 3)))
    (True, False)
    """
    several = array.ndim > 2 and len(array) > 1 and array[0, 0].size > 1
    if not several or array.shape[1] != 1 or array.size > LARGE:
        return False
    equal = bool((array == array[:1]).all())
    return equal and np.count_nonzero(array[0]) > 1 and not is_uniform(array[0])


def is_round(number: float, digits: int = 2) -> bool:
    """Say whether a number is one that people write down: at most so many digits, up to the rounding of a float.

    >>> [is_round(float(np.float32(x))) for x in (0, 1, -2.5, 1e-4, 0.0031)], is_round(0.031415)
    ([True, True, True, True, True], False)
    """
    return abs(float(f"{number:.{digits - 1}e}") - number) <= ROUNDING * abs(number)


def describe(array: np.ndarray, pointwise: bool = True) -> tuple[str, str] | None:
    """Return the kind of a tensor that cannot be a weight and the reason, or None.

    `pointwise`: only operators such as Add and Mul read it. Weights of layers may be rounded to
    few numbers, which alone makes no grid of them.

    >>> describe(np.triu(np.full((4, 4), -np.inf), 1))
    ('mask', 'it holds -inf')
    >>> describe(np.arange(8.0))[0]
    'table'
    >>> describe(np.random.default_rng(0).normal(size=(8, 4))) is None
    True
    """
    if array.size == 0:
        return None
    corner = _corner(array)
    mask = describe_mask(array)
    if mask:
        return mask
    if corner.size < 4 or (corner == corner.flat[0]).all():
        return None
    found = _table(corner) or _short_table(corner) or _distances(corner)
    found = found or _window(array) or _filters(corner)
    return found or (_grid(corner) or _written(corner) if pointwise else None)


def describe_switches(array: np.ndarray) -> tuple[str, str] | None:
    """Return the same for zeros and ones that something is multiplied by: they let parts pass."""
    corner = _corner(array)
    if corner.size < 4 or not np.isin(corner, (0, 1)).all() or (corner == corner.flat[0]).all():
        return None
    return "mask", "it holds zeros and ones, and is a factor"


def describe_mask(array: np.ndarray) -> tuple[str, str] | None:
    """Return the same for a mask alone: all that numbers tell of what a layer reads as its bias or scale."""
    reason = _mask(_corner(array)) if array.size else ""
    return ("mask", reason) if reason else None


def _corner(array: np.ndarray) -> np.ndarray:
    part = array if array.size <= LARGE else array[tuple(slice(MOST) for _ in array.shape)]
    return np.asarray(part, np.float64)


def _mask(array: np.ndarray) -> str:
    if not np.isfinite(array).all():
        bad = array[~np.isfinite(array)][0]
        return f"it holds {bad:g}"
    if array.size < 2:
        return ""
    low = array <= -HUGE
    if (low.any() and (low | (np.abs(array) <= 1)).all()) or _is_low_or_zero(array):
        low = low | (array == array.min())
        return f"it holds {array.min():.3g} beside {'zeros' if not array[~low].any() else 'small numbers'}"
    if array.ndim >= 2 and array.shape[-1] == array.shape[-2] > 2 and _is_triangle(array):
        return "it is a triangle of ones"
    return ""


def _is_low_or_zero(array: np.ndarray) -> bool:
    least = array.min()
    return bool(least <= -LOW and (array == 0).any() and ((array == 0) | (array == least)).all())


def _is_triangle(array: np.ndarray) -> bool:
    ones = np.ones(array.shape[-2:])
    return any((array == f(ones, k)).all() for f in (np.tril, np.triu) for k in (-1, 0, 1))


def _table(array: np.ndarray) -> tuple[str, str] | None:
    """Progressions, sinusoids and exponentials: x[t+1] + x[t-1] = c·x[t] along an axis, c by column."""
    for axis, length in enumerate(array.shape):
        if length < 4:
            continue
        rows = np.moveaxis(array, axis, 0).reshape(length, -1)
        # what is nothing but the rounding of a sine of large numbers stands still
        moving = rows[:, np.ptp(rows, axis=0) > NOISE * np.abs(array).max()]
        if not moving.size or (length - 3) * moving.shape[1] < LEAST:
            continue
        if (moving.shape[1] * 2 < rows.shape[1]) and length < 16:
            continue
        if _is_affine(moving):
            return "table", "its elements are an arithmetic progression of their index"
        if length >= 8 and _is_polynomial(moving) and not _window(array):
            return "table", "its elements are polynomials of their index"
        if _recurs(moving) and (array.ndim > 1 or not _window(array)):
            return "table", "its elements are sinusoids or powers of their index"
    return None


def _short_table(array: np.ndarray) -> tuple[str, str] | None:
    """Four or five numbers prove a progression where it is exact to the last bit: 1, 2, 4, 8."""
    row = array.reshape(-1)
    if row.size != max(array.shape) or row.size > 5 or not row.all():
        return None
    steps, ratios = np.diff(row), row[1:] / row[:-1]
    if (steps == steps[0]).all() and steps[0]:
        return "table", "its elements are an arithmetic progression of their index"
    if (ratios == ratios[0]).all() and ratios[0] != 1:
        return "table", "its elements are sinusoids or powers of their index"
    return None


def _distances(array: np.ndarray) -> tuple[str, str] | None:
    """What attention adds for the distance of two places: one number along every diagonal, and several diagonals."""
    if array.ndim < 2 or array.shape[-1] != array.shape[-2] or array.shape[-1] < 4:
        return None
    near = ROUNDING * np.abs(array).max()
    if not (np.abs(array[..., 1:, 1:] - array[..., :-1, :-1]) <= near).all():
        return None
    # what the diagonals hold: the first row, and the first column
    rows, columns = array[..., 0, 1:], array[..., 1:, 0]
    if not (rows.any() or columns.any()) or not np.ptp(array, axis=(-2, -1)).any():
        return None  # a multiple of the identity; matrices of equal elements
    steps = [np.diff(side, axis=-1) for side in (rows, columns)]
    if not all(((d >= 0).all(-1) | (d <= 0).all(-1)).all() for d in steps):
        return None  # up and down with the distance: learned
    return "table", "its elements depend on the distance of their two indices alone"


def _is_affine(rows: np.ndarray) -> bool:
    steps = np.diff(rows, axis=0)
    return bool((np.abs(steps - steps[:1]) <= _near(rows)).all())


def _is_polynomial(rows: np.ndarray) -> bool:
    """Of degree two at most: third differences are the rounding of the elements."""
    return bool((np.abs(np.diff(rows, n=3, axis=0)) <= ROUNDING * np.abs(rows).max(0)).all())


def _recurs(rows: np.ndarray) -> bool:
    middle, around = rows[1:-1], rows[2:] + rows[:-2]
    c = (middle * around).sum(0) / np.maximum((middle * middle).sum(0), 1e-300)
    return bool((np.abs(around - c * middle) <= 10 * _near(rows)).all())


def _near(rows: np.ndarray) -> np.ndarray:
    """How far off a column's elements may be."""
    return NEAR * np.ptp(rows, axis=0) + ROUNDING * np.abs(rows).max(0)


def _window(array: np.ndarray) -> tuple[str, str] | None:
    """Windows and windowed bases: every row along an axis is its own mirror image, up to the sign."""
    for axis, length in enumerate(array.shape):
        if not 16 <= length <= MOST * 64:
            continue
        part = array[tuple(slice(None if i == axis else 16) for i in range(array.ndim))]
        rows = np.moveaxis(np.asarray(part, np.float64), axis, 0).reshape(length, -1)
        near = np.maximum(_near(rows), NOISE * np.abs(rows).max())
        for part in (rows, rows[1:]):  # symmetric, and as one period
            back = part[::-1]
            even, odd = (np.abs(part - back) <= near).all(0), (np.abs(part + back) <= near).all(0)
            if (even | odd).all() and _varied(part):
                return "window", "its elements mirror each other, as those of a window function do"
    return None


def _varied(rows: np.ndarray) -> bool:
    """More than a few numbers: a corner of zeros or a diagonal mirrors by chance."""
    if not rows.any():
        return False
    return len(np.unique(np.round(rows / np.abs(rows).max(), 9))) >= min(8, rows.shape[0] // 2)


def _filters(array: np.ndarray) -> tuple[str, str] | None:
    """Banks of triangular filters: nothing is negative, most is exactly 0, and the rest differs."""
    if array.ndim != 2 or array.size < 64 or (array < 0).any():
        return None
    kept = array[array != 0]
    if kept.size * 2 > array.size or len(np.unique(kept)) < kept.size // 4 + 2:
        return None
    edges = sum(((row != 0)[1:] != (row != 0)[:-1]).sum() > 2 for row in array)
    edges_t = sum(((row != 0)[1:] != (row != 0)[:-1]).sum() > 2 for row in array.T)
    if min(edges, edges_t):
        return None
    return "filters", "its rows are bands of positive numbers, as a filter bank has them"


def _written(array: np.ndarray) -> tuple[str, str] | None:
    """Anchors, say: most of them different, each a number of few digits; weights that are rounded repeat."""
    different = len(np.unique(array))
    if not 6 <= array.size <= 4096 or different < 3 or different * 3 < array.size * 2:
        return None
    if not all(is_round(float(x), 4) for x in array.flat):
        return None
    return "written", "its elements are numbers of few digits, as somebody writes them down"


def _grid(array: np.ndarray) -> tuple[str, str] | None:
    """Cells, anchors and strides of detectors: few numbers, equally spaced, each many times."""
    if array.size < 32:
        return None
    unique = np.unique(array)
    if not 3 <= len(unique) <= array.size // 4:
        return None
    gaps = np.diff(unique)
    units = gaps / gaps.min()
    even = (np.abs(units - np.round(units)) <= 0.01).all() and units.max() <= len(unique)
    return ("grid", "its elements are the points of a grid") if even else None
