#include "core/pointwise.h"
#include "core/vmath.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& gelu_grad_contract() {
  static const Contract c =
      Contract("GeluGrad")
          .summary("Gradient of Gelu, x·Φ(x).")
          .formula("dX = dY·(½(erf(X/√2) + 1) + X·φ(X)), φ(x) = exp(−x²/2)/√(2π)")
          .accuracy(Measure::ulp, 5, 1e-13)
          .input("dY", "T[shape...]", "cotangent of Y")
          .input("X", "T[shape...]", "what went into Gelu")
          .output("dX", "T[shape...]", "gradient of X")
          .inplace("dY", "dX");
  return c;
}

template <class T> void gelu_grad(Call& call) {
  pointwise<T>(call, "dY", "X", "dX",
               [](Vec<T> dy, Vec<T> x) ONNXGRAD_LAMBDA { return dy * gelu_derivative<T>(x); });
}
ONNXGRAD_FLOAT_AND_DOUBLE(gelu_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
