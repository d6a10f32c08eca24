#include "core/pointwise.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& fake_quant_grad_contract() {
  static const Contract c =
      Contract("FakeQuantGrad")
          .summary(
              "Gradient of FakeQuant, straight through the rounding, from the mask that it gave.")
          .formula("dX = gradient_mask ? dY : 0")
          .accuracy(Measure::ulp, 5, 1e-13)
          .input("dY", "T[shape...]", "cotangent of the output")
          .input("gradient_mask", "bool[shape...]", "FakeQuant's second output")
          .output("dX", "T[shape...]", "gradient of the input")
          .inplace("dY", "dX");
  return c;
}

template <class T> void fake_quant_grad(Call& call) {
  const T* dy = call.input<T>("dY").data();
  const bool* mask = call.input<bool>("gradient_mask").data();
  const Span<T> dx = call.output<T>("dX");
  const bool streamed = 2 * dx.size() * Dim(sizeof(T)) > kStreamBytes;
  call.parallel_ranges(dx.size(), kPointwiseGrain, [&](Dim begin, Dim end) {
    fill<T>(dx.part(begin, end - begin), streamed, [&](Dim i, Dim n) ONNXGRAD_LAMBDA {
      return from_bits<T>(bits<T>(load_some<T>(dy + begin + i, n)) &
                          load_mask<T>(mask + begin + i, n));
    });
    stream_done();
  });
}
ONNXGRAD_FLOAT_AND_DOUBLE(fake_quant_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
