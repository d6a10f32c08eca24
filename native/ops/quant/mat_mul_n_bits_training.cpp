#include "ops/quant/mat_mul_n_bits.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& mat_mul_n_bits_training_contract() {
  static const Contract c =
      with_nbits_inputs(Contract("MatMulNBitsTraining")
                            .summary("MatMulNBits with nothing rounded but W.")
                            .formula("Y = A·Wᵀ, W[n,k] = (B[n,k] − zero_points)·scales")
                            .accuracy(Measure::rms, 1e-6, 1e-14)
                            .input("A", "T[rows..., in]", "activations, K columns"))
          .output("Y", "T[rows..., out]", "the product, N columns");
  return c;
}

template <class T> void mat_mul_n_bits_training(Call& call) {
  run_packed<true, T>(call, nbits_matrix<T>(call), "A", "Y");
}
ONNXGRAD_FLOAT_AND_DOUBLE(mat_mul_n_bits_training)

}  // namespace onnxgrad::ONNXGRAD_ISA
