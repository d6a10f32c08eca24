// Vec<T>: one hardware register of T, with the few
// operations that the compiler's vector extensions lack.
//
// This header and everything that uses it is compiled once per instruction set,
// in a namespace of its own (ONNXGRAD_ISA, given by CMake); the width follows
// from the instruction set. The only intrinsics of the project are here.
#pragma once
#include <cstdint>
#include <cstring>
#include <utility>

#include "core/span.h"

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#ifndef ONNXGRAD_ISA
#define ONNXGRAD_ISA baseline
#endif

#define ONNXGRAD_INLINE inline __attribute__((always_inline))
#define ONNXGRAD_LAMBDA \
  __attribute__((always_inline))  // after the parameters of a lambda in a hot loop

namespace onnxgrad::ONNXGRAD_ISA {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

#if defined(__FMA__) || defined(__aarch64__)
constexpr bool kHasFma = true;
#else
constexpr bool kHasFma = false;
#endif

// Whether what was tuned for speed is compiled for T, beside the plain form that computes the same:
// for float, on processors that training runs on. Double (which checks gradients) and x86 before
// AVX2 take the plain one, and builds take two thirds of the time.
template <class T> constexpr bool kTuned = kHasFma && sizeof(T) == 4;

namespace detail {
template <class T> struct Register {
  typedef T type __attribute__((vector_size(kVectorBytes)));
};
template <class T> struct Bits;
template <> struct Bits<float> {
  using type = std::int32_t;
};
template <> struct Bits<double> {
  using type = std::int64_t;
};
}  // namespace detail

template <class T> using BitsOf = typename detail::Bits<T>::type;  // the integer as wide as T
template <class T> using Vec =
    typename detail::Register<T>::type;             // + - * / and comparisons are built in
template <class T> using VecBits = Vec<BitsOf<T>>;  // comparisons give this: all ones or 0
template <class T> constexpr Dim lanes = kVectorBytes / Dim(sizeof(T));

template <class T> ONNXGRAD_INLINE Vec<T> splat(T x) {
  return x - Vec<T>{};
}  // x - 0 keeps -0

template <class T> ONNXGRAD_INLINE Vec<T> load(const T* p) {
  Vec<T> v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T> ONNXGRAD_INLINE void store(T* p, Vec<T> v) {
  std::memcpy(p, &v, sizeof v);
}

#if defined(__AVX2__) && !defined(__AVX512F__)
namespace detail {
// All ones in the first `count` lanes.
template <class T> ONNXGRAD_INLINE __m256i first_lanes(Dim count) {
  if constexpr (sizeof(T) == 4)
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(int(count)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  else
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3));
}
// By halves: masked stores take dozens of cycles on AMD.
ONNXGRAD_INLINE void store_first(float* p, Vec<float> v, Dim count) {
  __m128 part = _mm256_castps256_ps128((__m256)v);
  if (count & 4) _mm_storeu_ps(p, part), part = _mm256_extractf128_ps((__m256)v, 1), p += 4;
  if (count & 2)
    _mm_storel_pi(reinterpret_cast<__m64*>(p), part), part = _mm_movehl_ps(part, part), p += 2;
  if (count & 1) _mm_store_ss(p, part);
}
ONNXGRAD_INLINE void store_first(double* p, Vec<double> v, Dim count) {
  __m128d part = _mm256_castpd256_pd128((__m256d)v);
  if (count & 2) _mm_storeu_pd(p, part), part = _mm256_extractf128_pd((__m256d)v, 1), p += 2;
  if (count & 1) _mm_store_sd(p, part);
}
}  // namespace detail
#endif

// The first `count` lanes; the others are 0 on load, untouched on store. For the end of a row, so
// that a tail goes through the same arithmetic, and gives the same bits, as a full register.
template <class T> ONNXGRAD_INLINE Vec<T> load_part(const T* p, Dim count) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4)
    return (Vec<T>)_mm512_maskz_loadu_epi32(__mmask16((1u << count) - 1u), p);
  if constexpr (sizeof(T) == 8)
    return (Vec<T>)_mm512_maskz_loadu_epi64(__mmask8((1u << count) - 1u), p);
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == 4) return (Vec<T>)_mm256_maskload_ps(p, detail::first_lanes<T>(count));
  if constexpr (sizeof(T) == 8) return (Vec<T>)_mm256_maskload_pd(p, detail::first_lanes<T>(count));
#else
  Vec<T> v{};
  std::memcpy(&v, p, static_cast<std::size_t>(count) * sizeof(T));
  return v;
#endif
}
// Lanes [from, to) of the register at p, 0 in the others; their memory is not touched. from <= to.
template <class T> ONNXGRAD_INLINE Vec<T> load_between(const T* p, Dim from, Dim to) {
#if defined(__AVX512F__)
  const unsigned mask = ((1u << to) - 1u) & ~((1u << from) - 1u);
  if constexpr (sizeof(T) == 4) return (Vec<T>)_mm512_maskz_loadu_epi32(__mmask16(mask), p);
  if constexpr (sizeof(T) == 8) return (Vec<T>)_mm512_maskz_loadu_epi64(__mmask8(mask), p);
#elif defined(__AVX2__)
  const __m256i mask =
      _mm256_andnot_si256(detail::first_lanes<T>(from), detail::first_lanes<T>(to));
  if constexpr (sizeof(T) == 4) return (Vec<T>)_mm256_maskload_ps(p, mask);
  if constexpr (sizeof(T) == 8) return (Vec<T>)_mm256_maskload_pd(p, mask);
#else
  if (from == 0 && to == lanes<T>) return load<T>(p);
  T part[lanes<T>] = {};
  for (Dim i = from; i < to; ++i) part[i] = p[i];
  return load<T>(part);
#endif
}
template <class T> ONNXGRAD_INLINE void store_part(T* p, Vec<T> v, Dim count) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4)
    _mm512_mask_storeu_epi32(p, __mmask16((1u << count) - 1u), (__m512i)v);
  if constexpr (sizeof(T) == 8)
    _mm512_mask_storeu_epi64(p, __mmask8((1u << count) - 1u), (__m512i)v);
#elif defined(__AVX2__)
  detail::store_first(p, v, count);
#else
  std::memcpy(p, &v, static_cast<std::size_t>(count) * sizeof(T));
#endif
}
// All ones where one of the first `count` bytes is true, as a mask for lanes of T.
template <class T> ONNXGRAD_INLINE VecBits<T> load_mask(const bool* p, Dim count) {
  typedef signed char Bytes __attribute__((vector_size(sizeof(Vec<T>) / sizeof(T))));
  Bytes bytes{};
  if (count == lanes<T>)
    std::memcpy(&bytes, p, sizeof bytes);
  else
    std::memcpy(&bytes, p, static_cast<std::size_t>(count));
  return __builtin_convertvector(bytes, VecBits<T>) != VecBits<T>{};
}
// A full register, or the first `count` lanes of one.
template <class T> ONNXGRAD_INLINE Vec<T> load_some(const T* p, Dim count) {
  return count == lanes<T> ? load<T>(p) : load_part<T>(p, count);
}
template <class T> ONNXGRAD_INLINE void store_some(T* p, Vec<T> v, Dim count) {
  count == lanes<T> ? store<T>(p, v) : store_part<T>(p, v, count);
}

// The next lanes<double> numbers, as doubles.
template <class T> ONNXGRAD_INLINE Vec<double> load_double(const T* p) {
  typedef T Part __attribute__((vector_size(lanes<double> * sizeof(T))));
  Part part;
  std::memcpy(&part, p, sizeof part);
  return __builtin_convertvector(part, Vec<double>);
}

template <class T> ONNXGRAD_INLINE VecBits<T> bits(Vec<T> v) {
  return (VecBits<T>)v;
}
template <class T> ONNXGRAD_INLINE Vec<T> from_bits(VecBits<T> v) {
  return (Vec<T>)v;
}

template <int... lane> using Lanes = std::integer_sequence<int, lane...>;
template <class T> using EachLane = std::make_integer_sequence<int, int(lanes<T>)>;

// These lanes of a and b, seen as one row; known when it is compiled.
template <class T, int... lane>
ONNXGRAD_INLINE Vec<T> shuffled(Vec<T> a, Vec<T> b, Lanes<lane...>) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, lane...);
#else
  return __builtin_shuffle(a, b, VecBits<T>{lane...});
#endif
}

// where mask: a, elsewhere: b.
template <class M, class V> ONNXGRAD_INLINE V select(M mask, V a, V b) {
  return mask ? a : b;
}

// a*b + c, rounded once where the hardware can. Not written as a*b + c: the compiler would merge
// the product with an equal one elsewhere, and an exact residual fma(t, t, -t*t) would become 0.
ONNXGRAD_INLINE Vec<float> fma(Vec<float> a, Vec<float> b, Vec<float> c) {
#if defined(__AVX512F__)
  return (Vec<float>)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
  return (Vec<float>)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
  return (Vec<float>)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}
ONNXGRAD_INLINE Vec<double> fma(Vec<double> a, Vec<double> b, Vec<double> c) {
#if defined(__AVX512F__)
  return (Vec<double>)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(__FMA__)
  return (Vec<double>)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#elif defined(__aarch64__)
  return (Vec<double>)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
#else
  return a * b + c;
#endif
}

// The smaller of limit and x; NaN in x passes through (x86 returns the second operand on NaN).
ONNXGRAD_INLINE Vec<float> at_most(Vec<float> limit, Vec<float> x) {
#if defined(__AVX512F__)
  return (Vec<float>)_mm512_min_ps((__m512)limit, (__m512)x);
#elif defined(__AVX2__)
  return (Vec<float>)_mm256_min_ps((__m256)limit, (__m256)x);
#else
  return select(x > limit, limit, x);
#endif
}
ONNXGRAD_INLINE Vec<double> at_most(Vec<double> limit, Vec<double> x) {
#if defined(__AVX512F__)
  return (Vec<double>)_mm512_min_pd((__m512d)limit, (__m512d)x);
#elif defined(__AVX2__)
  return (Vec<double>)_mm256_min_pd((__m256d)limit, (__m256d)x);
#else
  return select(x > limit, limit, x);
#endif
}
// The larger of limit and x; NaN in x passes through.
ONNXGRAD_INLINE Vec<float> at_least(Vec<float> limit, Vec<float> x) {
#if defined(__AVX512F__)
  return (Vec<float>)_mm512_max_ps((__m512)limit, (__m512)x);
#elif defined(__AVX2__)
  return (Vec<float>)_mm256_max_ps((__m256)limit, (__m256)x);
#else
  return select(x < limit, limit, x);
#endif
}
ONNXGRAD_INLINE Vec<double> at_least(Vec<double> limit, Vec<double> x) {
#if defined(__AVX512F__)
  return (Vec<double>)_mm512_max_pd((__m512d)limit, (__m512d)x);
#elif defined(__AVX2__)
  return (Vec<double>)_mm256_max_pd((__m256d)limit, (__m256d)x);
#else
  return select(x < limit, limit, x);
#endif
}

// The square root, correctly rounded.
ONNXGRAD_INLINE Vec<float> root(Vec<float> x) {
#if defined(__AVX512F__)
  return (Vec<float>)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX2__)
  return (Vec<float>)_mm256_sqrt_ps((__m256)x);
#elif defined(__SSE2__)
  return (Vec<float>)_mm_sqrt_ps((__m128)x);
#elif defined(__aarch64__)
  return (Vec<float>)vsqrtq_f32((float32x4_t)x);
#endif
}
ONNXGRAD_INLINE Vec<double> root(Vec<double> x) {
#if defined(__AVX512F__)
  return (Vec<double>)_mm512_sqrt_pd((__m512d)x);
#elif defined(__AVX2__)
  return (Vec<double>)_mm256_sqrt_pd((__m256d)x);
#elif defined(__SSE2__)
  return (Vec<double>)_mm_sqrt_pd((__m128d)x);
#elif defined(__aarch64__)
  return (Vec<double>)vsqrtq_f64((float64x2_t)x);
#endif
}

template <class T> constexpr BitsOf<T> kSignBit = BitsOf<T>(1) << (sizeof(T) * 8 - 1);

template <class T> ONNXGRAD_INLINE Vec<T> magnitude(Vec<T> x) {
  return from_bits<T>(bits<T>(x) & ~kSignBit<T>);
}
// |a| with the sign of b.
template <class T> ONNXGRAD_INLINE Vec<T> with_sign(Vec<T> a, Vec<T> b) {
  return from_bits<T>((bits<T>(a) & ~kSignBit<T>) | (bits<T>(b) & kSignBit<T>));
}

namespace detail {
// Each lane plus the one `distance` lanes behind it, counted round.
template <class T, int distance, int... lane>
ONNXGRAD_INLINE Vec<T> fold(Vec<T> v, Lanes<lane...>) {
  return v + shuffled<T>(v, v, Lanes<(lane + distance) % int(lanes<T>)...>{});
}
// Lanes [from, from + lanes<double>) as doubles.
template <int from, int... lane>
ONNXGRAD_INLINE Vec<double> to_double(Vec<float> v, Lanes<lane...>) {
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_convertvector(__builtin_shufflevector(v, v, (from + lane)...), Vec<double>);
#else
  float all[lanes<float>];
  store<float>(all, v);
  return load_double(all + from);
#endif
}
// One behind the other, as floats.
template <int... lane>
ONNXGRAD_INLINE Vec<float> to_float(Vec<double> low, Vec<double> high, Lanes<lane...>) {
  typedef float Half __attribute__((vector_size(sizeof(Vec<float>) / 2)));
  const Half a = __builtin_convertvector(low, Half), b = __builtin_convertvector(high, Half);
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(a, b, lane...);
#else
  float all[lanes<float>];
  std::memcpy(all, &a, sizeof a), std::memcpy(all + lanes<double>, &b, sizeof b);
  return load<float>(all);
#endif
}
}  // namespace detail

ONNXGRAD_INLINE Vec<double> low_half(Vec<float> v) {
  return detail::to_double<0>(v, EachLane<double>{});
}
ONNXGRAD_INLINE Vec<double> high_half(Vec<float> v) {
  return detail::to_double<int(lanes<double>)>(v, EachLane<double>{});
}
ONNXGRAD_INLINE Vec<float> to_float(Vec<double> low, Vec<double> high) {
  return detail::to_float(low, high, EachLane<float>{});
}

// Sums of the lanes stay in registers: through memory they would wait
// for every store before them, and stores past the caches take long.

// By halves: a fixed order, so the same bits every time.
template <class T> ONNXGRAD_INLINE T sum_lanes(Vec<T> v) {
  if constexpr (lanes<T> >= 16) v = detail::fold<T, 8>(v, EachLane<T>{});
  if constexpr (lanes<T> >= 8) v = detail::fold<T, 4>(v, EachLane<T>{});
  if constexpr (lanes<T> >= 4) v = detail::fold<T, 2>(v, EachLane<T>{});
  return detail::fold<T, 1>(v, EachLane<T>{})[0];
}

ONNXGRAD_INLINE double sum_in_double(Vec<double> v) {
  return sum_lanes<double>(v);
}
ONNXGRAD_INLINE double sum_in_double(Vec<float> v) {
  return sum_lanes<double>(low_half(v) + high_half(v));
}

// Stores past the caches: worth it when a result is larger than the last-level
// cache, because a normal store reads the line before writing it
// (a third of the traffic of dX = f(dY, X)). `p` aligned to kVectorBytes.
template <class T> ONNXGRAD_INLINE void stream(T* p, Vec<T> v) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(p), (__m512i)v);
#elif defined(__AVX2__)
  _mm256_stream_si256(reinterpret_cast<__m256i*>(p), (__m256i)v);
#elif defined(__SSE2__)
  _mm_stream_si128(reinterpret_cast<__m128i*>(p), (__m128i)v);
#else
  store<T>(p, v);
#endif
}
// After the last stream() of a chunk, before another thread may read it.
ONNXGRAD_INLINE void stream_done() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace onnxgrad::ONNXGRAD_ISA
