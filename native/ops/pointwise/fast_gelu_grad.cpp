#include "core/pointwise.h"
#include "core/vmath.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& fast_gelu_grad_contract() {
  static const Contract c = Contract("FastGeluGrad")
                                .summary("Gradient of FastGelu, the tanh form of Gelu.")
                                .formula(
                                    "dX = dY·½·(tanh(u) + sech²(u)·(αX + βX³) + 1), u = αX + αγX³, "
                                    "α = √(2/π), γ = 0.044715, β = 3αγ")
                                .accuracy(Measure::ulp, 5, 1e-13)
                                .input("dY", "T[shape...]", "cotangent of Y")
                                .input("X", "T[shape...]", "what went into FastGelu")
                                .output("dX", "T[shape...]", "gradient of X")
                                .inplace("dY", "dX");
  return c;
}

template <class T> void fast_gelu_grad(Call& call) {
  pointwise<T>(call, "dY", "X", "dX",
               [](Vec<T> dy, Vec<T> x) ONNXGRAD_LAMBDA { return dy * fast_gelu_derivative<T>(x); });
}
ONNXGRAD_FLOAT_AND_DOUBLE(fast_gelu_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
