#include "core/pointwise.h"
#include "core/vmath.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& gelu_training_contract() {
  static const Contract c =
      Contract("GeluTraining")
          .summary("Gelu, its tanh form, X·sigmoid(alpha·X), and HardSwish: X times a gate of X.")
          .formula(
              "erf: X·Φ(X); tanh: X·sigmoid(2u), u = √(2/π)·(X + 0.044715·X³); "
              "sigmoid: X·sigmoid(alpha·X); hard: X·min(max(X/6 + 1/2, 0), 1)")
          .accuracy(Measure::rms, 1e-6, 1e-14)
          .attr("form", "erf", {"erf", "tanh", "sigmoid", "hard"}, "which gate")
          .attr("alpha", 1.0f, "of the sigmoid form; 1: Swish, 1.702: QuickGelu")
          .input("X", "T[shape...]", "what goes in")
          .output("Y", "T[shape...]", "the activation");
  return c;
}

template <class T> void gelu_training(Call& call) {
  const Span<const T> x = call.input<T>("X");
  const Vec<T> alpha = splat<T>(T(call.real("alpha")));
  const std::string& form = call.text("form");
  const Span<T> y = call.output<T>("Y");
  const bool streamed = 2 * y.size() * Dim(sizeof(T)) > kStreamBytes;
  const auto run = [&](auto unit) {
    call.parallel_ranges(y.size(), pointwise_grain(y.size()), [&](Dim begin, Dim end) {
      const T* from = x.data() + begin;
      fill<T>(y.part(begin, end - begin), streamed, [&](Dim i, Dim count) ONNXGRAD_LAMBDA {
        return unit(load_some<T>(from + i, count));
      });
      stream_done();
    });
  };
  if (form == "erf")
    run([](Vec<T> v) ONNXGRAD_LAMBDA { return gelu<T>(v); });
  else if (form == "tanh")
    run([](Vec<T> v) ONNXGRAD_LAMBDA { return fast_gelu<T>(v); });
  else if (form == "hard")
    run([](Vec<T> v) ONNXGRAD_LAMBDA {
      const Vec<T> gate = fma(v, splat<T>(T(1) / T(6)), splat<T>(T(0.5)));
      return v * at_most(splat<T>(T(1)), at_least(Vec<T>{}, gate));
    });
  else
    run([alpha](Vec<T> v) ONNXGRAD_LAMBDA { return v * sigmoid<T>(alpha * v); });
}
ONNXGRAD_FLOAT_AND_DOUBLE(gelu_training)

}  // namespace onnxgrad::ONNXGRAD_ISA
