#include "ops/recurrent/gru_grad.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& gru_grad_contract() {
  static const Contract c = [] {
    Contract c = recurrent_contract<gru_spec, true>("GRUGrad");
    add_bias(c, gru_spec());
    add_lengths_and_state(c)
        .input("HAll", "T[S, D, N, H]", "what GRUTraining gave")
        .input("ZRH", "T[S, D, N, 3*H]", "what GRUTraining gave")
        .optional("grad_HAll", "T[S, D, N, H]", "cotangent of HAll")
        .optional("grad_Ht", "T[D, N, H]", "cotangent of Ht; at least one of the two is needed");
    return add_gradients(c, gru_spec());
  }();
  return c;
}

template <class T> void gru_grad(Call& call) {
  require_cotangent(call, {"grad_HAll", "grad_Ht"});
  run_recurrent<T, GruGrad>(call, gru_spec());
}
ONNXGRAD_FLOAT_AND_DOUBLE(gru_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
