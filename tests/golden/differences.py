"""Where onnxgrad differs from onnxruntime-training-cpu 1.19.2, and why. Read by the tests and by docs/accuracy.md."""

_LIMIT = "the old kernel gives NaN (inf·0); onnxgrad gives the limit, dY or 0"

DIFFERENCES: dict[str, dict[str, str]] = {
    "ConvGrad": {
        "auto_pad SAME_UPPER, 2-D size 7x8, kernel 3x3, strides 1x1": "the old kernel ignores auto_pad",
    },
    "QuickGeluGrad": {"infinity gives the limit": _LIMIT},
    "FakeQuant": {"infinities are clipped": "the old kernel clips +inf to the lowest integer"},
    "GeluGrad": {"infinity gives the limit": _LIMIT},
    "FastGeluGrad": {
        "infinity gives the limit": _LIMIT,
        "huge inputs": "x³ overflows in the old kernel and gives NaN; onnxgrad gives the limit, dY or 0",
    },
    "BiasGeluGrad_dX": {"infinity gives the limit": _LIMIT},
    "BiasFastGeluGrad_dX": {"infinity gives the limit": _LIMIT},
    "SoftmaxGrad_13": {
        "nearly one-hot": "the terms cancel: the old kernel is off by 8 % of what is left of them, onnxgrad by 1 %"
    },
    "DropoutGrad": dict.fromkeys(
        [
            "ratio 0.1, not training: dy itself",
            "ratio 0.5, not training: dy itself",
            "ratio 0.9, not training: dy itself",
            "no ratio, not training",
        ],
        "the old kernel scales by 1/(1 − ratio) whatever training_mode says",
    ),
    "BatchNormInternal": dict.fromkeys(
        ["an empty batch", "an empty image", "no vectors"],
        "the mean of no elements is NaN in the old kernel, and stays in the running statistics; onnxgrad takes 0",
    ),
}

# Instruction set, operator, case: listed above, and within the tolerance there, because without fused multiply-adds the
# roundings are others.
AGREES_BY_CHANCE = {("baseline", "SoftmaxGrad_13", "nearly one-hot")}

# What the old package does not do at all, by operator.
EXTENSIONS: dict[str, str] = {
    "ConvGrad": "auto_pad is obeyed; an empty batch gives zeros (the old kernel ends the process); any number of "
    "spatial dims; attributes are checked; the attribute `winograd_tile`",
    "every operator": "float64 (several old kernels are float32 only); shapes are checked (the old pointwise and "
    "softmax kernels accept mismatched shapes)",
    "SoftmaxGrad_13, LogSoftmaxGrad_13": "a tensor without elements along a middle axis, and a scalar, are refused "
    "by the old kernel",
    "BiasGeluGrad_dX, BiasFastGeluGrad_dX": "zero channels are refused by the old kernel",
    "LSTMTraining, LSTMGrad, GRUTraining, GRUGrad": "directions, lengths, activations, clip and input_forget (the old "
    "kernels run forward, sigmoid and tanh only); any subset of the outputs; with P as its last input LSTMGrad is "
    "exact, where the old gradient with peepholes is off by 3 to 36 %",
    "GatherNDGrad": "int32 indices and an empty batch are refused by the old kernel",
    "SliceGrad": "some negative steps are refused by the old kernel",
    "MaxPoolGrad, AveragePoolGrad": "the shape of X is an input, so that shapes may be dynamic (the old "
    "kernels take the static shape of their output); dilations, ceil_mode and more than three spatial dims",
    "BatchNormInternal": "outputs that nobody asks for can be left out; training_mode 0",
    "SoftmaxCrossEntropyLossGrad, SoftmaxCrossEntropyLossInternal": "an empty batch is refused by the old kernel",
    "ConvTransposeGrad, ResizeGrad": "the old package has the schemas, but no kernel for the CPU",
    "FakeQuant, FakeQuantGrad": "scales along an axis or in blocks (`axis`, `block_size`) and the pace at "
    "which they learn; the mask can be left out",
    "ClipGrad, ConvTraining, MaxPoolTraining, GroupNormalizationGrad, InstanceNormalizationGrad, BiasGeluGrad, "
    "GroupNormalizationTraining, SeededDropout, GeluTraining, HardSwishGrad, GateTraining, GateGrad, "
    "AttentionTraining, AttentionGrad, LinearTraining, LinearGrad, MatMulNBitsTraining, MatMulNBitsGrad, "
    "MatMulBnb4Training, MatMulBnb4Grad, LinearCrossEntropy, MatMulNBitsCrossEntropy, LearnedFakeQuantGrad, "
    "QuantObserver": "not in the old package",
}
