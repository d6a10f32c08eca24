#include "core/pointwise.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& sigmoid_grad_contract() {
  static const Contract c = Contract("SigmoidGrad")
                                .summary("Gradient of Sigmoid.")
                                .formula("dX = dY·Y·(1 − Y)")
                                .accuracy(Measure::ulp, 5, 1e-13)
                                .input("dY", "T[shape...]", "cotangent of Y")
                                .input("Y", "T[shape...]", "what Sigmoid gave")
                                .output("dX", "T[shape...]", "gradient of X")
                                .inplace("dY", "dX");
  return c;
}

template <class T> void sigmoid_grad(Call& call) {
  pointwise<T>(call, "dY", "Y", "dX",
               [](Vec<T> dy, Vec<T> y) ONNXGRAD_LAMBDA { return dy * (y * (T(1) - y)); });
}
ONNXGRAD_FLOAT_AND_DOUBLE(sigmoid_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
