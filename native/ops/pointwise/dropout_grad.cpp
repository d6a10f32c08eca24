#include "core/pointwise.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& dropout_grad_contract() {
  static const Contract c =
      Contract("DropoutGrad")
          .summary("Gradient of Dropout, from the mask that it gave.")
          .formula(
              "dx = dy / (1 − ratio) where the mask is true, else 0; dy itself when training_mode "
              "is false")
          .accuracy(Measure::rms, 2e-7, 1e-15)
          .input("dy", "T[shape...]", "cotangent of the output")
          .input("mask", "bool[shape...]", "what Dropout kept; its second output")
          .optional("ratio", "T[]", "the share that was dropped; 0.5 when absent")
          .optional("training_mode", "bool[]", "whether anything was dropped; true when absent")
          .output("dx", "T[shape...]", "gradient of the input");
  return c;
}

template <class T> void dropout_grad(Call& call) {
  const T ratio = call.has("ratio") ? call.input<T>("ratio")[0] : T(0.5);
  const bool training = !call.has("training_mode") || call.input<bool>("training_mode")[0];
  if (!(ratio >= T(0) && ratio < T(1)))
    call.fail("input ratio is " + to_string(Attribute(float(ratio))) +
              ", expected at least 0 and less than 1");
  const Span<const T> dy = call.input<T>("dy");
  const bool* mask = call.input<bool>("mask").data();
  const Span<T> dx = call.output<T>("dx");
  const T factor = T(1) / (T(1) - ratio);
  const bool drops = training && ratio != T(0),
             streamed = 2 * dx.size() * Dim(sizeof(T)) > kStreamBytes;
  call.parallel_ranges(dx.size(), pointwise_grain(dx.size()), [&](Dim begin, Dim end) {
    const Span<T> out = dx.part(begin, end - begin);
    const T* in = dy.data() + begin;
    const bool* kept = mask + begin;
    if (drops)
      fill<T>(out, streamed, [&](Dim i, Dim n) ONNXGRAD_LAMBDA {
        return from_bits<T>(bits<T>(load_some<T>(in + i, n) * splat<T>(factor)) &
                            load_mask<T>(kept + i, n));
      });
    else
      fill<T>(out, streamed, [&](Dim i, Dim n) ONNXGRAD_LAMBDA { return load_some<T>(in + i, n); });
    stream_done();
  });
}
ONNXGRAD_FLOAT_AND_DOUBLE(dropout_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
