"""As LayerNormalization's, with x̂ = (Y − bias) / scale taken back from the output."""

from reference.layer_normalization_grad import gradients, rows_and_columns


def invertible_layer_normalization_grad(Y_grad, Y, scale, bias, inv_std_var, *, axis=-1):
    split = rows_and_columns(Y, axis)
    xhat = (Y.reshape(split) - bias.reshape(-1)) / scale.reshape(-1)
    dx, dscale, dbias = gradients(
        Y_grad.reshape(split), xhat, scale.reshape(-1), inv_std_var.reshape(-1, 1)
    )
    return dx.reshape(Y.shape), dscale.reshape(scale.shape), dbias.reshape(scale.shape)
