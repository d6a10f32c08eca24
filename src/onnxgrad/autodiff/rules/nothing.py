"""Operators whose gradient is zero, and operators that have none to give."""

from onnxgrad.autodiff.rule import no_gradient, unsupported

no_gradient(
    "ArgMax", "ArgMin", "Ceil", "Floor", "Round", "Sign", "Hardmax", "Equal", "Greater",
    "GreaterOrEqual", "Less", "LessOrEqual", "IsInf", "IsNaN", "NonZero", "EyeLike",
    because="piecewise constant: the derivative is zero wherever it exists",
)  # fmt: skip
no_gradient(
    "Shape", "Size", "ConstantOfShape", "RandomNormalLike", "RandomUniformLike",
    "SequenceLength", "OptionalHasElement",
    because="depends on the shape of its input only, not on its values",
)  # fmt: skip
no_gradient(
    "And", "Or", "Xor", "Not", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor",
    "StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch", "TfIdfVectorizer",
    "MatMulInteger", "ConvInteger",
    because="works on integers, booleans or strings, which have no derivative",
)  # fmt: skip
no_gradient(
    "Constant", "RandomNormal", "RandomUniform", "SequenceEmpty",
    "BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix",
    because="depends on no tensor that has a derivative",
)  # fmt: skip
unsupported(
    "Bernoulli", "Multinomial",
    because="draws a random sample, whose derivative is not that of its distribution",
    instead="take the sample out of the path to the parameters, or pass it in as an input",
)  # fmt: skip
unsupported(
    "NonMaxSuppression", "Unique",
    because="selects by comparing, which has no useful derivative",
    instead="exclude it from the graph between the loss and the parameters",
)  # fmt: skip
unsupported(
    "SequenceMap",
    because="runs its body a number of times that only the run knows",
    instead="unroll it when the model is exported, or leave the parameters before it out of wrt",
)  # fmt: skip
unsupported(
    "DeformConv", "MaxRoiPool", "STFT", "TensorScatter", "Optional",
    because="has no gradient in onnxgrad",
    instead="leave the parameters before it out of wrt, or write a rule with onnxgrad.rule",
)  # fmt: skip
unsupported(
    "ImageDecoder",
    because="decodes bytes, which have no derivative",
    instead="decode the image before the model",
)
_ON_INTEGERS = dict(
    because="computes on quantised integers",
    instead="train the float model, or one with QuantizeLinear and DequantizeLinear pairs",
)
unsupported("QLinearConv", "QLinearMatMul", "DynamicQuantizeLinear", **_ON_INTEGERS)
unsupported(
    "QAttention", "QEmbedLayerNormalization", "QGemm", "QLinearAdd", "QLinearAveragePool", "QLinearConcat",
    "QLinearConv", "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearMul", "QLinearReduceMean",
    "QLinearSigmoid", "QLinearSoftmax", "QLinearWhere", "DynamicQuantizeLSTM",
    domain="com.microsoft", **_ON_INTEGERS,
)  # fmt: skip
unsupported(
    "TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor",
    domain="ai.onnx.ml",
    because="is an ensemble of decision trees, constant between its thresholds: no gradient can train it",
    instead="fit it anew with the library that made it (scikit-learn, LightGBM, XGBoost), or train what follows it",
)  # fmt: skip
unsupported(
    "LinearClassifier", "LinearRegressor", "SVMClassifier", "SVMRegressor",
    domain="ai.onnx.ml",
    because="has its numbers in attributes, and has no gradient in onnxgrad",
    instead="convert it to MatMul and Add, or fit it anew with the library that made it",
)  # fmt: skip
unsupported(
    "Conv", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", "ReorderInput", "ReorderOutput",
    "Upsample",
    domain="com.microsoft.nchwc",
    because="has its numbers in the order of one machine's registers, as onnxruntime's highest level of "
    "optimisation writes them",
    instead="train the original model, or save the optimised one at the level ORT_ENABLE_EXTENDED",
)  # fmt: skip
