#include "ops/softmax/softmax_grad.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& log_softmax_grad_13_contract() {
  static const Contract c =
      softmax_contract("LogSoftmaxGrad_13", "Gradient of LogSoftmax from opset 13 on.",
                       "dX = dY − exp(Y)·Σ dY, the sum along axis", -1);
  return c;
}

template <class T> void log_softmax_grad_13(Call& call) {
  softmax_family<LogSoftmax, T>(call, softmax_along_axis(call));
}
ONNXGRAD_FLOAT_AND_DOUBLE(log_softmax_grad_13)

}  // namespace onnxgrad::ONNXGRAD_ISA
