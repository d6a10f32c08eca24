#include "ops/recurrent/lstm_grad.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& lstm_grad_contract() {
  static const Contract c = [] {
    Contract c = recurrent_contract<lstm_spec, true>("LSTMGrad");
    add_lengths_and_state(c);
    add_cell_state(c)
        .input("HAll", "T[S, D, N, H]", "what LSTMTraining gave")
        .input("CAll", "T[S, D, N, H]", "what LSTMTraining gave")
        .input("IOFC", "T[S, D, N, 4*H]", "what LSTMTraining gave")
        .optional("grad_HAll", "T[S, D, N, H]", "cotangent of HAll")
        .optional("grad_Ht", "T[D, N, H]", "cotangent of Ht")
        .optional("grad_Ct", "T[D, N, H]", "cotangent of Ct; at least one of the three is needed")
        .optional("P", "T[D, 3*H]",
                  "peephole weights; without them the path through them is left out, as in 1.19.2");
    return add_gradients(c, lstm_spec())
        .optional_output("dC0", "T[D, N, H]", "gradient of C0, at zero when there was none")
        .optional_output("dP", "T[D, 3*H]", "gradient of P, at zero when there was none");
  }();
  return c;
}

template <class T> void lstm_grad(Call& call) {
  require_cotangent(call, {"grad_HAll", "grad_Ht", "grad_Ct"});
  run_recurrent<T, LstmGrad>(call, lstm_spec());
}
ONNXGRAD_FLOAT_AND_DOUBLE(lstm_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
