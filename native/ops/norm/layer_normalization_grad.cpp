#include "ops/norm/layer_normalization_grad.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& layer_normalization_grad_contract() {
  static const Contract c =
      Contract("LayerNormalizationGrad")
          .summary("Gradient of LayerNormalization.")
          .formula(
              "x̂ = (X − mean)·inv, g = Y_grad·scale: X_grad = inv·(g − mean(g) − x̂·mean(g·x̂)); "
              "scale_grad = Σ Y_grad·x̂; bias_grad = Σ Y_grad")
          .accuracy(Measure::rms, 2e-6, 1e-13)
          .attr("axis", -1, "the first normalised axis")
          .input("Y_grad", "T[shape...]", "cotangent of Y")
          .input("X", "T[shape...]", "what went in")
          .input("scale", "T[columns...]", "scale, of the normalised axes")
          .input("mean", "T[rows...]", "mean of each row, as LayerNormalization gives it")
          .input("inv_std_dev", "T[rows...]",
                 "1 / √(variance + epsilon) of each row, as LayerNormalization gives it")
          .optional("added", "T[shape...]", "what is added to X_grad")
          .output("X_grad", "T[shape...]", "gradient of X")
          .output("scale_grad", "T[columns...]", "gradient of the scale")
          .output("bias_grad", "T[columns...]", "gradient of the bias");
  return c;
}

template <class T> void layer_normalization_grad(Call& call) {
  layer_normalization<Normalization::centred, T>(call, "X", "mean", "inv_std_dev");
}
ONNXGRAD_FLOAT_AND_DOUBLE(layer_normalization_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
