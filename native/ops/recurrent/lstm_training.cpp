#include "ops/recurrent/lstm_training.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& lstm_training_contract() {
  static const Contract c = [] {
    Contract c = recurrent_contract<lstm_spec, false>("LSTMTraining");
    c.summary("ONNX LSTM that also returns what its gradient needs.")
        .formula(
            "i, o, f = f(X·Wᵀ + H[t−1]·Rᵀ + P∘C + Wb + Rb); c = g(…); C = f∘C[t−1] + i∘c; H = "
            "o∘h(C)");
    add_bias(c, lstm_spec());
    add_lengths_and_state(c);
    add_cell_state(c).optional("P", "T[D, 3*H]",
                               "peephole weights, in the order i o f; zeros when absent");
    return add_hidden_states(c)
        .optional_output("Ct", "T[D, N, H]",
                         "the cell state after the last step; zeros for an empty row")
        .optional_output("CAll", "T[S, D, N, H]", "the cell state of every step")
        .optional_output("IOFC", "T[S, D, N, 4*H]",
                         "the gates of every step, after their activation");
  }();
  return c;
}

template <class T> void lstm_training(Call& call) {
  run_recurrent<T, LstmForward>(call, lstm_spec());
}
ONNXGRAD_FLOAT_AND_DOUBLE(lstm_training)

}  // namespace onnxgrad::ONNXGRAD_ISA
