"""Y = x̂·scale with x̂ = X·inv, inv = 1/√(mean(X²) + epsilon): LayerNormalization without the mean."""

from reference.layer_normalization_grad import gradients, rows_and_columns


def simplified_layer_normalization_grad(Y_grad, X, scale, inv_std_var, added=0.0, *, axis=-1):
    split = rows_and_columns(X, axis)
    inv = inv_std_var.reshape(-1, 1)
    dx, dscale, _ = gradients(
        Y_grad.reshape(split), X.reshape(split) * inv, scale.reshape(-1), inv, centred=False
    )
    return dx.reshape(X.shape) + added, dscale.reshape(scale.shape)
