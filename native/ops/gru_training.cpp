#include "ops/gru_training.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& gru_training_contract() {
  static const Contract c =
      gru_contract("GRUTraining")
          .summary("ONNX GRU that also returns what its gradient needs.")
          .formula("z, r = f(X·Wᵀ + H[t−1]·Rᵀ + Wb + Rb); n = g(…); H = (1 − z)∘n + z∘H[t−1]")
          .accuracy(Measure::rms, 2e-6, 1e-13)
          .check([](const Contract& c, const std::vector<Attribute>& values) {
            check_recurrent_attributes(c, values, gru_functions(), "linear_before_reset", false);
          })
          .input("X", "T[S, N, I]", "the input sequences, time first")
          .input("W", "T[D, 3*H, I]", "input weights, gates in the order z r h")
          .input("R", "T[D, 3*H, H]", "recurrent weights")
          .optional("B", "T[D, 6*H]", "biases Wb, then Rb; zeros when absent")
          .optional("SL", "int32[N]", "the length of each row; S when absent")
          .optional("H0", "T[D, N, H]", "initial hidden state; zeros when absent")
          .optional_output("HAll", "T[S, D, N, H]", "the hidden state of every step; zeros past a row's length")
          .optional_output("Ht", "T[D, N, H]", "the hidden state after the last step; zeros for an empty row")
          .optional_output("ZRH", "T[S, D, N, 3*H]", "the gates of every step, after their activation");
  return c;
}

namespace {

template <class T, class Cell>
void run_gru(Call& call, const RecurrentCall& r, const Lengths& lengths, bool linear_before_reset) {
  const RecurrentShape s = r.shape;
  const std::vector<Chunk> chunks = cut_into_chunks(lengths, s.S);
  Workspace space;
  GruForward<T, Cell> forward(r, lengths, chunks, linear_before_reset, space);
  Workspace::acquire(call, space.bytes());
  space.open();
  GruForwardTensors<T> t;
  t.x = {call.input<T>("X").data(), s.I, s.N, 1};
  t.w = {call.input<T>("W").data(), 3 * s.H * s.I, 1, s.D};
  t.r = {call.input<T>("R").data(), 3 * s.H * s.H, 1, s.D};
  t.b = {call.input<T>("B").data(), 6 * s.H, 1, s.D};
  t.h0 = {call.input<T>("H0").data(), s.H, s.N, s.D};
  t.hall = {call.output<T>("HAll").data(), s.H, s.N, s.D};
  t.ht = {call.output<T>("Ht").data(), s.H, s.N, s.D};
  t.zrh = {call.output<T>("ZRH").data(), 3 * s.H, s.N, s.D};
  clear_padding(call, t.hall, lengths, s.S);
  clear_padding(call, t.zrh, lengths, s.S);
  clear_empty_rows(t.ht, lengths);
  if (!chunks.empty() && s.H > 0) forward.run(call, t);
}

}  // namespace

template <class T> void gru_training(Call& call) {
  const RecurrentCall r = prepare_recurrent(call, gru_functions());
  const bool linear_before_reset = call.integer("linear_before_reset") != 0;
  const Lengths lengths(call, r.shape, call.input<std::int32_t>("SL"));
  if (r.standard)
    run_gru<T, StandardCell<T>>(call, r, lengths, linear_before_reset);
  else
    run_gru<T, AnyCell<T>>(call, r, lengths, linear_before_reset);
}
ONNXGRAD_FLOAT_AND_DOUBLE(gru_training)

}  // namespace onnxgrad::ONNXGRAD_ISA
