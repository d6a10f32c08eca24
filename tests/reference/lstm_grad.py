"""LSTMGrad: the chain rule through LSTMTraining, one time step at a time, last step first."""

from __future__ import annotations

import numpy as np

from reference.lstm_training import DEFAULTS
from reference.recurrent import activations_of, backwards, float64, last_cotangent, slope_under_clip


def lstm_grad(
    X, W, R, SL=None, H0=None, C0=None, HAll=None, CAll=None, IOFC=None, grad_HAll=None, grad_Ht=None,
    grad_Ct=None, P=None, *, activations=None, activation_alpha=None, activation_beta=None, clip=None,
    direction="forward", hidden_size=None, input_forget=0,
):  # fmt: skip
    """Return dX, dW, dR, dB, dH0, dC0, dP. Without P the peepholes are taken as zero, as in the old kernel."""
    X, W, R, H0, C0, HAll, CAll, IOFC, P = float64(X, W, R, H0, C0, HAll, CAll, IOFC, P)
    grad_HAll, grad_Ht, grad_Ct = float64(grad_HAll, grad_Ht, grad_Ct)
    S, N, _ = X.shape
    D, H = R.shape[0], R.shape[2]
    functions = activations_of(activations, activation_alpha, activation_beta, DEFAULTS, D)
    dX, dW, dR, dP = np.zeros_like(X), np.zeros_like(W), np.zeros_like(R), np.zeros((D, 3 * H))
    dB, dH0, dC0 = np.zeros((D, 8 * H)), np.zeros((D, N, H)), np.zeros((D, N, H))
    for d in range(D):
        f, g, h = functions[d]
        p_i, p_o, p_f = np.zeros((3, H)) if P is None else P[d].reshape(3, H)
        h_0 = np.zeros((N, H)) if H0 is None else H0[d]
        c_0 = np.zeros((N, H)) if C0 is None else C0[d]
        dh = last_cotangent(grad_Ht, d, SL, S, N, H)
        dc = last_cotangent(grad_Ct, d, SL, S, N, H)
        for t, active, state_before in backwards(direction, d, SL, S, N):
            h_prev, c_prev = state_before(HAll, h_0), state_before(CAll, c_0)
            i, o, forget, c = np.split(IOFC[t, d], 4, axis=1)
            cell = CAll[t, d]

            dhidden = dh + (0 if grad_HAll is None else grad_HAll[t, d])
            da_o = dhidden * h.value(cell) * slope_under_clip(f, o, clip)
            dcell = dc + dhidden * o * h.slope(h.value(cell)) + da_o * p_o
            dforget = dcell * c_prev
            di = dcell * c - (dforget if input_forget else 0)
            da_i = di * slope_under_clip(f, i, clip)
            da_f = np.zeros((N, H))
            if not input_forget:
                da_f = dforget * slope_under_clip(f, forget, clip)
            da_c = dcell * i * slope_under_clip(g, c, clip)
            dc_prev = dcell * forget + da_i * p_i + da_f * p_f

            da = np.where(active, np.hstack([da_i, da_o, da_f, da_c]), 0)
            dX[t] += da @ W[d]
            dW[d] += da.T @ X[t]
            dR[d] += da.T @ h_prev
            dB[d] += np.tile(da.sum(0), 2)
            da_i, da_o, da_f, _ = np.split(da, 4, axis=1)
            dP[d] += np.hstack([da_i * c_prev, da_o * cell, da_f * c_prev]).sum(0)
            dh = np.where(active, da @ R[d], dh)
            dc = np.where(active, dc_prev, dc)
        dH0[d], dC0[d] = dh, dc
    return dX, dW, dR, dB, dH0, dC0, dP
