#include "ops/gru_grad.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& gru_grad_contract() {
  static const Contract c =
      gru_contract("GRUGrad")
          .summary("Gradient of GRUTraining.")
          .formula("da = the chain rule through the gates; dX = da·W, dW = Σ daᵀ·X, dR = Σ daᵀ·H[t−1], dB = Σ da")
          .accuracy(Measure::rms, 2e-6, 1e-13)
          .check([](const Contract& c, const std::vector<Attribute>& values) {
            check_recurrent_attributes(c, values, gru_functions(), "linear_before_reset", true);
          })
          .input("X", "T[S, N, I]", "the input sequences, time first")
          .input("W", "T[D, 3*H, I]", "input weights, gates in the order z r h")
          .input("R", "T[D, 3*H, H]", "recurrent weights")
          .optional("B", "T[D, 6*H]", "biases Wb, then Rb; zeros when absent")
          .optional("SL", "int32[N]", "the length of each row; S when absent")
          .optional("H0", "T[D, N, H]", "initial hidden state; zeros when absent")
          .input("HAll", "T[S, D, N, H]", "what GRUTraining gave")
          .input("ZRH", "T[S, D, N, 3*H]", "what GRUTraining gave")
          .optional("grad_HAll", "T[S, D, N, H]", "cotangent of HAll")
          .optional("grad_Ht", "T[D, N, H]", "cotangent of Ht; at least one of the two is needed")
          .optional_output("dX", "T[S, N, I]", "gradient of X")
          .optional_output("dW", "T[D, 3*H, I]", "gradient of W")
          .optional_output("dR", "T[D, 3*H, H]", "gradient of R")
          .optional_output("dB", "T[D, 6*H]", "gradient of B, at zero when there was none")
          .optional_output("dH0", "T[D, N, H]", "gradient of H0, at zero when there was none");
  return c;
}

namespace {

template <class T, class Cell>
void run_gru_grad(Call& call, const RecurrentCall& r, const Lengths& lengths, bool linear_before_reset) {
  const RecurrentShape s = r.shape;
  const std::vector<Chunk> chunks = cut_into_chunks(lengths, s.S);
  Workspace space;
  GruGrad<T, Cell> gradient(r, lengths, chunks, linear_before_reset, space);
  Workspace::acquire(call, space.bytes());
  space.open();
  const auto input = [&](const char* name, Dim width, Dim rows, Dim directions) {
    return Tensor<const T>{call.input<T>(name).data(), width, rows, directions};
  };
  const auto output = [&](const char* name, Dim width, Dim rows, Dim directions) {
    return Tensor<T>{call.output<T>(name).data(), width, rows, directions};
  };
  GruGradTensors<T> t;
  t.x = input("X", s.I, s.N, 1), t.b = input("B", 6 * s.H, 1, s.D);
  t.w = input("W", 3 * s.H * s.I, 1, s.D), t.r = input("R", 3 * s.H * s.H, 1, s.D);
  t.h0 = input("H0", s.H, s.N, s.D), t.hall = input("HAll", s.H, s.N, s.D), t.zrh = input("ZRH", 3 * s.H, s.N, s.D);
  t.grad_hall = input("grad_HAll", s.H, s.N, s.D), t.grad_ht = input("grad_Ht", s.H, s.N, s.D);
  t.dx = output("dX", s.I, s.N, 1), t.db = output("dB", 6 * s.H, 1, s.D), t.dh0 = output("dH0", s.H, s.N, s.D);
  t.dw = output("dW", 3 * s.H * s.I, 1, s.D), t.dr = output("dR", 3 * s.H * s.H, 1, s.D);
  const bool empty = chunks.empty() || s.H == 0;
  if (empty || s.D == 2 || lengths.sorted()) clear_output<T>(call, "dX");
  if (empty)
    for (const char* name : {"dW", "dR", "dB", "dH0"}) clear_output<T>(call, name);
  else
    gradient.run(call, t);
}

}  // namespace

template <class T> void gru_grad(Call& call) {
  const RecurrentCall r = prepare_recurrent(call, gru_functions());
  const bool linear_before_reset = call.integer("linear_before_reset") != 0;
  require_cotangent(call, {"grad_HAll", "grad_Ht"});
  const Lengths lengths(call, r.shape, call.input<std::int32_t>("SL"));
  if (r.standard)
    run_gru_grad<T, StandardCell<T>>(call, r, lengths, linear_before_reset);
  else
    run_gru_grad<T, AnyCell<T>>(call, r, lengths, linear_before_reset);
}
ONNXGRAD_FLOAT_AND_DOUBLE(gru_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
