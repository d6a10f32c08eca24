#include "ops/quant/mat_mul_bnb4.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& mat_mul_bnb4_grad_contract() {
  static const Contract c =
      with_bnb4_inputs(Contract("MatMulBnb4Grad")
                           .summary("Input gradient of MatMulBnb4, whose W is frozen.")
                           .formula("dA = dY·W, W[n,k] = table[B[n,k]]·absmax")
                           .accuracy(Measure::rms, 1e-6, 1e-14)
                           .input("dY", "T[rows..., in]", "cotangent of Y, N columns"))
          .output("dA", "T[rows..., out]", "gradient of A, K columns");
  return c;
}

template <class T> void mat_mul_bnb4_grad(Call& call) {
  run_packed<false, T>(call, bnb4_matrix<T>(call), "dY", "dA");
}
ONNXGRAD_FLOAT_AND_DOUBLE(mat_mul_bnb4_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
