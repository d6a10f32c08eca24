#include "core/pointwise.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& relu_grad_contract() {
  static const Contract c =
      Contract("ReluGrad")
          .summary("Gradient of Relu.")
          .formula("dX = X > 0 ? dY : 0")
          .accuracy(Measure::ulp, 5, 1e-13)
          .input("dY", "T[shape...]", "cotangent of Y")
          .input("X", "T[shape...]", "what went into Relu; Relu's output serves as well")
          .output("dX", "T[shape...]", "gradient of X")
          .inplace("dY", "dX");
  return c;
}

// The comparison is literal: NaN > 0 is false, so a NaN in X gives 0.
template <class T> void relu_grad(Call& call) {
  pointwise<T>(call, "dY", "X", "dX", [](Vec<T> dy, Vec<T> x) ONNXGRAD_LAMBDA {
    return select(x > Vec<T>{}, dy, Vec<T>{});
  });
}
ONNXGRAD_FLOAT_AND_DOUBLE(relu_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
