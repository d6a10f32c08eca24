#include "core/pointwise.h"
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

std::uint64_t mixed(std::uint64_t z) {  // the finalizer of SplitMix64
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

ONNXGRAD_INLINE std::uint32_t mixed(std::uint32_t h) {
  h = (h ^ (h >> 16)) * 0x7FEB352Du;
  h = (h ^ (h >> 15)) * 0x846CA68Bu;
  return h ^ (h >> 16);
}

constexpr Dim kBlock =
    512;  // elements whose random numbers are made at once, in a loop without branches

}  // namespace

// The number of element i is a hash of (key, stream, i): no state, so any thread
// can make any part, and the gradient makes the mask anew instead of keeping it.
template <class T> void seeded_dropout(Call& call) {
  const double ratio = double(call.real("ratio"));
  if (!(ratio >= 0 && ratio < 1))
    call.fail("ratio is " + std::to_string(ratio) + ", expected 0 <= ratio < 1");
  const Span<const T> x = call.input<T>("X");
  const Span<const std::int64_t> key = call.input<std::int64_t>("key");
  std::uint64_t seed = mixed(static_cast<std::uint64_t>(key[0]));
  seed = mixed(seed ^ static_cast<std::uint64_t>(key[1]));
  seed = mixed(seed ^ static_cast<std::uint64_t>(call.integer("stream")));
  const auto low = static_cast<std::uint32_t>(seed), high = static_cast<std::uint32_t>(seed >> 32);
  const auto limit = static_cast<std::uint32_t>(ratio * 4294967296.0);
  const T scale = T(1 / (1 - ratio));
  const Span<T> y = call.output<T>("Y");
  call.parallel_ranges(y.size(), kPointwiseGrain, [&](Dim begin, Dim end) {
    std::uint32_t random[kBlock];
    for (Dim at = begin; at < end; at += kBlock) {
      const Dim count = end - at < kBlock ? end - at : kBlock;
      const auto above = static_cast<std::uint32_t>(at >> 32) * 0x9E3779B9u;  // beyond 2³² elements
      const std::uint32_t first = static_cast<std::uint32_t>(at);
      for (std::uint32_t i = 0; i < std::uint32_t(kBlock); ++i)
        random[i] = mixed(mixed((first + i) ^ low ^ above) + high);
      const T* from = x.data() + at;
      T* to = y.data() + at;
      for (Dim i = 0; i < count; ++i) to[i] = random[i] < limit ? T(0) : from[i] * scale;
    }
  });
}
ONNXGRAD_FLOAT_AND_DOUBLE(seeded_dropout)

}  // namespace onnxgrad::ONNXGRAD_ISA
