"""The benchmark lines of the kernels that real models need: the shapes of a ResNet-50 with batch 8, of a BERT-base layer
(8 × 128 × 768, vocabulary 30,522) and of a U-Net (4 × 64 × 128 × 128).

`lines(bench, samples)` makes them with the constructor and the samples of lines.py, which holds the whole table.
"""

from __future__ import annotations

import numpy as np

aten = "torch.ops.aten"


_bert = (8, 128, 768)
_size = "size = tuple(shape.tolist())"
_stem, _late, _unet = (8, 64, 112, 112), (8, 512, 7, 7), (4, 64, 128, 128)


def _max_pool_indices(rng, planes, side, kernel):
    """Random places within windows of stride 2, as MaxPool would give them."""
    half = side // 2
    step = np.arange(half) * 2 - (kernel - 2)
    offset = rng.integers(0, kernel, (2, planes, half, half))
    rows, columns = (np.clip(s, 0, side - 1) for s in (step[:, None] + offset[0], step + offset[1]))
    flat = (np.arange(planes)[:, None, None] * side + rows) * side + columns
    return flat.reshape((8, 64, half, half) if planes == 512 else (4, 64, half, half))


def _batch_norm(stream, s, shape):
    c = shape[1]
    torch = f"{aten}.native_batch_norm_backward(dY, X, scale, None, None, mean, variance, True, 1e-5, [True] * 3)"
    return stream(
        "BatchNormalizationGrad", " × ".join(map(str, shape)), torch, dY=s.normal(*shape), X=s.normal(*shape), scale=s.uniform(c, low=0.5),
        mean=s.normal(c, spread=0.1), variance=s.uniform(c, low=0.9, high=1.1), epsilon=1e-5, target=1.0,
    )  # fmt: skip


def _layer_norm(stream, s):
    """A layer of BERT-base."""
    return [
        stream("LayerNormalizationGrad", "8 × 128 × 768", f"{aten}.native_layer_norm_backward(Y_grad, X, [768], mean, inv_std_dev, scale, bias, [True] * 3)",
                torch_setup="bias = torch.zeros(768)", Y_grad=s.normal(*_bert), X=s.normal(*_bert), scale=s.uniform(768, low=0.5), mean=s.normal(8, 128, 1, spread=0.1), inv_std_dev=s.uniform(8, 128, 1, low=0.9, high=1.1), target=1.0),
        stream("SimplifiedLayerNormalizationGrad", "8 × 128 × 768", None,
                Y_grad=s.normal(*_bert), X=s.normal(*_bert), scale=s.uniform(768, low=0.5), inv_std_var=s.uniform(8, 128, 1, low=0.9, high=1.1)),
        stream("InvertibleLayerNormalizationGrad", "8 × 128 × 768", None,
                Y_grad=s.normal(*_bert), Y=s.normal(*_bert), scale=s.uniform(768, low=0.5), bias=s.normal(768), inv_std_var=s.uniform(8, 128, 1, low=0.9, high=1.1)),
    ]  # fmt: skip


def _gather(stream, s):
    """Embeddings, labels, masked positions, heads."""
    return [
        stream("GatherGrad", "4096 tokens of 30522 × 768", f"{aten}.embedding_dense_backward(dY, indices, 30522, -1, False)",
                shape=s.exactly([30522, 768]), indices=s.integers(8, 512, high=30522), dY=s.normal(8, 512, 768), target=1.0),
        stream("GatherGrad", "1024 tokens of 30522 × 768", f"{aten}.embedding_dense_backward(dY, indices, 30522, -1, False)",
                shape=s.exactly([30522, 768]), indices=s.integers(8, 128, high=30522), dY=s.normal(8, 128, 768), target=1.0),
        stream("GatherElementsGrad", "1024 × 30522, 16 per row", "torch.zeros(size).scatter_add_(1, indices, dY)", torch_setup=_size,
                dY=s.normal(1024, 16), shape=s.exactly([1024, 30522]), indices=s.integers(1024, 16, high=30522), axis=1, target=1.0),
        stream("GatherNDGrad", "153 places of 8 × 128 × 768", "torch.zeros(size).index_put_((indices[:, 0], indices[:, 1]), update, accumulate=True)", torch_setup=_size,
                shape=s.exactly([8, 128, 768]), indices=lambda rng: rng.integers(0, [8, 128], (153, 2)), update=s.normal(153, 768), target=1.0),
        stream("SliceGrad", "half of 8 × 12 × 128 × 128", f"{aten}.slice_backward(dY, size, 3, 32, 96, 1)", torch_setup=_size,
                dY=s.normal(8, 12, 128, 64), shape=s.exactly([8, 12, 128, 128]), starts=s.exactly([32]), ends=s.exactly([96]), axes=s.exactly([3]), target=1.0),
        stream("SliceGrad", "first of 8 × 128 × 768", f"{aten}.slice_backward(dY, size, 1, 0, 1, 1)", torch_setup=_size,
                dY=s.normal(8, 1, 768), shape=s.exactly([8, 128, 768]), starts=s.exactly([0]), ends=s.exactly([1]), axes=s.exactly([1]), target=1.0),
    ]  # fmt: skip


def _normalization(stream, s):
    """ResNet-50 and U-Net."""
    return [
        *(_batch_norm(stream, s, shape) for shape in (_stem, (8, 256, 56, 56), _late)),
        stream("BatchNormInternal", "8 × 64 × 112 × 112", f"{aten}.native_batch_norm(X, scale, B, input_mean.clone(), input_var.clone(), True, 0.1, 1e-5)", outputs=("Y",),
                X=s.normal(*_stem), scale=s.uniform(64, low=0.5), B=s.normal(64), input_mean=s.normal(64), input_var=s.uniform(64, low=0.5, high=2.0), target=1.0),
        stream("GroupNormalizationTraining", "4 × 64 × 128 × 128, 32 groups", f"{aten}.native_group_norm(X, scale, bias, 4, 64, 128 * 128, 32, 1e-5)[0]",
                X=s.normal(*_unet), scale=s.uniform(64, low=0.5), bias=s.normal(64), num_groups=32, target=1.0),
        stream("GroupNormalizationGrad", "4 × 64 × 128 × 128, 32 groups", f"{aten}.native_group_norm_backward(dY, X, mean, inv, scale, 4, 64, 128 * 128, 32, [True] * 3)",
                torch_setup="_, mean, inv = torch.native_group_norm(X, scale, scale, 4, 64, 128 * 128, 32, 1e-5)",
                dY=s.normal(*_unet), X=s.normal(*_unet), scale=s.uniform(64, low=0.5), num_groups=32, target=1.0),
        stream("InstanceNormalizationGrad", "4 × 64 × 128 × 128", f"{aten}.native_group_norm_backward(dY, X, mean, inv, scale, 4, 64, 128 * 128, 64, [True] * 3)",
                torch_setup="_, mean, inv = torch.native_group_norm(X, scale, scale, 4, 64, 128 * 128, 64, 1e-5)",
                dY=s.normal(*_unet), X=s.normal(*_unet), scale=s.uniform(64, low=0.5), target=1.0),
    ]  # fmt: skip


def _pooling(stream, s):
    """ResNet-50 and U-Net."""
    return [
        stream("MaxPoolTraining", "8 × 64 × 112 × 112, 3x3 s2", f"{aten}.max_pool2d_with_indices(X, [3, 3], [2, 2], [1, 1], [1, 1], False)[0]",
                X=s.normal(8, 64, 112, 112), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], stock="MaxPool", target=1.0),
        stream("MaxPoolTraining", "4 × 64 × 128 × 128, 2x2 s2", f"{aten}.max_pool2d_with_indices(X, [2, 2], [2, 2], [0, 0], [1, 1], False)[0]",
                X=s.normal(4, 64, 128, 128), kernel_shape=[2, 2], strides=[2, 2], stock="MaxPool", target=1.0),
        stream("MaxPoolGrad", "8 × 64 × 112 × 112, 3x3 s2", f"{aten}.max_pool2d_with_indices_backward(dY, X, [3, 3], [2, 2], [1, 1], [1, 1], False, plane)",
                torch_setup="X = torch.zeros(tuple(shape.tolist())); plane = Indices % (112 * 112)",
                dY=s.normal(8, 64, 56, 56), Indices=lambda rng: _max_pool_indices(rng, 512, 112, 3), shape=s.exactly([8, 64, 112, 112]), target=1.0),
        stream("MaxPoolGrad", "4 × 64 × 128 × 128, 2x2 s2", f"{aten}.max_pool2d_with_indices_backward(dY, X, [2, 2], [2, 2], [0, 0], [1, 1], False, plane)",
                torch_setup="X = torch.zeros(tuple(shape.tolist())); plane = Indices % (128 * 128)",
                dY=s.normal(4, 64, 64, 64), Indices=lambda rng: _max_pool_indices(rng, 256, 128, 2), shape=s.exactly([4, 64, 128, 128]), target=1.0),
        stream("AveragePoolGrad", "8 × 2048 × 7 × 7, all", f"{aten}.avg_pool2d_backward(dY, X, [7, 7], [1, 1], [0, 0], False, False, None)",
                torch_setup="X = torch.zeros(tuple(shape.tolist()))", dY=s.normal(8, 2048, 1, 1), shape=s.exactly([8, 2048, 7, 7]), kernel_shape=[7, 7], target=1.0),
        stream("AveragePoolGrad", "4 × 64 × 128 × 128, 2x2 s2", f"{aten}.avg_pool2d_backward(dY, X, [2, 2], [2, 2], [0, 0], False, False, None)",
                torch_setup="X = torch.zeros(tuple(shape.tolist()))", dY=s.normal(4, 64, 64, 64), shape=s.exactly([4, 64, 128, 128]), kernel_shape=[2, 2], strides=[2, 2], target=1.0),
        stream("AveragePoolGrad", "4 × 64 × 128 × 128, 3x3 s1", f"{aten}.avg_pool2d_backward(dY, X, [3, 3], [1, 1], [1, 1], False, False, None)",
                torch_setup="X = torch.zeros(tuple(shape.tolist()))", dY=s.normal(4, 64, 128, 128), shape=s.exactly([4, 64, 128, 128]), kernel_shape=[3, 3], pads=[1, 1, 1, 1], target=1.0),
    ]  # fmt: skip


def _loss(stream, s):
    """The head of BERT-base: 1024 tokens, a vocabulary of 30,522."""
    scores, labels = (1024, 30522), s.integers(1024, high=30522)
    torch = f"{aten}._log_softmax_backward_data({aten}.nll_loss_backward(dY, log_prob, label, None, 1, -100, total), log_prob, 1, torch.float32)"
    return [
        stream("SoftmaxCrossEntropyLossGrad", "1024 × 30522", torch, torch_setup="total = torch.tensor(1024.0)",
               dY=s.exactly(1.0), log_prob=s.log_simplex(*scores), label=labels, target=1.0),
        stream("SoftmaxCrossEntropyLossInternalGrad", "1024 × 30522", torch, torch_setup="total = torch.tensor(1024.0)",
               dY=s.exactly(1.0), log_prob=s.log_simplex(*scores), label=labels, target=1.0),
        stream("SoftmaxCrossEntropyLossInternal", "1024 × 30522", "(lambda p: (torch.nn.functional.nll_loss(p, labels), p))(torch.log_softmax(scores, 1))",
               scores=s.normal(*scores), labels=labels, target=1.0),
        stream("DropoutGrad", "8 × 12 × 128 × 128", f"{aten}.native_dropout_backward(dy, mask, 1 / 0.9)",
               dy=s.normal(8, 12, 128, 128), mask=lambda rng: rng.random((8, 12, 128, 128)) < 0.9, ratio=s.exactly(0.1), target=1.0),
        stream("BiasGeluGrad", "1024 × 3072", f"(lambda d: (d, d.sum(0)))({aten}.gelu_backward(dY, X + B))",
               dY=s.normal(1024, 3072), X=s.normal(1024, 3072), B=s.normal(3072), target=1.0),
    ]  # fmt: skip


def _upscaling(stream, s):
    """The way up of a U-Net."""

    def resize(title, shape, scale, torch, **attributes):
        out = (*shape[:2], *(int(d * scale) for d in shape[2:]))
        return stream(
            "ResizeGrad",
            title,
            torch,
            dY=s.normal(*out),
            X=s.normal(*shape),
            scales=s.exactly(np.array([1, 1, scale, scale], np.float32)),
            target=1.0,
            **attributes,
        )

    def transposed(title, c, m, side, kernel, pad):
        torch = f"{aten}.convolution_backward(dY, X, W, [{m}], [2, 2], [{pad}, {pad}], [1, 1], True, [0, 0], 1, [True, True, True])"
        return stream(
            "ConvTransposeGrad",
            title,
            torch,
            dY=s.normal(4, m, 2 * side, 2 * side),
            X=s.normal(4, c, side, side),
            W=s.normal(c, m, kernel, kernel),
            strides=[2, 2],
            pads=[pad] * 4,
            target=1.2,
        )

    return [
        resize("4 × 64 × 64 × 64 ×2, linear", (4, 64, 64, 64), 2.0, f"{aten}.upsample_bilinear2d_backward(dY, [128, 128], [4, 64, 64, 64], False)", mode="linear"),
        resize("4 × 64 × 64 × 64 ×2, nearest", (4, 64, 64, 64), 2.0, f"{aten}.upsample_nearest2d_backward(dY, [128, 128], [4, 64, 64, 64])", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        resize("4 × 64 × 64 × 64 ×2, cubic", (4, 64, 64, 64), 2.0, f"{aten}.upsample_bicubic2d_backward(dY, [128, 128], [4, 64, 64, 64], False)", mode="cubic"),
        transposed("4 × 128 → 64, 64 × 64, 2x2 s2", 128, 64, 64, 2, 0),
        transposed("4 × 128 → 64, 64 × 64, 4x4 s2", 128, 64, 64, 4, 1),
    ]  # fmt: skip


def lines(bench, samples) -> list:
    """All of them, each held against the machine's stream limit."""

    def stream(op, title, torch, **arguments):
        return bench(op, title, torch, share="stream", **arguments)

    families = (_layer_norm, _gather, _normalization, _pooling, _loss, _upscaling)
    return [line for family in families for line in family(stream, samples)]
