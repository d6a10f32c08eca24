#include "ops/norm/layer_normalization_grad.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& invertible_layer_normalization_grad_contract() {
  static const Contract c =
      Contract("InvertibleLayerNormalizationGrad")
          .summary("Gradient of LayerNormalization from its output, so that X need not be kept.")
          .formula(
              "x̂ = (Y − bias) / scale, g = Y_grad·scale: "
              "X_grad = inv·(g − mean(g) − x̂·mean(g·x̂)); "
              "scale_grad = Σ Y_grad·x̂; bias_grad = Σ Y_grad")
          .accuracy(Measure::rms, 2e-6, 1e-13)
          .attr("axis", -1, "the first normalised axis")
          .input("Y_grad", "T[shape...]", "cotangent of Y")
          .input("Y", "T[shape...]", "what LayerNormalization gave")
          .input("scale", "T[columns...]", "scale, of the normalised axes; not 0")
          .input("bias", "T[columns...]", "bias, of the normalised axes")
          .input("inv_std_var", "T[rows...]", "1 / √(variance + epsilon) of each row")
          .output("X_grad", "T[shape...]", "gradient of X")
          .output("scale_grad", "T[columns...]", "gradient of the scale")
          .output("bias_grad", "T[columns...]", "gradient of the bias");
  return c;
}

template <class T> void invertible_layer_normalization_grad(Call& call) {
  layer_normalization<Normalization::inverted, T>(call, "Y", nullptr, "inv_std_var");
}
ONNXGRAD_FLOAT_AND_DOUBLE(invertible_layer_normalization_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
