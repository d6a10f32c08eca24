#pragma once

namespace onnxgrad {

// The optimizers that write nodes of domain com.microsoft, in every version from 1.19 on; names
// that a version does not have are ignored by it.
constexpr const char* kFusingOptimizers =
    "ConvActivationFusion;ConvAddActivationFusion;GemmActivationFusion;MatMulActivationFusion;"
    "MatMulIntegerToFloatFusion;DynamicQuantizeMatMulFusion;GeluFusion;GeluFusionL1;GeluFusionL2;"
    "FastGeluFusion;QuickGeluFusion;BiasGeluFusion;GeluApproximation;BiasSoftmaxFusion;"
    "BiasDropoutFusion;SkipLayerNormFusion;BiasSkipLayerNormFusion;EmbedLayerNormFusion;"
    "AttentionFusion;GroupQueryAttentionFusion;GroupQueryAttentionPreNormFusion;"
    "MatmulTransposeFusion;MatMulScaleFusion;MatMulNBitsFusion;MatMulNBitsMlpFusion;"
    "MatMulNBitsQkvFusion;DQMatMulNBitsFusion;QDQSelectorActionTransformer;NhwcTransformer";

}  // namespace onnxgrad
