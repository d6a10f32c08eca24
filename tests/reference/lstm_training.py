"""LSTMTraining: the forward pass of ONNX LSTM that keeps what its gradient needs."""

from __future__ import annotations

import numpy as np

from reference.recurrent import activations_of, active_rows, clipped, float64, steps

DEFAULTS = ("Sigmoid", "Tanh", "Tanh")


def lstm_training(
    X, W, R, B=None, SL=None, H0=None, C0=None, P=None, *, activations=None, activation_alpha=None,
    activation_beta=None, clip=None, direction="forward", hidden_size=None, input_forget=0,
):  # fmt: skip
    """Return HAll, Ht, Ct, CAll, IOFC. Rows past their length are zero; the final state of an empty row is zero."""
    X, W, R, B, H0, C0, P = float64(X, W, R, B, H0, C0, P)
    S, N, _ = X.shape
    D, H = R.shape[0], R.shape[2]
    functions = activations_of(activations, activation_alpha, activation_beta, DEFAULTS, D)
    HAll, CAll = np.zeros((2, S, D, N, H))
    IOFC = np.zeros((S, D, N, 4 * H))
    Ht, Ct = np.zeros((2, D, N, H))
    for d in range(D):
        f, g, h = functions[d]
        h_prev = np.zeros((N, H)) if H0 is None else H0[d]
        c_prev = np.zeros((N, H)) if C0 is None else C0[d]
        p_i, p_o, p_f = np.zeros((3, H)) if P is None else P[d].reshape(3, H)
        bias = 0 if B is None else B[d, : 4 * H] + B[d, 4 * H :]
        for t in steps(direction, d, S):
            active = active_rows(SL, t, N)
            a_i, a_o, a_f, a_c = np.split(X[t] @ W[d].T + h_prev @ R[d].T + bias, 4, axis=1)
            i = f.value(clipped(a_i + p_i * c_prev, clip))
            forget = 1 - i if input_forget else f.value(clipped(a_f + p_f * c_prev, clip))
            c = g.value(clipped(a_c, clip))
            cell = forget * c_prev + i * c
            o = f.value(clipped(a_o + p_o * cell, clip))
            hidden = o * h.value(cell)
            IOFC[t, d] = np.where(active, np.hstack([i, o, forget, c]), 0)
            HAll[t, d] = np.where(active, hidden, 0)
            CAll[t, d] = np.where(active, cell, 0)
            Ht[d] = np.where(active, hidden, Ht[d])
            Ct[d] = np.where(active, cell, Ct[d])
            h_prev, c_prev = np.where(active, hidden, h_prev), np.where(active, cell, c_prev)
    return HAll, Ht, Ct, CAll, IOFC
