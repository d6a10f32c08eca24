#include "ops/softmax/softmax_grad.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& log_softmax_grad_contract() {
  static const Contract c =
      softmax_contract("LogSoftmaxGrad", "Gradient of LogSoftmax up to opset 12.",
                       "dX = dY − exp(Y)·Σ dY, the sum over all dims from axis on", 1);
  return c;
}

template <class T> void log_softmax_grad(Call& call) {
  softmax_family<LogSoftmax, T>(call, softmax_flattened(call));
}
ONNXGRAD_FLOAT_AND_DOUBLE(log_softmax_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
