#include "core/pointwise.h"
#include "core/vmath.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& quick_gelu_grad_contract() {
  static const Contract c = Contract("QuickGeluGrad")
                                .summary("Gradient of QuickGelu, x·sigmoid(alpha·x).")
                                .formula("dX = dY·s·(1 + alpha·X·(1 − s)), s = sigmoid(alpha·X)")
                                .accuracy(Measure::ulp, 5, 1e-13)
                                .attr("alpha", 1.702f, "the factor inside the sigmoid")
                                .input("dY", "T[shape...]", "cotangent of Y")
                                .input("X", "T[shape...]", "what went into QuickGelu")
                                .output("dX", "T[shape...]", "gradient of X")
                                .inplace("dY", "dX");
  return c;
}

template <class T> void quick_gelu_grad(Call& call) {
  const Vec<T> alpha = splat<T>(T(call.real("alpha")));
  pointwise<T>(call, "dY", "X", "dX", [=](Vec<T> dy, Vec<T> x) ONNXGRAD_LAMBDA {
    return dy * quick_gelu_derivative<T>(x, alpha);
  });
}
ONNXGRAD_FLOAT_AND_DOUBLE(quick_gelu_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
