#include "ops/quant/mat_mul_n_bits.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& mat_mul_n_bits_grad_contract() {
  static const Contract c =
      with_nbits_inputs(Contract("MatMulNBitsGrad")
                            .summary("Input gradient of MatMulNBits, whose W is frozen.")
                            .formula("dA = dY·W, W[n,k] = (B[n,k] − zero_points)·scales")
                            .accuracy(Measure::rms, 1e-6, 1e-14)
                            .input("dY", "T[rows..., in]", "cotangent of Y, N columns"))
          .output("dA", "T[rows..., out]", "gradient of A, K columns");
  return c;
}

template <class T> void mat_mul_n_bits_grad(Call& call) {
  run_packed<false, T>(call, nbits_matrix<T>(call), "dY", "dA");
}
ONNXGRAD_FLOAT_AND_DOUBLE(mat_mul_n_bits_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
