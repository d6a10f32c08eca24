#include "core/reduce.h"
#include "ops/gather/gather_family.h"
#include "ops/pointwise/gate.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& gate_grad_contract() {
  static const Contract c =
      with_gate_attributes(Contract("GateGrad"))
          .summary("Gradient of a gate: both halves in one pass.")
          .formula(
              "X = [A, B], s = sigmoid(B): dA = dY·s·(1 − tanh(A)²), dB = dY·tanh(A)·s·(1 − s); "
              "linear: A for tanh(A), 1 for its derivative")
          .accuracy(Measure::rms, 1e-6, 1e-14)
          .input("dY", "T[half...]", "cotangent of Y")
          .input("X", "T[shape...]", "what went into the gate")
          .output("dX", "T[shape...]", "gradient of X");
  return c;
}

namespace {

// sigmoid(x) and its derivative e/(1 + e)², e = e^(−|x|): nothing cancels far from 0.
template <class T> struct SigmoidParts {
  Vec<T> value, slope;
  ONNXGRAD_INLINE explicit SigmoidParts(Vec<T> x) {
    const Vec<T> e = exp<T>(-magnitude<T>(x)), r = T(1) / (T(1) + e);
    slope = e * r * r;
    value = select(x < Vec<T>{}, e * r, r);
  }
};

}  // namespace

template <class T> void gate_grad(Call& call) {
  const GateShape s = GateShape::of(call);
  check_shape(call, "dY", s.y, [] { return "half of X along the axis"; });
  const T *dy = call.input<T>("dY").data(), *x = call.input<T>("X").data();
  const bool curved = call.text("form") == "tanh";
  T* dx = call.output<T>("dX").data();
  s.each_run(call, [&](Dim first, Dim at, Dim count) {
    each_register<T>(0, count, [&](Dim i, Dim n) ONNXGRAD_LAMBDA {
      const Vec<T> a = load_some<T>(x + at + i, n), g = load_some<T>(dy + first + i, n);
      const SigmoidParts<T> gate(load_some<T>(x + at + s.half + i, n));
      // 1 − tanh(a)² is four times the derivative of the sigmoid at 2a
      const Vec<T> slope = curved ? SigmoidParts<T>(a + a).slope * T(4) : splat<T>(T(1));
      const Vec<T> what = curved ? tanh<T>(a) : a;
      store_some<T>(dx + at + i, g * gate.value * slope, n);
      store_some<T>(dx + at + s.half + i, g * what * gate.slope, n);
    });
  });
}
ONNXGRAD_FLOAT_AND_DOUBLE(gate_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
