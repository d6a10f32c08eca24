#include "ops/softmax/softmax_grad.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& softmax_grad_contract() {
  static const Contract c =
      softmax_contract("SoftmaxGrad", "Gradient of Softmax up to opset 12.",
                       "dX = Y·(dY − Σ Y·dY), the sum over all dims from axis on", 1);
  return c;
}

template <class T> void softmax_grad(Call& call) {
  softmax_family<Softmax, T>(call, softmax_flattened(call));
}
ONNXGRAD_FLOAT_AND_DOUBLE(softmax_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
