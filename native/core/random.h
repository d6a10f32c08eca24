// Random numbers without state: the number of element i is a hash of (seed, step, stream, i), so
// any thread can make any part of a mask, and a gradient makes it anew instead of keeping it.
#pragma once
#include <cstdint>

#include "core/vector.h"

namespace onnxgrad::ONNXGRAD_ISA {

namespace detail {

inline std::uint64_t split_mix(std::uint64_t z) {  // the finalizer of SplitMix64
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

}  // namespace detail

class SeededNumbers {
 public:
  // `key` holds seed and step.
  SeededNumbers(const std::int64_t* key, std::int64_t stream) {
    std::uint64_t seed = detail::split_mix(static_cast<std::uint64_t>(key[0]));
    seed = detail::split_mix(seed ^ static_cast<std::uint64_t>(key[1]));
    seed = detail::split_mix(seed ^ static_cast<std::uint64_t>(stream));
    low_ = static_cast<std::uint32_t>(seed), high_ = static_cast<std::uint32_t>(seed >> 32);
  }
  // numbers[i] = the number of element first + i. The count is a constant, so that the loop
  // has no branches; elements whose index does not differ from `first` in its upper half.
  template <Dim count> ONNXGRAD_INLINE void fill(Dim first, std::uint32_t (&numbers)[count]) const {
    const auto above = static_cast<std::uint32_t>(first >> 32) * 0x9E3779B9u;
    const auto from = static_cast<std::uint32_t>(first);
    for (std::uint32_t i = 0; i < std::uint32_t(count); ++i)
      numbers[i] = detail::mixed(detail::mixed((from + i) ^ low_ ^ above) + high_);
  }

 private:
  std::uint32_t low_, high_;
};

// Numbers below it are the share `ratio` of all, 0 <= ratio < 1.
inline std::uint32_t limit_of_share(double ratio) {
  return static_cast<std::uint32_t>(ratio * 4294967296.0);
}

}  // namespace onnxgrad::ONNXGRAD_ISA
