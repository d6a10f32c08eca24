#include "core/pointwise.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& tanh_grad_contract() {
  static const Contract c = Contract("TanhGrad")
                                .summary("Gradient of Tanh.")
                                .formula("dX = dY·(1 − Y²)")
                                .accuracy(Measure::ulp, 5, 1e-13)
                                .input("dY", "T[shape...]", "cotangent of Y")
                                .input("Y", "T[shape...]", "what Tanh gave")
                                .output("dX", "T[shape...]", "gradient of X")
                                .inplace("dY", "dX");
  return c;
}

// (1 - y)(1 + y) and not 1 - y²: where |y| is near 1 the difference is exact.
template <class T> void tanh_grad(Call& call) {
  pointwise<T>(call, "dY", "Y", "dX",
               [](Vec<T> dy, Vec<T> y) ONNXGRAD_LAMBDA { return dy * ((T(1) - y) * (T(1) + y)); });
}
ONNXGRAD_FLOAT_AND_DOUBLE(tanh_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
