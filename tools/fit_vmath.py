"""Print the polynomial coefficients of native/core/vmath.h, with the error of each fit.

Chebyshev interpolation in 60 digits, then conversion to powers; near enough to minimax that the rounding of
the coefficients decides the last bit. Run: `python tools/fit_vmath.py` (needs mpmath).
"""

from __future__ import annotations

import mpmath as mp
import numpy as np

mp.mp.dps = 60


def chebyshev_fit(f, low, high, degree):
    """Coefficients, lowest power first, of the polynomial through the Chebyshev nodes of [low, high]."""
    n = degree + 1
    nodes = [mp.cos(mp.pi * (2 * k + 1) / (2 * n)) for k in range(n)]
    points = [(high + low) / 2 + (high - low) / 2 * x for x in nodes]
    matrix = mp.matrix(n, n)
    for row, point in enumerate(points):
        for power in range(n):
            matrix[row, power] = point**power
    return list(mp.lu_solve(matrix, mp.matrix([f(p) for p in points])))


def worst_error(f, coefficients, low, high, weight):
    """max |polynomial - f| * weight over 2,000 points."""
    worst = mp.mpf(0)
    for k in range(2001):
        x = low + (high - low) * mp.mpf(k) / 2000
        value = sum(c * x**i for i, c in enumerate(coefficients))
        worst = max(worst, abs(value - f(x)) * weight(x))
    return float(worst)


def show(name, coefficients, error, dtype):
    rounded = [dtype(float(c)) for c in coefficients]
    suffix = "f" if dtype is np.float32 else ""
    print(f"{name} [{dtype.__name__}]  error {error:.2e}")
    print("  " + ", ".join(f"{c!s}{suffix}" for c in rounded))


def exp_tail(r):
    """q(r) in exp(r) = 1 + r + r² q(r)."""
    return mp.nsum(lambda k: r**k / mp.factorial(k + 2), [0, 25])


def exp2_slope(r):
    """(2^r - 1)/r."""
    return mp.nsum(lambda k: mp.log(2) ** (k + 1) * r**k / mp.factorial(k + 1), [0, 25])


def mills(t):
    """exp(t²/2) Q(t), Q the upper tail of the normal distribution."""
    return mp.exp(t * t / 2) * mp.erfc(t / mp.sqrt(2)) / 2


def erf_over_x(z):
    """erf(x)/x as a function of z = x²."""
    return 2 / mp.sqrt(mp.pi) if z == 0 else mp.erf(mp.sqrt(z)) / mp.sqrt(z)


def fit_rational_mills(largest, above, below):
    """mills(t) ≈ N(t)/D(t), D(0) = 1, by least squares with weights that grow where the error is large; and
    N(t) - t/√(2π) D(t), from the rounded D. Enough for float32, where t itself is the better variable: near
    t = 0, where the results are largest, N and D then have small terms only."""
    nodes = (1 - np.cos((np.arange(400) + 0.5) / 400 * np.pi)) / 2 * (largest / (largest + 2))
    t = 2 * nodes / (1 - nodes)
    f = np.array([float(mills(mp.mpf(x))) for x in t])
    weight, denominator, best = np.ones(400), np.ones(400), (np.inf, None)
    for _ in range(60):
        scale = 1 / (f * denominator)
        columns = [t**k * scale for k in range(above + 1)]
        columns += [-f * t**k * scale for k in range(1, below + 1)]
        matrix = np.stack(columns, 1)
        widest, root = np.abs(matrix).max(0), np.sqrt(weight)
        target = f * scale * root
        c = np.linalg.lstsq(matrix / widest * root[:, None], target, rcond=1e-16)[0] / widest
        denominator = 1 + sum(c[above + k] * t**k for k in range(1, below + 1))
        error = np.abs(sum(c[k] * t**k for k in range(above + 1)) / denominator / f - 1)
        if error.max() < best[0]:
            best = (error.max(), c)
        weight = weight * (error / error.mean() + 1e-3) ** 0.7
        weight /= weight.mean()
    numerator = [float(np.float32(x)) for x in best[1][: above + 1]]
    divisor = [1.0] + [float(np.float32(x)) for x in best[1][above + 1 :]]
    tail = np.zeros(below + 2)
    tail[: above + 1] += numerator
    tail[1:] -= np.array(divisor) / np.sqrt(2 * np.pi)
    for name, coefficients in (("mills", numerator), ("mills_below", divisor), ("gelu_tail", tail)):
        show(name, coefficients, best[0], np.float32)


def fit_mills(center, largest, degree, dtype):
    """Polynomial in s = (t - center)/(t + center): erfc-like functions are nearly polynomial in s."""

    def f(s):
        return mills(center * (1 + s) / (1 - s))

    high = (mp.mpf(largest) - center) / (mp.mpf(largest) + center)
    coefficients = chebyshev_fit(f, mp.mpf(-1), high, degree)
    error = worst_error(f, coefficients, mp.mpf(-1), high, lambda s: 1 / f(s))
    show(
        f"mills, s = (t - {center})/(t + {center}), t <= {largest}, degree {degree}",
        coefficients,
        error,
        dtype,
    )


def main():
    half_ln2 = mp.log(2) / 2 * mp.mpf("1.0001")
    for degree, dtype in ((4, np.float32), (9, np.float64)):
        c = chebyshev_fit(exp_tail, -half_ln2, half_ln2, degree)
        error = worst_error(exp_tail, c, -half_ln2, half_ln2, lambda r: r * r)
        show(f"exp tail, degree {degree}", c, error, dtype)
    half = mp.mpf("0.50005")
    for degree, dtype in ((5, np.float32), (10, np.float64)):
        c = chebyshev_fit(exp2_slope, -half, half, degree)
        error = worst_error(exp2_slope, c, -half, half, abs)
        show(f"exp2 slope, degree {degree}", c, error, dtype)
    fit_rational_mills(14.5, 4, 5)
    fit_mills(4, 39, 23, np.float64)
    for degree, dtype in ((6, np.float32), (14, np.float64)):
        c = chebyshev_fit(erf_over_x, mp.mpf(0), mp.mpf(1), degree)
        error = worst_error(erf_over_x, c, mp.mpf(0), mp.mpf(1), lambda z: 1)
        show(f"erf(x)/x in x², |x| <= 1, degree {degree}", c, error, dtype)


if __name__ == "__main__":
    main()
