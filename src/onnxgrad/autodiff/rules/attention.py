"""Attention as onnxgrad's own operator has it."""

from onnxgrad.autodiff.rule import rule


@rule("AttentionTraining", domain="com.microsoft", inputs="Q K V mask key", outputs="Y LSE", wrt="Q K V mask",
      stop="key")  # fmt: skip
def attention_training(op, Q, K, V, mask, key, Y, LSE, dY, *, attrs, need):
    """One kernel gives all gradients; it computes the weights anew from LSE."""
    flags = [True, *(name in need for name in ("K", "V", "mask"))]
    gradients = op.AttentionGrad(dY, Y, LSE, Q, K, V, mask, key, **attrs, outputs=flags)
    return dict(zip(("Q", "K", "V", "mask"), gradients, strict=True))
