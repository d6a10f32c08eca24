#include "ops/norm/group_normalization_grad.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& instance_normalization_grad_contract() {
  static const Contract c =
      Contract("InstanceNormalizationGrad")
          .summary("Gradient of InstanceNormalization; the statistics are recomputed.")
          .formula(
              "x̂ = (X − mean)·inv, g = dY·scale: dX = inv·(g − mean(g) − x̂·mean(g·x̂)) over each "
              "channel of each image; "
              "dscale = Σ dY·x̂; dbias = Σ dY")
          .accuracy(Measure::rms, 2e-6, 1e-13)
          .attr("epsilon", 1e-5f, "added to the variance")
          .input("dY", "T[N, C, size...]", "cotangent of Y")
          .input("X", "T[N, C, size...]", "what went in")
          .input("scale", "T[C]", "scale of each channel")
          .output("dX", "T[N, C, size...]", "gradient of X")
          .output("dscale", "T[C]", "gradient of the scale")
          .output("dbias", "T[C]", "gradient of the bias");
  return c;
}

template <class T> void instance_normalization_grad(Call& call) {
  group_normalization<T>(call, call.dim("C"), false);
}
ONNXGRAD_FLOAT_AND_DOUBLE(instance_normalization_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
