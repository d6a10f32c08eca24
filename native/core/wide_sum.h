// Sums that lose nothing but their last rounding, for results of which the terms may cancel:
// float is summed in double, and double with what its additions round off.
#pragma once
#include "core/vector.h"

namespace onnxgrad::ONNXGRAD_ISA {

// A sum of doubles (V) that are exact; where T is double, with what each addition rounds off (Knuth
// 1969, two-sum) and each product (Dekker 1971; needs a fused multiply-add).
template <class T, class V> struct WideSum {
  static constexpr bool compensated = sizeof(T) == sizeof(double);
  V high{}, low{};

  ONNXGRAD_INLINE void add(V x) {
    const V sum = high + x, added = sum - high;
    if constexpr (compensated) low += (high - (sum - added)) + (x - added);
    high = sum;
  }
  ONNXGRAD_INLINE void add(const WideSum& other) { add(other.high), low += other.low; }
  ONNXGRAD_INLINE void add_product(V a, V b) {
    const V product = a * b;
    if constexpr (compensated && sizeof(V) > sizeof(double)) low += fma(a, b, -product);
    add(product);
  }
  // Of each lane, where V is a register.
  ONNXGRAD_INLINE V of_lanes() const { return high + select(low == low, low, V{}); }
  ONNXGRAD_INLINE V value() const {
    return low == low ? high + low : high;
  }  // an infinite sum has no rest
};
using LongSum = WideSum<double, double>;

template <class T> WideSum<T, double> sum_of_lanes(const WideSum<T, Vec<double>>& sum) {
  WideSum<T, double> total;
  for (Dim i = 0; i < lanes<double>; ++i) total.add({sum.high[i], sum.low[i]});
  return total;
}

template <class T> WideSum<T, double> wide_sum(const T* from, Dim count) {
  constexpr int chains = 4;  // independent additions hide each other's latency
  WideSum<T, Vec<double>> sums[chains];
  Dim i = 0;
  for (; i + chains * lanes<double> <= count; i += chains * lanes<double>)
#pragma GCC unroll 4
    for (int c = 0; c < chains; ++c) sums[c].add(load_double(from + i + c * lanes<double>));
  for (; i + lanes<double> <= count; i += lanes<double>) sums[0].add(load_double(from + i));
  for (int c = 1; c < chains; ++c) sums[0].add(sums[c]);
  WideSum<T, double> total = sum_of_lanes(sums[0]);
  for (; i < count; ++i) total.add(double(from[i]));
  return total;
}

}  // namespace onnxgrad::ONNXGRAD_ISA
