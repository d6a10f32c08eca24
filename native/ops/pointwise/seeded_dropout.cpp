#include "core/pointwise.h"
#include "core/random.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& seeded_dropout_contract() {
  static const Contract c =
      Contract("SeededDropout")
          .summary("Dropout whose mask follows from a key, and its own gradient.")
          .formula("Y = random(key, stream, i) < ratio ? 0 : X / (1 - ratio)")
          .accuracy(Measure::rms, 1e-6, 1e-14)
          .attr("ratio", 0.5f, "the share that becomes 0, in [0, 1)")
          .attr("stream", std::int64_t(0),
                "which dropout of a model this is: each has its own mask")
          .input("X", "T[shape...]", "what is thinned out; a cotangent, for the gradient")
          .input("key", "int64[2]", "seed and step: the same key gives the same mask")
          .output("Y", "T[shape...]", "X with some elements 0 and the others scaled up")
          .inplace("X", "Y");
  return c;
}

namespace {

// elements whose random numbers are made at once, in a loop without branches
constexpr Dim kBlock = 512;

}  // namespace

template <class T> void seeded_dropout(Call& call) {
  const double ratio = double(call.real("ratio"));
  if (!(ratio >= 0 && ratio < 1))
    call.fail("ratio is " + std::to_string(ratio) + ", expected 0 <= ratio < 1");
  const Span<const T> x = call.input<T>("X");
  const Span<const std::int64_t> key = call.input<std::int64_t>("key");
  const SeededNumbers numbers(key.data(), call.integer("stream"));
  const std::uint32_t limit = limit_of_share(ratio);
  const T scale = T(1 / (1 - ratio));
  const Span<T> y = call.output<T>("Y");
  call.parallel_ranges(y.size(), pointwise_grain(y.size()), [&](Dim begin, Dim end) {
    std::uint32_t random[kBlock];
    for (Dim at = begin; at < end; at += kBlock) {
      const Dim count = end - at < kBlock ? end - at : kBlock;
      numbers.fill(at, random);
      const T* from = x.data() + at;
      T* to = y.data() + at;
      for (Dim i = 0; i < count; ++i) to[i] = random[i] < limit ? T(0) : from[i] * scale;
    }
  });
}
ONNXGRAD_FLOAT_AND_DOUBLE(seeded_dropout)

}  // namespace onnxgrad::ONNXGRAD_ISA
