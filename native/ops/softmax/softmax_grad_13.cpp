#include "ops/softmax/softmax_grad.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& softmax_grad_13_contract() {
  static const Contract c =
      softmax_contract("SoftmaxGrad_13", "Gradient of Softmax from opset 13 on.",
                       "dX = Y·(dY − Σ Y·dY), the sum along axis", -1);
  return c;
}

template <class T> void softmax_grad_13(Call& call) {
  softmax_family<Softmax, T>(call, softmax_along_axis(call));
}
ONNXGRAD_FLOAT_AND_DOUBLE(softmax_grad_13)

}  // namespace onnxgrad::ONNXGRAD_ISA
