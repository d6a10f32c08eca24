#include "ops/lstm_grad.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& lstm_grad_contract() {
  static const Contract c =
      lstm_contract("LSTMGrad")
          .summary("Gradient of LSTMTraining.")
          .formula("da = the chain rule through the gates; dX = da·W, dW = Σ daᵀ·X, dR = Σ daᵀ·H[t−1], dB = Σ da")
          .accuracy(Measure::rms, 2e-6, 1e-13)
          .check([](const Contract& c, const std::vector<Attribute>& values) {
            check_recurrent_attributes(c, values, lstm_functions(), "input_forget", true);
          })
          .input("X", "T[S, N, I]", "the input sequences, time first")
          .input("W", "T[D, 4*H, I]", "input weights, gates in the order i o f c")
          .input("R", "T[D, 4*H, H]", "recurrent weights")
          .optional("SL", "int32[N]", "the length of each row; S when absent")
          .optional("H0", "T[D, N, H]", "initial hidden state; zeros when absent")
          .optional("C0", "T[D, N, H]", "initial cell state; zeros when absent")
          .input("HAll", "T[S, D, N, H]", "what LSTMTraining gave")
          .input("CAll", "T[S, D, N, H]", "what LSTMTraining gave")
          .input("IOFC", "T[S, D, N, 4*H]", "what LSTMTraining gave")
          .optional("grad_HAll", "T[S, D, N, H]", "cotangent of HAll")
          .optional("grad_Ht", "T[D, N, H]", "cotangent of Ht")
          .optional("grad_Ct", "T[D, N, H]", "cotangent of Ct; at least one of the three is needed")
          .optional("P", "T[D, 3*H]", "peephole weights; without them the path through them is left out, as in 1.19.2")
          .optional_output("dX", "T[S, N, I]", "gradient of X")
          .optional_output("dW", "T[D, 4*H, I]", "gradient of W")
          .optional_output("dR", "T[D, 4*H, H]", "gradient of R")
          .optional_output("dB", "T[D, 8*H]", "gradient of B, at zero when there was none")
          .optional_output("dH0", "T[D, N, H]", "gradient of H0, at zero when there was none")
          .optional_output("dC0", "T[D, N, H]", "gradient of C0, at zero when there was none")
          .optional_output("dP", "T[D, 3*H]", "gradient of P, at zero when there was none");
  return c;
}

namespace {

template <class T, class Cell>
void run_lstm_grad(Call& call, const RecurrentCall& r, const Lengths& lengths, bool input_forget) {
  const RecurrentShape s = r.shape;
  const std::vector<Chunk> chunks = cut_into_chunks(lengths, s.S);
  Workspace space;
  LstmGrad<T, Cell> gradient(r, lengths, chunks, input_forget, space);
  Workspace::acquire(call, space.bytes());
  space.open();
  const auto input = [&](const char* name, Dim width, Dim rows, Dim directions) {
    return Tensor<const T>{call.input<T>(name).data(), width, rows, directions};
  };
  const auto output = [&](const char* name, Dim width, Dim rows, Dim directions) {
    return Tensor<T>{call.output<T>(name).data(), width, rows, directions};
  };
  LstmGradTensors<T> t;
  t.x = input("X", s.I, s.N, 1);
  t.w = input("W", 4 * s.H * s.I, 1, s.D), t.r = input("R", 4 * s.H * s.H, 1, s.D), t.p = input("P", 3 * s.H, 1, s.D);
  t.h0 = input("H0", s.H, s.N, s.D), t.c0 = input("C0", s.H, s.N, s.D);
  t.hall = input("HAll", s.H, s.N, s.D), t.call = input("CAll", s.H, s.N, s.D);
  t.iofc = input("IOFC", 4 * s.H, s.N, s.D);
  t.grad_hall = input("grad_HAll", s.H, s.N, s.D);
  t.grad_ht = input("grad_Ht", s.H, s.N, s.D), t.grad_ct = input("grad_Ct", s.H, s.N, s.D);
  t.dx = output("dX", s.I, s.N, 1);
  t.dw = output("dW", 4 * s.H * s.I, 1, s.D), t.dr = output("dR", 4 * s.H * s.H, 1, s.D);
  t.db = output("dB", 8 * s.H, 1, s.D), t.dp = output("dP", 3 * s.H, 1, s.D);
  t.dh0 = output("dH0", s.H, s.N, s.D), t.dc0 = output("dC0", s.H, s.N, s.D);
  const bool empty = chunks.empty() || s.H == 0;
  if (empty || s.D == 2 || lengths.sorted()) clear_output<T>(call, "dX");
  if (empty)
    for (const char* name : {"dW", "dR", "dB", "dH0", "dC0", "dP"}) clear_output<T>(call, name);
  else
    gradient.run(call, t);
}

}  // namespace

template <class T> void lstm_grad(Call& call) {
  const RecurrentCall r = prepare_recurrent(call, lstm_functions());
  const bool input_forget = call.integer("input_forget") != 0;
  require_cotangent(call, {"grad_HAll", "grad_Ht", "grad_Ct"});
  const Lengths lengths(call, r.shape, call.input<std::int32_t>("SL"));
  if (r.standard)
    run_lstm_grad<T, StandardCell<T>>(call, r, lengths, input_forget);
  else
    run_lstm_grad<T, AnyCell<T>>(call, r, lengths, input_forget);
}
ONNXGRAD_FLOAT_AND_DOUBLE(lstm_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
