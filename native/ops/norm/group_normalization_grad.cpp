#include "ops/norm/group_normalization_grad.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& group_normalization_grad_contract() {
  static const Contract c =
      Contract("GroupNormalizationGrad")
          .summary("Gradient of GroupNormalization; the statistics are recomputed.")
          .formula(
              "x̂ = (X − mean)·inv, g = dY·scale: dX = inv·(g − mean(g) − x̂·mean(g·x̂)) over each "
              "group; "
              "dscale = Σ dY·x̂; dbias = Σ dY")
          .accuracy(Measure::rms, 2e-6, 1e-13)
          .attr("epsilon", 1e-5f, "added to the variance")
          .attr("num_groups", 1, "number of groups that the channels are divided into")
          .within(1)
          .input("dY", "T[N, C, size...]", "cotangent of Y")
          .input("X", "T[N, C, size...]", "what went in")
          .input("scale", "T[K...]", "scale of each channel, or of each group as in opset 18")
          .optional("Y", "T[N, C, size...]",
                    "what a Relu behind it gave: dY counts where it is above 0")
          .optional("added", "T[N, C, size...]", "what is added to dX")
          .output("dX", "T[N, C, size...]", "gradient of X")
          .output("dscale", "T[K...]", "gradient of the scale")
          .output("dbias", "T[K...]", "gradient of the bias");
  return c;
}

template <class T> void group_normalization_grad(Call& call) {
  const Dim groups = checked_groups(call, "dY");
  group_normalization<T>(call, groups, call.shape("scale").size() != call.dim("C"),
                         call.input<T>("Y").data(), call.input<T>("added").data());
}
ONNXGRAD_FLOAT_AND_DOUBLE(group_normalization_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
