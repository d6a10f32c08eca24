#include "core/pointwise.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& hard_swish_grad_contract() {
  static const Contract c =
      Contract("HardSwishGrad")
          .summary("Gradient of HardSwish, X·min(max(X/6 + 1/2, 0), 1).")
          .formula("dX = dY·h, h = 0 up to −3, X/3 + 1/2 between, 1 from 3 on")
          .accuracy(Measure::ulp, 3, 1e-13)
          .input("dY", "T[shape...]", "cotangent of Y")
          .input("X", "T[shape...]", "what went into HardSwish")
          .output("dX", "T[shape...]", "gradient of X")
          .inplace("dY", "dX");
  return c;
}

// The comparisons are literal: a NaN in X gives the 0 of what lies up to −3.
template <class T> void hard_swish_grad(Call& call) {
  pointwise<T>(call, "dY", "X", "dX", [](Vec<T> dy, Vec<T> x) ONNXGRAD_LAMBDA {
    const Vec<T> three = splat<T>(T(3)), third = splat<T>(T(1) / T(3)), half = splat<T>(T(0.5));
    const Vec<T> rising = select(x < three, fma(x, third, half), splat<T>(T(1)));
    return dy * select(x > -three, rising, Vec<T>{});
  });
}
ONNXGRAD_FLOAT_AND_DOUBLE(hard_swish_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
