#include "ops/loss/cross_entropy.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& softmax_cross_entropy_loss_internal_grad_contract() {
  static const Contract c =
      Contract("SoftmaxCrossEntropyLossInternalGrad")
          .summary(
              "Gradient of SoftmaxCrossEntropyLossInternal for the scores; can add another tensor "
              "on the way.")
          .formula(
              "d_logits = (exp(log_prob) − [class = label])·weight[label]·dY, divided by Σ "
              "weight[label] for 'mean'; 0 where ignored; "
              "+ bias")
          .accuracy(Measure::rms, 2e-6, 1e-13)
          .attr("reduction", "mean", {"none", "sum", "mean"}, "how the loss was reduced")
          .attr("output_type", Kind::integer,
                "ONNX's number of the type of d_logits; only that of the other tensors")
          .input("dY", "T[dy...]", "cotangent of the loss: a scalar, or one per label for 'none'")
          .input("log_prob", "T[N, C, d...]",
                 "what SoftmaxCrossEntropyLossInternal gave as its second output")
          .input("label", "I[labels...]", "labels, [N, d...]")
          .optional("weight", "T[K]", "weight of each class; 1 when absent")
          .optional("ignore_index", "int64[]", "a label that does not count")
          .optional("bias", "T[bias...]", "is added to the gradient; as many elements as log_prob")
          .output("d_logits", "T[N, C, d...]", "gradient of the scores")
          .inplace("log_prob", "d_logits");
  return c;
}

template <class T> void softmax_cross_entropy_loss_internal_grad(Call& call) {
  check_output_type(call);
  Classes s = classes_of(call, "log_prob", "label");
  read_ignored(call, s);
  with_index_type(call, "label",
                  [&](auto zero) { cross_entropy_grad<T, decltype(zero)>(call, s, "bias"); });
}
ONNXGRAD_FLOAT_AND_DOUBLE(softmax_cross_entropy_loss_internal_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
