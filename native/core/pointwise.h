// dX[i] = f(dY[i], X[i]) over whole tensors, at the speed of the memory.
#pragma once
#include "core/call.h"
#include "core/vector.h"

namespace onnxgrad::ONNXGRAD_ISA {

// Elements per piece of work: about 20 µs, above the cost of waking a thread.
constexpr Dim kPointwiseGrain = Dim(1) << 15;
// The same where threads are woken anyway, and there are few such pieces: shorter ones.
inline Dim pointwise_grain(Dim size) {
  return size > kPointwiseGrain && size < 16 * kPointwiseGrain ? kPointwiseGrain / 4
                                                               : kPointwiseGrain;
}

// Above this many bytes read and written, the result
// is streamed past the caches (it would not fit them).
constexpr Dim kStreamBytes = Dim(24) << 20;

// How many of the first elements lie before an aligned address; 0 when there is no full register.
template <class T> ONNXGRAD_INLINE Dim until_aligned(const T* p, Dim size) {
  const auto beyond = Dim(reinterpret_cast<std::uintptr_t>(p) % kVectorBytes);
  const Dim head = beyond ? (kVectorBytes - beyond) / Dim(sizeof(T)) : 0;
  return size < lanes<T> ? 0 : head;
}

// A full register, past the caches or not.
template <class T> ONNXGRAD_INLINE void put(T* p, Vec<T> v, bool streamed) {
  streamed ? stream<T>(p, v) : store<T>(p, v);
}

// Registers that are computed before the first of them is stored. A load waits for a store before
// it when the two addresses agree in their last 12 bits, though the memory differs, and arrays
// that were allocated one after the other lie like that: a little more than whole pages apart.
// Stored one by one, ReluGrad took a quarter longer on them, LogSoftmaxGrad a half.
constexpr int kTogether = 4;

// out[i, i + count) = f(i, count), a register at a time; count is short only at the ends. A
// streamed piece of work ends with stream_done(), once: it waits for the memory.
template <class T, class F> ONNXGRAD_INLINE void fill(Span<T> out, bool streamed, F&& f) {
  constexpr Dim group = kTogether * lanes<T>;
  Dim i = streamed ? until_aligned(out.data(), out.size()) : 0;
  if (i > 0) store_part<T>(out.data(), f(0, i), i);
  Vec<T> value[kTogether];
  for (; i + group <= out.size(); i += group) {
    for (int k = 0; k < kTogether; ++k) value[k] = f(i + k * lanes<T>, lanes<T>);
    for (int k = 0; k < kTogether; ++k) put<T>(out.data() + i + k * lanes<T>, value[k], streamed);
  }
  for (; i + lanes<T> <= out.size(); i += lanes<T>)
    put<T>(out.data() + i, f(i, lanes<T>), streamed);
  if (i < out.size()) store_part<T>(out.data() + i, f(i, out.size() - i), out.size() - i);
}

// dX = f(dY, X), element by element; dX may be the memory of dY or of X.
template <class T, class F> void pointwise(Call& call, std::string_view dy_name,
                                           std::string_view x_name, std::string_view dx_name, F f) {
  const Span<const T> dy = call.input<T>(dy_name), x = call.input<T>(x_name);
  const Span<T> dx = call.output<T>(dx_name);
  const bool streamed = 3 * dx.size() * Dim(sizeof(T)) > kStreamBytes;
  call.parallel_ranges(dx.size(), pointwise_grain(dx.size()), [&](Dim begin, Dim end) {
    const T *dy_part = dy.data() + begin, *x_part = x.data() + begin;
    fill<T>(dx.part(begin, end - begin), streamed, [&](Dim i, Dim count) ONNXGRAD_LAMBDA {
      return f(load_some<T>(dy_part + i, count), load_some<T>(x_part + i, count));
    });
    stream_done();
  });
}

}  // namespace onnxgrad::ONNXGRAD_ISA
