#include "ops/loss/cross_entropy.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& softmax_cross_entropy_loss_grad_contract() {
  static const Contract c =
      Contract("SoftmaxCrossEntropyLossGrad")
          .summary("Gradient of SoftmaxCrossEntropyLoss for the scores.")
          .formula(
              "d_logits = (exp(log_prob) − [class = label])·weight[label]·dY, divided by Σ "
              "weight[label] for 'mean'; 0 where ignored")
          .accuracy(Measure::rms, 2e-6, 1e-13)
          .attr("reduction", "mean", {"none", "sum", "mean"}, "how the loss was reduced")
          .attr("ignore_index", Kind::integer, "a label that does not count")
          .input("dY", "T[dy...]", "cotangent of the loss: a scalar, or one per label for 'none'")
          .input("log_prob", "T[N, C, d...]",
                 "what SoftmaxCrossEntropyLoss gave as its second output")
          .input("label", "I[labels...]", "labels, [N, d...]")
          .optional("weight", "T[K]", "weight of each class; 1 when absent")
          .output("d_logits", "T[N, C, d...]", "gradient of the scores");
  return c;
}

template <class T> void softmax_cross_entropy_loss_grad(Call& call) {
  Classes s = classes_of(call, "log_prob", "label");
  s.has_ignored = call.given("ignore_index"),
  s.ignored = s.has_ignored ? call.integer("ignore_index") : 0;
  with_index_type(call, "label",
                  [&](auto zero) { cross_entropy_grad<T, decltype(zero)>(call, s, nullptr); });
}
ONNXGRAD_FLOAT_AND_DOUBLE(softmax_cross_entropy_loss_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
