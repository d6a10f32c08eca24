#include "ops/norm/layer_normalization_grad.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& simplified_layer_normalization_grad_contract() {
  static const Contract c =
      Contract("SimplifiedLayerNormalizationGrad")
          .summary("Gradient of SimplifiedLayerNormalization (RMS normalisation).")
          .formula(
              "x̂ = X·inv, g = Y_grad·scale: X_grad = inv·(g − x̂·mean(g·x̂)); scale_grad = Σ "
              "Y_grad·x̂")
          .accuracy(Measure::rms, 2e-6, 1e-13)
          .attr("axis", -1, "the first normalised axis")
          .input("Y_grad", "T[shape...]", "cotangent of Y")
          .input("X", "T[shape...]", "what went in")
          .input("scale", "T[columns...]", "scale, of the normalised axes")
          .input("inv_std_var", "T[rows...]", "1 / √(mean of squares + epsilon) of each row")
          .optional("added", "T[shape...]", "what is added to X_grad")
          .output("X_grad", "T[shape...]", "gradient of X")
          .output("scale_grad", "T[columns...]", "gradient of the scale");
  return c;
}

template <class T> void simplified_layer_normalization_grad(Call& call) {
  layer_normalization<Normalization::uncentred, T>(call, "X", nullptr, "inv_std_var");
}
ONNXGRAD_FLOAT_AND_DOUBLE(simplified_layer_normalization_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
