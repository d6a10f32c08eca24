#include "ops/loss/product_cross_entropy.h"
#include "ops/quant/mat_mul_n_bits.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& mat_mul_n_bits_cross_entropy_contract() {
  static const Contract c = with_loss(with_nbits_inputs(with_labels(
      Contract("MatMulNBitsCrossEntropy")
          .summary("LinearCrossEntropy with a matrix in small integers, as MatMulNBits has it.")
          .formula("scores = X·Wᵀ, W[n,k] = (B[n,k] − zero_points)·scales; loss and dX as "
                   "LinearCrossEntropy")
          .accuracy(Measure::rms, 4e-6, 1e-13))));
  return c;
}

template <class T> void mat_mul_n_bits_cross_entropy(Call& call) {
  const NBitsMatrix<T> w = nbits_matrix<T>(call);
  run_product_cross_entropy<true, T>(call, w, w.size.n, w.size.k);
}
ONNXGRAD_FLOAT_AND_DOUBLE(mat_mul_n_bits_cross_entropy)

}  // namespace onnxgrad::ONNXGRAD_ISA
