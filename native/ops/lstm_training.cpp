#include "ops/lstm_training.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& lstm_training_contract() {
  static const Contract c =
      lstm_contract("LSTMTraining")
          .summary("ONNX LSTM that also returns what its gradient needs.")
          .formula("i, o, f = f(X·Wᵀ + H[t−1]·Rᵀ + P∘C + Wb + Rb); c = g(…); C = f∘C[t−1] + i∘c; H = o∘h(C)")
          .accuracy(Measure::rms, 2e-6, 1e-13)
          .check([](const Contract& c, const std::vector<Attribute>& values) {
            check_recurrent_attributes(c, values, lstm_functions(), "input_forget", false);
          })
          .input("X", "T[S, N, I]", "the input sequences, time first")
          .input("W", "T[D, 4*H, I]", "input weights, gates in the order i o f c")
          .input("R", "T[D, 4*H, H]", "recurrent weights")
          .optional("B", "T[D, 8*H]", "biases Wb, then Rb; zeros when absent")
          .optional("SL", "int32[N]", "the length of each row; S when absent")
          .optional("H0", "T[D, N, H]", "initial hidden state; zeros when absent")
          .optional("C0", "T[D, N, H]", "initial cell state; zeros when absent")
          .optional("P", "T[D, 3*H]", "peephole weights, in the order i o f; zeros when absent")
          .optional_output("HAll", "T[S, D, N, H]", "the hidden state of every step; zeros past a row's length")
          .optional_output("Ht", "T[D, N, H]", "the hidden state after the last step; zeros for an empty row")
          .optional_output("Ct", "T[D, N, H]", "the cell state after the last step; zeros for an empty row")
          .optional_output("CAll", "T[S, D, N, H]", "the cell state of every step")
          .optional_output("IOFC", "T[S, D, N, 4*H]", "the gates of every step, after their activation");
  return c;
}

namespace {

template <class T, class Cell>
void run_lstm(Call& call, const RecurrentCall& r, const Lengths& lengths, bool input_forget) {
  const RecurrentShape s = r.shape;
  const std::vector<Chunk> chunks = cut_into_chunks(lengths, s.S);
  Workspace space;
  LstmForward<T, Cell> forward(r, lengths, chunks, input_forget, call.has("P"), space);
  Workspace::acquire(call, space.bytes());
  space.open();
  LstmForwardTensors<T> t;
  t.x = {call.input<T>("X").data(), s.I, s.N, 1};
  t.w = {call.input<T>("W").data(), 4 * s.H * s.I, 1, s.D};
  t.r = {call.input<T>("R").data(), 4 * s.H * s.H, 1, s.D};
  t.b = {call.input<T>("B").data(), 8 * s.H, 1, s.D};
  t.p = {call.input<T>("P").data(), 3 * s.H, 1, s.D};
  t.h0 = {call.input<T>("H0").data(), s.H, s.N, s.D};
  t.c0 = {call.input<T>("C0").data(), s.H, s.N, s.D};
  t.hall = {call.output<T>("HAll").data(), s.H, s.N, s.D};
  t.ht = {call.output<T>("Ht").data(), s.H, s.N, s.D};
  t.ct = {call.output<T>("Ct").data(), s.H, s.N, s.D};
  t.call = {call.output<T>("CAll").data(), s.H, s.N, s.D};
  t.iofc = {call.output<T>("IOFC").data(), 4 * s.H, s.N, s.D};
  for (const Tensor<T>& kept : {t.hall, t.call, t.iofc}) clear_padding(call, kept, lengths, s.S);
  for (const Tensor<T>& final_state : {t.ht, t.ct}) clear_empty_rows(final_state, lengths);
  if (!chunks.empty() && s.H > 0) forward.run(call, t);
}

}  // namespace

template <class T> void lstm_training(Call& call) {
  const RecurrentCall r = prepare_recurrent(call, lstm_functions());
  const bool input_forget = call.integer("input_forget") != 0;
  const Lengths lengths(call, r.shape, call.input<std::int32_t>("SL"));
  if (r.standard)
    run_lstm<T, StandardCell<T>>(call, r, lengths, input_forget);
  else
    run_lstm<T, AnyCell<T>>(call, r, lengths, input_forget);
}
ONNXGRAD_FLOAT_AND_DOUBLE(lstm_training)

}  // namespace onnxgrad::ONNXGRAD_ISA
