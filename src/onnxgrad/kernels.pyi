"""Generated from the contracts in `native/ops` by tools/make_docs.py; do not edit."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np

Array = np.ndarray
Out = Array | Mapping[str, Array] | None

def get_num_threads() -> int: ...
def set_num_threads(count: int) -> None: ...
def at_most(threads: int | None) -> AbstractContextManager[None]: ...

def relu_grad(
    dY: Array,
    X: Array,
    *,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of Relu."""

def sigmoid_grad(
    dY: Array,
    Y: Array,
    *,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of Sigmoid."""

def tanh_grad(
    dY: Array,
    Y: Array,
    *,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of Tanh."""

def leaky_relu_grad(
    dY: Array,
    Y: Array,
    *,
    alpha: float = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of LeakyRelu."""

def clip_grad(
    dY: Array,
    X: Array,
    min: Array | None = ...,
    max: Array | None = ...,
    *,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of Clip (Relu6 among others) with respect to its input."""

def quick_gelu_grad(
    dY: Array,
    X: Array,
    *,
    alpha: float = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of QuickGelu, x·sigmoid(alpha·x)."""

def hard_swish_grad(
    dY: Array,
    X: Array,
    *,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of HardSwish, X·min(max(X/6 + 1/2, 0), 1)."""

def softmax_grad(
    dY: Array,
    Y: Array,
    *,
    axis: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of Softmax up to opset 12."""

def softmax_grad_13(
    dY: Array,
    Y: Array,
    *,
    axis: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of Softmax from opset 13 on."""

def log_softmax_grad(
    dY: Array,
    Y: Array,
    *,
    axis: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of LogSoftmax up to opset 12."""

def log_softmax_grad_13(
    dY: Array,
    Y: Array,
    *,
    axis: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of LogSoftmax from opset 13 on."""

def gelu_grad(
    dY: Array,
    X: Array,
    *,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of Gelu, x·Φ(x)."""

def fast_gelu_grad(
    dY: Array,
    X: Array,
    *,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of FastGelu, the tanh form of Gelu."""

def bias_gelu_grad_dx(
    dY: Array,
    X: Array,
    B: Array,
    *,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of BiasGelu, Gelu(X + B), for X."""

def bias_fast_gelu_grad_dx(
    dY: Array,
    X: Array,
    B: Array,
    *,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of BiasFastGelu, FastGelu(X + B), for X."""

def conv_training(
    X: Array,
    W: Array,
    B: Array | None = ...,
    *,
    auto_pad: str = ...,
    dilations: Iterable[int] | None = ...,
    group: int = ...,
    kernel_shape: Iterable[int] | None = ...,
    pads: Iterable[int] | None = ...,
    strides: Iterable[int] | None = ...,
    winograd_tile: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Conv, fast for weights that change with every step."""

class ConvGradResult(NamedTuple):
    dX: Array | None
    dW: Array | None
    dBias: Array | None

def conv_grad(
    dY: Array,
    X: Array,
    W: Array,
    *,
    auto_pad: str = ...,
    dilations: Iterable[int] | None = ...,
    group: int = ...,
    kernel_shape: Iterable[int] | None = ...,
    pads: Iterable[int] | None = ...,
    strides: Iterable[int] | None = ...,
    winograd_tile: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> ConvGradResult:
    """Gradient of Conv, in any number of spatial dims."""

class LayerNormalizationGradResult(NamedTuple):
    X_grad: Array
    scale_grad: Array
    bias_grad: Array

def layer_normalization_grad(
    Y_grad: Array,
    X: Array,
    scale: Array,
    mean: Array,
    inv_std_dev: Array,
    added: Array | None = ...,
    *,
    axis: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> LayerNormalizationGradResult:
    """Gradient of LayerNormalization."""

class SimplifiedLayerNormalizationGradResult(NamedTuple):
    X_grad: Array
    scale_grad: Array

def simplified_layer_normalization_grad(
    Y_grad: Array,
    X: Array,
    scale: Array,
    inv_std_var: Array,
    added: Array | None = ...,
    *,
    axis: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> SimplifiedLayerNormalizationGradResult:
    """Gradient of SimplifiedLayerNormalization (RMS normalisation)."""

class InvertibleLayerNormalizationGradResult(NamedTuple):
    X_grad: Array
    scale_grad: Array
    bias_grad: Array

def invertible_layer_normalization_grad(
    Y_grad: Array,
    Y: Array,
    scale: Array,
    bias: Array,
    inv_std_var: Array,
    *,
    axis: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> InvertibleLayerNormalizationGradResult:
    """Gradient of LayerNormalization from its output, so that X need not be kept."""

def gather_grad(
    shape: Array,
    indices: Array,
    dY: Array,
    *,
    axis: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of Gather."""

def gather_elements_grad(
    dY: Array,
    shape: Array,
    indices: Array,
    *,
    axis: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of GatherElements."""

def gather_nd_grad(
    shape: Array,
    indices: Array,
    update: Array,
    *,
    batch_dims: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of GatherND."""

def slice_grad(
    dY: Array,
    shape: Array,
    starts: Array,
    ends: Array,
    axes: Array | None = ...,
    steps: Array | None = ...,
    *,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of Slice."""

class MaxPoolTrainingResult(NamedTuple):
    Y: Array
    Indices: Array | None

def max_pool_training(
    X: Array,
    *,
    kernel_shape: Iterable[int] | None = ...,
    strides: Iterable[int] | None = ...,
    auto_pad: str = ...,
    pads: Iterable[int] | None = ...,
    activation: str = ...,
    dilations: Iterable[int] | None = ...,
    ceil_mode: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> MaxPoolTrainingResult:
    """MaxPool with the indices that MaxPoolGrad needs."""

def max_pool_grad(
    dY: Array,
    Indices: Array,
    shape: Array,
    Y: Array | None = ...,
    *,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of MaxPool, from the indices that it gave."""

def average_pool_grad(
    dY: Array,
    shape: Array,
    *,
    kernel_shape: Iterable[int] | None = ...,
    strides: Iterable[int] | None = ...,
    auto_pad: str = ...,
    pads: Iterable[int] | None = ...,
    count_include_pad: int = ...,
    dilations: Iterable[int] | None = ...,
    ceil_mode: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of AveragePool, in any number of spatial dims."""

class BatchNormInternalResult(NamedTuple):
    Y: Array
    running_mean: Array | None
    running_var: Array | None
    saved_mean: Array | None
    saved_inv_std: Array | None

def batch_norm_internal(
    X: Array,
    scale: Array,
    B: Array,
    input_mean: Array,
    input_var: Array,
    *,
    epsilon: float = ...,
    momentum: float = ...,
    training_mode: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> BatchNormInternalResult:
    """BatchNormalization for training, which keeps what its gradient needs."""

class BatchNormalizationGradResult(NamedTuple):
    X_grad: Array
    scale_grad: Array
    bias_grad: Array

def batch_normalization_grad(
    dY: Array,
    X: Array,
    scale: Array,
    mean: Array,
    variance: Array,
    *,
    epsilon: float = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> BatchNormalizationGradResult:
    """Gradient of BatchNormalization in training mode: the statistics are those of the batch."""

class GroupNormalizationGradResult(NamedTuple):
    dX: Array
    dscale: Array
    dbias: Array

def group_normalization_grad(
    dY: Array,
    X: Array,
    scale: Array,
    Y: Array | None = ...,
    added: Array | None = ...,
    *,
    epsilon: float = ...,
    num_groups: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> GroupNormalizationGradResult:
    """Gradient of GroupNormalization; the statistics are recomputed."""

def group_normalization_training(
    X: Array,
    scale: Array,
    bias: Array,
    *,
    activation: str = ...,
    epsilon: float = ...,
    num_groups: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """GroupNormalization, and with a group per channel InstanceNormalization."""

class InstanceNormalizationGradResult(NamedTuple):
    dX: Array
    dscale: Array
    dbias: Array

def instance_normalization_grad(
    dY: Array,
    X: Array,
    scale: Array,
    *,
    epsilon: float = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> InstanceNormalizationGradResult:
    """Gradient of InstanceNormalization; the statistics are recomputed."""

def softmax_cross_entropy_loss_grad(
    dY: Array,
    log_prob: Array,
    label: Array,
    weight: Array | None = ...,
    *,
    reduction: str = ...,
    ignore_index: int | None = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of SoftmaxCrossEntropyLoss for the scores."""

class SoftmaxCrossEntropyLossInternalResult(NamedTuple):
    output: Array
    log_prob: Array

def softmax_cross_entropy_loss_internal(
    scores: Array,
    labels: Array,
    weights: Array | None = ...,
    ignore_index: Array | None = ...,
    *,
    reduction: str = ...,
    output_type: int | None = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> SoftmaxCrossEntropyLossInternalResult:
    """SoftmaxCrossEntropyLoss with ignore_index as an input; keeps what its gradient needs."""

def softmax_cross_entropy_loss_internal_grad(
    dY: Array,
    log_prob: Array,
    label: Array,
    weight: Array | None = ...,
    ignore_index: Array | None = ...,
    bias: Array | None = ...,
    *,
    reduction: str = ...,
    output_type: int | None = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of SoftmaxCrossEntropyLossInternal for the scores; can add another tensor on the way."""

def dropout_grad(
    dy: Array,
    mask: Array,
    ratio: Array | None = ...,
    training_mode: Array | None = ...,
    *,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of Dropout, from the mask that it gave."""

class ConvTransposeGradResult(NamedTuple):
    dX: Array | None
    dW: Array | None
    dBias: Array | None

def conv_transpose_grad(
    dY: Array,
    X: Array,
    W: Array,
    *,
    auto_pad: str = ...,
    dilations: Iterable[int] | None = ...,
    group: int = ...,
    kernel_shape: Iterable[int] | None = ...,
    output_padding: Iterable[int] | None = ...,
    output_shape: Iterable[int] | None = ...,
    pads: Iterable[int] | None = ...,
    strides: Iterable[int] | None = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> ConvTransposeGradResult:
    """Gradient of ConvTranspose, in any number of spatial dims."""

def resize_grad(
    dY: Array,
    X: Array,
    roi: Array | None = ...,
    scales: Array | None = ...,
    sizes: Array | None = ...,
    *,
    mode: str = ...,
    coordinate_transformation_mode: str = ...,
    nearest_mode: str = ...,
    cubic_coeff_a: float = ...,
    exclude_outside: int = ...,
    extrapolation_value: float = ...,
    antialias: int = ...,
    axes: Iterable[int] | None = ...,
    keep_aspect_ratio_policy: str = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of Resize, every mode and coordinate transformation."""

class BiasGeluGradResult(NamedTuple):
    dX: Array
    dB: Array

def bias_gelu_grad(
    dY: Array,
    X: Array,
    B: Array,
    *,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> BiasGeluGradResult:
    """Gradient of BiasGelu, Gelu(X + B), for X and for the bias."""

class LSTMTrainingResult(NamedTuple):
    HAll: Array | None
    Ht: Array | None
    Ct: Array | None
    CAll: Array | None
    IOFC: Array | None

def lstm_training(
    X: Array,
    W: Array,
    R: Array,
    B: Array | None = ...,
    SL: Array | None = ...,
    H0: Array | None = ...,
    C0: Array | None = ...,
    P: Array | None = ...,
    *,
    activations: Iterable[str] | None = ...,
    activation_alpha: Iterable[float] | None = ...,
    activation_beta: Iterable[float] | None = ...,
    clip: float | None = ...,
    direction: str = ...,
    hidden_size: int | None = ...,
    input_forget: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> LSTMTrainingResult:
    """ONNX LSTM that also returns what its gradient needs."""

class LSTMGradResult(NamedTuple):
    dX: Array | None
    dW: Array | None
    dR: Array | None
    dB: Array | None
    dH0: Array | None
    dC0: Array | None
    dP: Array | None

def lstm_grad(
    X: Array,
    W: Array,
    R: Array,
    SL: Array | None,
    H0: Array | None,
    C0: Array | None,
    HAll: Array,
    CAll: Array,
    IOFC: Array,
    grad_HAll: Array | None = ...,
    grad_Ht: Array | None = ...,
    grad_Ct: Array | None = ...,
    P: Array | None = ...,
    *,
    activations: Iterable[str] | None = ...,
    activation_alpha: Iterable[float] | None = ...,
    activation_beta: Iterable[float] | None = ...,
    clip: float | None = ...,
    direction: str = ...,
    hidden_size: int | None = ...,
    input_forget: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> LSTMGradResult:
    """Gradient of LSTMTraining."""

class GRUTrainingResult(NamedTuple):
    HAll: Array | None
    Ht: Array | None
    ZRH: Array | None

def gru_training(
    X: Array,
    W: Array,
    R: Array,
    B: Array | None = ...,
    SL: Array | None = ...,
    H0: Array | None = ...,
    *,
    activations: Iterable[str] | None = ...,
    activation_alpha: Iterable[float] | None = ...,
    activation_beta: Iterable[float] | None = ...,
    clip: float | None = ...,
    direction: str = ...,
    hidden_size: int | None = ...,
    linear_before_reset: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> GRUTrainingResult:
    """ONNX GRU that also returns what its gradient needs."""

class GRUGradResult(NamedTuple):
    dX: Array | None
    dW: Array | None
    dR: Array | None
    dB: Array | None
    dH0: Array | None

def gru_grad(
    X: Array,
    W: Array,
    R: Array,
    B: Array | None,
    SL: Array | None,
    H0: Array | None,
    HAll: Array,
    ZRH: Array,
    grad_HAll: Array | None = ...,
    grad_Ht: Array | None = ...,
    *,
    activations: Iterable[str] | None = ...,
    activation_alpha: Iterable[float] | None = ...,
    activation_beta: Iterable[float] | None = ...,
    clip: float | None = ...,
    direction: str = ...,
    hidden_size: int | None = ...,
    linear_before_reset: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> GRUGradResult:
    """Gradient of GRUTraining."""

def seeded_dropout(
    X: Array,
    key: Array,
    *,
    ratio: float = ...,
    stream: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Dropout whose mask follows from a key, and its own gradient."""

def gelu_training(
    X: Array,
    *,
    form: str = ...,
    alpha: float = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gelu, its tanh form, X·sigmoid(alpha·X), and HardSwish: X times a gate of X."""

def gate_training(
    X: Array,
    *,
    axis: int = ...,
    form: str = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """A gate: one half of an axis through the sigmoid of the other."""

def gate_grad(
    dY: Array,
    X: Array,
    *,
    axis: int = ...,
    form: str = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of a gate: both halves in one pass."""

class AttentionTrainingResult(NamedTuple):
    Y: Array
    LSE: Array

def attention_training(
    Q: Array,
    K: Array | None = ...,
    V: Array | None = ...,
    mask: Array | None = ...,
    key: Array | None = ...,
    *,
    layout: str = ...,
    scale: float = ...,
    causal: int = ...,
    ratio: float = ...,
    stream: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> AttentionTrainingResult:
    """Attention in one operator, without the matrix of its scores; keeps what its gradient needs."""

class AttentionGradResult(NamedTuple):
    dQ: Array
    dK: Array | None
    dV: Array | None
    dmask: Array | None

def attention_grad(
    dY: Array,
    Y: Array,
    LSE: Array,
    Q: Array,
    K: Array | None = ...,
    V: Array | None = ...,
    mask: Array | None = ...,
    key: Array | None = ...,
    *,
    layout: str = ...,
    scale: float = ...,
    causal: int = ...,
    ratio: float = ...,
    stream: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> AttentionGradResult:
    """Gradient of AttentionTraining; the weights are computed anew, block by block."""

class FakeQuantResult(NamedTuple):
    output: Array
    mask: Array | None

def fake_quant(
    input: Array,
    scale: Array,
    zero_point: Array,
    *,
    quant_min: int = ...,
    quant_max: int = ...,
    axis: int = ...,
    block_size: int = ...,
    scale_gradient: str = ...,
    batched: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> FakeQuantResult:
    """Quantises to integers and back: what a quantised model will make of a tensor."""

def fake_quant_grad(
    dY: Array,
    gradient_mask: Array,
    *,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Gradient of FakeQuant, straight through the rounding, from the mask that it gave."""

class LearnedFakeQuantGradResult(NamedTuple):
    dX: Array | None
    dscale: Array | None
    dzero_point: Array | None

def learned_fake_quant_grad(
    dY: Array,
    input: Array,
    scale: Array,
    zero_point: Array | None = ...,
    *,
    quant_min: int = ...,
    quant_max: int = ...,
    axis: int = ...,
    block_size: int = ...,
    grad_factor: float = ...,
    scale_gradient: str = ...,
    batched: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> LearnedFakeQuantGradResult:
    """Gradient of FakeQuant for its input and for scales and zero points that are learned (LSQ, LSQ+)."""

class QuantObserverResult(NamedTuple):
    new_low: Array
    new_high: Array
    scale: Array
    zero_point: Array

def quant_observer(
    X: Array,
    low: Array,
    high: Array,
    observe: Array,
    *,
    quant_min: int = ...,
    quant_max: int = ...,
    axis: int = ...,
    block_size: int = ...,
    symmetric: int = ...,
    momentum: float = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> QuantObserverResult:
    """Follows the range of a tensor, and says which scale and zero point cover it."""

def linear_training(
    X: Array,
    W: Array,
    B: Array | None = ...,
    added: Array | None = ...,
    *,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """A linear layer whose weights change with every step."""

class LinearGradResult(NamedTuple):
    dX: Array | None
    dW: Array | None
    dB: Array | None

def linear_grad(
    dY: Array,
    X: Array,
    W: Array,
    added: Array | None = ...,
    *,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> LinearGradResult:
    """Gradient of a linear layer, Y = X·W + B. Rows of dY that are all zero (padding, ignored labels) take part in no product."""

def mat_mul_n_bits_training(
    A: Array,
    B: Array,
    scales: Array,
    zero_points: Array | None = ...,
    zeros: Array | None = ...,
    *,
    K: int = ...,
    N: int = ...,
    bits: int = ...,
    block_size: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """MatMulNBits with nothing rounded but W."""

def mat_mul_n_bits_grad(
    dY: Array,
    B: Array,
    scales: Array,
    zero_points: Array | None = ...,
    zeros: Array | None = ...,
    *,
    K: int = ...,
    N: int = ...,
    bits: int = ...,
    block_size: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Input gradient of MatMulNBits, whose W is frozen."""

def mat_mul_bnb4_training(
    A: Array,
    B: Array,
    absmax: Array,
    *,
    K: int = ...,
    N: int = ...,
    quant_type: int = ...,
    block_size: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """MatMulBnb4 with W unpacked a panel at a time."""

def mat_mul_bnb4_grad(
    dY: Array,
    B: Array,
    absmax: Array,
    *,
    K: int = ...,
    N: int = ...,
    quant_type: int = ...,
    block_size: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> Array:
    """Input gradient of MatMulBnb4, whose W is frozen."""

class LinearCrossEntropyResult(NamedTuple):
    loss: Array
    dX: Array | None

def linear_cross_entropy(
    X: Array,
    labels: Array,
    W: Array,
    ignore_index: Array | None = ...,
    *,
    transB: int = ...,
    reduction: str = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> LinearCrossEntropyResult:
    """The last product of a model and its cross entropy, some rows at a time: the scores of a large vocabulary never exist as a whole."""

class MatMulNBitsCrossEntropyResult(NamedTuple):
    loss: Array
    dX: Array | None

def mat_mul_n_bits_cross_entropy(
    X: Array,
    labels: Array,
    B: Array,
    scales: Array,
    zero_points: Array | None = ...,
    zeros: Array | None = ...,
    ignore_index: Array | None = ...,
    *,
    reduction: str = ...,
    K: int = ...,
    N: int = ...,
    bits: int = ...,
    block_size: int = ...,
    outputs: Iterable[str] | None = ...,
    out: Out = ...,
) -> MatMulNBitsCrossEntropyResult:
    """LinearCrossEntropy with a matrix in small integers, as MatMulNBits has it."""
