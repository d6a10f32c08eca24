#include "core/vmath.h"
#include "ops/pointwise/bias_gelu_grad.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& bias_fast_gelu_grad_dx_contract() {
  static const Contract c =
      bias_gelu_contract("BiasFastGeluGrad_dX", "Gradient of BiasFastGelu, FastGelu(X + B), for X.",
                         "dX = FastGeluGrad(dY, X + B)");
  return c;
}

template <class T> void bias_fast_gelu_grad_dx(Call& call) {
  bias_pointwise<T>(call, [](Vec<T> x) ONNXGRAD_LAMBDA { return fast_gelu_derivative<T>(x); });
}
ONNXGRAD_FLOAT_AND_DOUBLE(bias_fast_gelu_grad_dx)

}  // namespace onnxgrad::ONNXGRAD_ISA
