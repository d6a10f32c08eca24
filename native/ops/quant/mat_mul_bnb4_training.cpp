#include "ops/quant/mat_mul_bnb4.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& mat_mul_bnb4_training_contract() {
  static const Contract c =
      with_bnb4_inputs(Contract("MatMulBnb4Training")
                           .summary("MatMulBnb4 with W unpacked a panel at a time.")
                           .formula("Y = A·Wᵀ, W[n,k] = table[B[n,k]]·absmax")
                           .accuracy(Measure::rms, 1e-6, 1e-14)
                           .input("A", "T[rows..., in]", "activations, K columns"))
          .output("Y", "T[rows..., out]", "the product, N columns");
  return c;
}

template <class T> void mat_mul_bnb4_training(Call& call) {
  run_packed<true, T>(call, bnb4_matrix<T>(call), "A", "Y");
}
ONNXGRAD_FLOAT_AND_DOUBLE(mat_mul_bnb4_training)

}  // namespace onnxgrad::ONNXGRAD_ISA
