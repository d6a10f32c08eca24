"""GRUTraining: the forward pass of ONNX GRU that keeps what its gradient needs."""

from __future__ import annotations

import numpy as np

from reference.recurrent import activations_of, active_rows, clipped, float64, steps

DEFAULTS = ("Sigmoid", "Tanh")


def gru_training(
    X, W, R, B=None, SL=None, H0=None, *, activations=None, activation_alpha=None, activation_beta=None,
    clip=None, direction="forward", hidden_size=None, linear_before_reset=0,
):  # fmt: skip
    """Return HAll, Ht, ZRH. Rows past their length are zero; the final state of an empty row is zero."""
    X, W, R, B, H0 = float64(X, W, R, B, H0)
    S, N, _ = X.shape
    D, H = R.shape[0], R.shape[2]
    functions = activations_of(activations, activation_alpha, activation_beta, DEFAULTS, D)
    HAll, ZRH, Ht = np.zeros((S, D, N, H)), np.zeros((S, D, N, 3 * H)), np.zeros((D, N, H))
    for d in range(D):
        f, g = functions[d]
        h_prev = np.zeros((N, H)) if H0 is None else H0[d]
        w_z, w_r, w_h = np.split(W[d], 3)
        r_z, r_r, r_h = np.split(R[d], 3)
        wb_z, wb_r, wb_h, rb_z, rb_r, rb_h = np.zeros((6, H)) if B is None else B[d].reshape(6, H)
        for t in steps(direction, d, S):
            active = active_rows(SL, t, N)
            z = f.value(clipped(X[t] @ w_z.T + h_prev @ r_z.T + wb_z + rb_z, clip))
            r = f.value(clipped(X[t] @ w_r.T + h_prev @ r_r.T + wb_r + rb_r, clip))
            before, after = r * (h_prev @ r_h.T + rb_h), (r * h_prev) @ r_h.T + rb_h
            recurrent = before if linear_before_reset else after
            n = g.value(clipped(X[t] @ w_h.T + recurrent + wb_h, clip))
            hidden = (1 - z) * n + z * h_prev
            ZRH[t, d] = np.where(active, np.hstack([z, r, n]), 0)
            HAll[t, d] = np.where(active, hidden, 0)
            Ht[d] = np.where(active, hidden, Ht[d])
            h_prev = np.where(active, hidden, h_prev)
    return HAll, Ht, ZRH
