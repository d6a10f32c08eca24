#include "core/pointwise.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& leaky_relu_grad_contract() {
  static const Contract c =
      Contract("LeakyReluGrad")
          .summary("Gradient of LeakyRelu.")
          .formula("dX = Y > 0 ? dY : alpha·dY")
          .accuracy(Measure::ulp, 5, 1e-13)
          .attr("alpha", 0.01f, "slope for negative values")
          .input("dY", "T[shape...]", "cotangent of Y")
          .input("Y", "T[shape...]", "what LeakyRelu gave; its input serves as well when alpha > 0")
          .output("dX", "T[shape...]", "gradient of X")
          .inplace("dY", "dX");
  return c;
}

// The comparison is literal: NaN > 0 is false.
template <class T> void leaky_relu_grad(Call& call) {
  const Vec<T> alpha = splat<T>(T(call.real("alpha")));
  pointwise<T>(call, "dY", "Y", "dX", [=](Vec<T> dy, Vec<T> y) ONNXGRAD_LAMBDA {
    return select(y > Vec<T>{}, dy, alpha * dy);
  });
}
ONNXGRAD_FLOAT_AND_DOUBLE(leaky_relu_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
