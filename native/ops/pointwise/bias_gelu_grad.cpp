#include "ops/pointwise/bias_gelu_grad.h"
#include "core/reduce.h"
#include "core/vmath.h"
#include "core/workspace.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& bias_gelu_grad_contract() {
  static const Contract c =
      Contract("BiasGeluGrad")
          .summary("Gradient of BiasGelu, Gelu(X + B), for X and for the bias.")
          .formula("dX = GeluGrad(dY, X + B); dB = Σ dX over all dims but the last")
          .accuracy(Measure::rms, 2e-6, 1e-13)
          .accuracy_of("dX", Measure::ulp, 5, 1e-13)  // as BiasGeluGrad_dX
          .input("dY", "T[outer..., C]", "cotangent of Y")
          .input("X", "T[outer..., C]", "what went in, before the bias")
          .input("B", "T[C]", "bias")
          .output("dX", "T[outer..., C]", "gradient of X")
          .output("dB", "T[C]", "gradient of the bias");
  return c;
}

// dB is summed while dX is still in registers: a second pass would read all of it again.
template <class T> void bias_gelu_grad(Call& call) {
  const Dim channels = call.dim("C"), rows = call.dims("outer...").size();
  const RowBlocks blocks = RowBlocks::of(rows, channels, kPointwiseGrain);
  Workspace space;
  const auto partials = space.shared<T>(blocks.count * channels);
  Workspace::acquire(call, space.bytes());
  const T *dy = call.input<T>("dY").data(), *x = call.input<T>("X").data(),
          *b = call.input<T>("B").data();
  T* dx = call.output<T>("dX").data();
  const Span<T> db = call.output<T>("dB");
  space.open();
  T* partial = space[partials].data();
  call.parallel_for(blocks.count, [&](Dim block) {
    T* sums = partial + block * channels;
    for (Dim c = 0; c < channels; ++c) sums[c] = T(0);
    for (Dim row = blocks.begin(block); row < blocks.end(block); ++row)
      each_register<T>(0, channels, [&](Dim c, Dim n) ONNXGRAD_LAMBDA {
        const Dim at = row * channels + c;
        const Vec<T> d = load_some<T>(dy + at, n) *
                         gelu_derivative<T>(load_some<T>(x + at, n) + load_some<T>(b + c, n));
        store_some<T>(dx + at, d, n);
        store_some<T>(sums + c, load_some<T>(sums + c, n) + d, n);
      });
  });
  sum_partials<T>(call, partial, blocks.count, channels, db);
}
ONNXGRAD_FLOAT_AND_DOUBLE(bias_gelu_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
