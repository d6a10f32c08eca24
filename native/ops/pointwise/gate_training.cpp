#include "ops/pointwise/gate.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& gate_training_contract() {
  static const Contract c =
      with_gate_attributes(Contract("GateTraining"))
          .summary("A gate: one half of an axis through the sigmoid of the other.")
          .formula("X = [A, B]: tanh: Y = tanh(A)·sigmoid(B); linear: Y = A·sigmoid(B)")
          .accuracy(Measure::rms, 1e-6, 1e-14)
          .input("X", "T[shape...]", "both halves")
          .output("Y", "T[half...]", "half as much along the axis");
  return c;
}

template <class T> void gate_training(Call& call) {
  const GateShape s = GateShape::of(call);
  call.set_dims("half...", s.y);
  const T* x = call.input<T>("X").data();
  const bool curved = call.text("form") == "tanh";
  const Span<T> y = call.output<T>("Y");
  const bool streamed = 3 * y.size() * Dim(sizeof(T)) > kStreamBytes;
  s.each_run(call, [&](Dim to, Dim from, Dim count) {
    const T *a = x + from, *b = a + s.half;
    const Span<T> out = y.part(to, count);
    if (curved)
      fill<T>(out, streamed, [&](Dim i, Dim n) ONNXGRAD_LAMBDA {
        return tanh<T>(load_some<T>(a + i, n)) * sigmoid<T>(load_some<T>(b + i, n));
      });
    else
      fill<T>(out, streamed, [&](Dim i, Dim n) ONNXGRAD_LAMBDA {
        return load_some<T>(a + i, n) * sigmoid<T>(load_some<T>(b + i, n));
      });
  });
}
ONNXGRAD_FLOAT_AND_DOUBLE(gate_training)

}  // namespace onnxgrad::ONNXGRAD_ISA
