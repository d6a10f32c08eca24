"""GRUGrad: the chain rule through GRUTraining, one time step at a time, last step first."""

from __future__ import annotations

import numpy as np

from reference.gru_training import DEFAULTS
from reference.recurrent import activations_of, backwards, float64, last_cotangent, slope_under_clip


def gru_grad(
    X, W, R, B=None, SL=None, H0=None, HAll=None, ZRH=None, grad_HAll=None, grad_Ht=None, *, activations=None,
    activation_alpha=None, activation_beta=None, clip=None, direction="forward", hidden_size=None,
    linear_before_reset=0,
):  # fmt: skip
    """Return dX, dW, dR, dB, dH0."""
    X, W, R, B, H0, HAll, ZRH = float64(X, W, R, B, H0, HAll, ZRH)
    grad_HAll, grad_Ht = float64(grad_HAll, grad_Ht)
    S, N, _ = X.shape
    D, H = R.shape[0], R.shape[2]
    functions = activations_of(activations, activation_alpha, activation_beta, DEFAULTS, D)
    dX, dW, dR = np.zeros_like(X), np.zeros_like(W), np.zeros_like(R)
    dB, dH0 = np.zeros((D, 6 * H)), np.zeros((D, N, H))
    for d in range(D):
        f, g = functions[d]
        h_0 = np.zeros((N, H)) if H0 is None else H0[d]
        r_z, r_r, r_h = np.split(R[d], 3)
        rb_h = np.zeros(H) if B is None else B[d, 5 * H :]
        dh = last_cotangent(grad_Ht, d, SL, S, N, H)
        for t, active, state_before in backwards(direction, d, SL, S, N):
            h_prev = state_before(HAll, h_0)
            z, r, n = np.split(ZRH[t, d], 3, axis=1)

            dhidden = np.where(active, dh + (0 if grad_HAll is None else grad_HAll[t, d]), 0)
            da_z = dhidden * (h_prev - n) * slope_under_clip(f, z, clip)
            da_n = dhidden * (1 - z) * slope_under_clip(g, n, clip)
            if linear_before_reset:  # n = g(… + r (h_prev Rhᵀ + Rbh))
                dr = da_n * (h_prev @ r_h.T + rb_h)
                dlinear = da_n * r  # of h_prev Rhᵀ + Rbh
                dh_prev, d_r_h = dlinear @ r_h, dlinear.T @ h_prev
            else:  # n = g(… + (r h_prev) Rhᵀ + Rbh)
                dr = (da_n @ r_h) * h_prev
                dlinear = da_n
                dh_prev, d_r_h = (da_n @ r_h) * r, da_n.T @ (r * h_prev)
            da_r = dr * slope_under_clip(f, r, clip)
            dh_prev = dh_prev + da_z @ r_z + da_r @ r_r + dhidden * z

            da = np.hstack([da_z, da_r, da_n])
            dX[t] += da @ W[d]
            dW[d] += da.T @ X[t]
            dR[d] += np.vstack([da_z.T @ h_prev, da_r.T @ h_prev, d_r_h])
            dB[d] += np.hstack([da, da_z, da_r, dlinear]).sum(0)
            dh = np.where(active, dh_prev, dh)
        dH0[d] = dh
    return dX, dW, dR, dB, dH0
