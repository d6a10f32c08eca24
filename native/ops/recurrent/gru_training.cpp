#include "ops/recurrent/gru_training.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& gru_training_contract() {
  static const Contract c = [] {
    Contract c = recurrent_contract<gru_spec, false>("GRUTraining");
    c.summary("ONNX GRU that also returns what its gradient needs.")
        .formula("z, r = f(X·Wᵀ + H[t−1]·Rᵀ + Wb + Rb); n = g(…); H = (1 − z)∘n + z∘H[t−1]");
    add_bias(c, gru_spec());
    add_lengths_and_state(c);
    return add_hidden_states(c).optional_output("ZRH", "T[S, D, N, 3*H]",
                                                "the gates of every step, after their activation");
  }();
  return c;
}

template <class T> void gru_training(Call& call) {
  run_recurrent<T, GruForward>(call, gru_spec());
}
ONNXGRAD_FLOAT_AND_DOUBLE(gru_training)

}  // namespace onnxgrad::ONNXGRAD_ISA
