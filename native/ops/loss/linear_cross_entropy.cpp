#include "ops/loss/product_cross_entropy.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& linear_cross_entropy_contract() {
  static const Contract c = with_loss(
      with_labels(
          Contract("LinearCrossEntropy")
              .summary(
                  "The last product of a model and its cross entropy, some rows at a time: the "
                  "scores of a large vocabulary never exist as a whole.")
              .formula(
                  "scores = X·W; loss = −Σ (scores[label] − log Σ exp(scores)), divided by the "
                  "number of labels for 'mean'; dX = ∂loss/∂X. W is frozen")
              .accuracy(Measure::rms, 4e-6, 1e-13)
              .attr("transB", 0, "1: W has one row per class, [N, K]"))
          .input("W", "T[a, b]", "the matrix: [K, N] for N classes"));
  return c;
}

template <class T> void linear_cross_entropy(Call& call) {
  const Shape& shape = call.shape("W");
  const PlainMatrix<T> w{{shape[0], shape[1], 1}, call.input<T>("W").data()};
  if (call.integer("transB"))
    run_product_cross_entropy<true, T>(call, w, shape[0], shape[1]);
  else
    run_product_cross_entropy<false, T>(call, w, shape[1], shape[0]);
}
ONNXGRAD_FLOAT_AND_DOUBLE(linear_cross_entropy)

}  // namespace onnxgrad::ONNXGRAD_ISA
