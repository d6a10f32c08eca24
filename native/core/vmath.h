// Elementary functions on registers. Each states its error
// (measured over the range by native/tests/test_vmath.cpp) and its range.
// Coefficients come from tools/fit_vmath.py. NaN in gives NaN out, everywhere.
#pragma once
#include <cmath>
#include <limits>

#include "core/vector.h"

namespace onnxgrad::ONNXGRAD_ISA {

namespace detail {

template <class T> struct Constants;

template <> struct Constants<float> {
  static constexpr float round_magic =
      12582912.f;  // 1.5 * 2^23: adding it leaves the integer in the low bits
  static constexpr int mantissa_bits = 23;
  static constexpr float ln2_high = 0.693145752f;  // 14 bits: n * ln2_high is exact
  static constexpr float ln2_low = 1.42860677e-6f;
  static constexpr float exp_lowest = -87.33654f;  // ln of the smallest normal number
  static constexpr float exp_highest = 88.72283f;  // above: +inf
  static constexpr float tanh_limit = 9.02f;       // above: tanh rounds to 1
  static constexpr float gelu_limit = 14.5f;       // beyond: the derivative rounds to 0 or 1
  static constexpr float fast_gelu_limit = 10.2f;
  // q(r) of exp(r) = 1 + r + r² q(r), |r| <= ln2/2; fit error 7.8e-9
  static constexpr float exp_tail[] = {0.5f, 0.16666576f, 0.041666556f, 0.008363179f,
                                       0.0013926184f};
  static constexpr float exp2_lowest = -126;
  // (2^r - 1)/r, |r| <= 1/2; fit error 3.9e-9
  static constexpr float exp2_slope[] = {0.6931472f,   0.2402265f,    0.05550357f,
                                         0.009618082f, 0.0013390875f, 0.00015453174f};
  // exp(t²/2) Q(t) = mills(t)/mills_below(t), 0 <= t <= 14.5; fit error 6e-9 relative
  static constexpr float mills[] = {0.5f, 0.43829638f, 0.18323563f, 0.040633228f, 0.0041162595f};
  static constexpr float mills_below[] = {1.f,         1.6744777f,   1.2025064f,
                                          0.46947178f, 0.101858847f, 0.010317813f};
  // mills(t) - t/√(2π) mills_below(t): one polynomial,
  // because the difference of the two would cancel
  static constexpr float gelu_tail[] = {0.5f,         0.039354097f, -0.48478433f,  -0.43909743f,
                                        -0.18317588f, -0.0406358f,  -0.0041162116f};
  // erf(x)/x in x², |x| <= 1; fit error 1.3e-9
  static constexpr float erf_small[] = {1.1283791f,    -0.37612626f,    0.11283594f,  -0.026854211f,
                                        0.0051890872f, -0.00080168643f, 7.875875e-05f};
};

template <> struct Constants<double> {
  static constexpr double round_magic = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr int mantissa_bits = 52;
  static constexpr double ln2_high = 0.69314718036912381649;  // 33 bits
  static constexpr double ln2_low = 1.90821492927058770002e-10;
  static constexpr double exp_lowest = -708.3964185322641;
  static constexpr double exp_highest = 709.782712893384;
  static constexpr double tanh_limit = 19.1;
  static constexpr double gelu_limit = 38.6;
  static constexpr double fast_gelu_limit = 22.0;
  static constexpr double exp_tail[] = {// fit error 1.3e-17
                                        0.5000000000000001,     0.16666666666666669,
                                        0.04166666666662413,    0.008333333333330062,
                                        0.0013888888917213717,  0.00019841269863053618,
                                        2.4801521295954376e-05, 2.7557268459997064e-06,
                                        2.7620088445409746e-07, 2.510038549551032e-08};
  static constexpr double exp2_lowest = -1022;
  static constexpr double exp2_slope[] = {
      // fit error 6.3e-18
      0.6931471805599453,     0.24022650695910097,    0.0555041086648216,     0.009618129107606871,
      0.0013333558146416927,  0.00015403530441765088, 1.5252733829851596e-05, 1.321544257022465e-06,
      1.0178062436412765e-07, 7.072589488396345e-09,  4.4549624846332125e-10};
  static constexpr double mills_center = 4.0;  // 0 <= t <= 39; fit error 1.1e-16 relative
  static constexpr double mills[] = {
      0.09441064130196894,    -0.17039772154845542,    0.12437925533926304,
      -0.07170740733773605,   0.03086480410634067,     -0.008492095482133259,
      0.0005075620745523179,  0.0006388138518540152,   -0.00018718426406679652,
      -4.555489376075317e-05, 2.8648308433846264e-05,  4.6315455293707835e-06,
      -4.30340111060603e-06,  -8.293245370311981e-07,  6.610712539649583e-07,
      2.056895922776015e-07,  -9.3403523799668e-08,    -5.214419249393428e-08,
      8.541490176963152e-09,  1.1064683262182795e-08,  6.482404031728881e-10,
      -1.443612214774916e-09, -3.2380045819253327e-10, 2.1810003849023285e-11};
  static constexpr double erf_small[] = {
      // fit error 3.4e-23
      1.1283791670955126,     -0.37612638903183754,    0.11283791670955126,
      -0.026866170645131218,  0.005223977625441674,    -0.0008548327023403001,
      0.00012055332978879483, -1.4925650236967501e-05, 1.6462110782018636e-06,
      -1.636576864883207e-07, 1.4806027146128752e-08,  -1.2277734486795524e-09,
      9.323723518153027e-11,  -6.1967364287877e-12,    2.8067128195611264e-13};
};

// c[0] + c[1] x + c[2] x² + …
template <std::size_t From = 0, class T, std::size_t N>
ONNXGRAD_INLINE Vec<T> polynomial(const T (&c)[N], Vec<T> x) {
  if constexpr (From + 1 == N)
    return splat<T>(c[From]);
  else
    return fma(polynomial<From + 1>(c, x), x, splat<T>(c[From]));
}

// x = n ln2 + r with |r| <= ln2/2:  exp(x) = 2^n (1 + p),  p = exp(r) - 1.
template <class T> struct ExpParts {
  Vec<T> p;             // exp(r + low) - 1
  VecBits<T> exponent;  // n, shifted to where the exponent of a float stands
};
// x within [exp_lowest, exp_highest]; `low` is a correction far below the last bit of x.
template <class T> ONNXGRAD_INLINE ExpParts<T> exp_parts(Vec<T> x, Vec<T> low) {
  using C = Constants<T>;
  const Vec<T> shifted = fma(x, splat<T>(T(1.4426950408889634)), splat<T>(C::round_magic));
  const Vec<T> n = shifted - splat<T>(C::round_magic);
  Vec<T> r = fma(n, splat<T>(-C::ln2_high), x);
  r = fma(n, splat<T>(-C::ln2_low), r) + low;
  return {fma(polynomial(C::exp_tail, r), r * r, r), bits<T>(shifted) << C::mantissa_bits};
}
// 2^n. A product with it keeps NaN; adding the exponent to the bits of a NaN would not.
template <class T> ONNXGRAD_INLINE Vec<T> power_of_two(VecBits<T> exponent) {
  return from_bits<T>(bits<T>(splat<T>(T(1))) + exponent);
}

// exp(x + low) for x <= 0; 0 where the result would be subnormal. 1 ulp.
template <class T> ONNXGRAD_INLINE Vec<T> exp_negative(Vec<T> x, Vec<T> low = Vec<T>{}) {
  using C = Constants<T>;
  const ExpParts<T> e = exp_parts<T>(at_least(splat<T>(C::exp_lowest), x), low);
  const Vec<T> power = power_of_two<T>(e.exponent);
  return select(x < splat<T>(C::exp_lowest), Vec<T>{}, fma(power, e.p, power));
}

// 2^(x + low) for x <= 0 (x < 127.5 in float and 1023.5 in double);
// 0 where the result would be subnormal. 1 ulp. With the factor log2(e) inside
// constants that the caller has anyway, three products cheaper than exp_negative.
template <class T> ONNXGRAD_INLINE Vec<T> exp2_negative(Vec<T> x, Vec<T> low) {
  using C = Constants<T>;
  const Vec<T> bounded = at_least(splat<T>(C::exp2_lowest), x);
  const Vec<T> shifted = bounded + C::round_magic;
  const Vec<T> r = bounded - (shifted - C::round_magic) + low;
  const Vec<T> power = power_of_two<T>(bits<T>(shifted) << C::mantissa_bits);
  return select(x < splat<T>(C::exp2_lowest), Vec<T>{},
                fma(power, r * polynomial(C::exp2_slope, r), power));
}

// a b = high + low exactly: without the residual of t², exp(-t²/2) loses 65 ulp at t = 13.
template <class T> struct Product {
  Vec<T> high, low;
};
template <class T> ONNXGRAD_INLINE Product<T> exact_product(Vec<T> a, Vec<T> b) {
  const Vec<T> high = a * b;
  if constexpr (kHasFma) return {high, fma(a, b, -high)};
  // Without fma: split both into halves whose products are exact (Dekker).
  constexpr BitsOf<T> kUpper = ~((BitsOf<T>(1) << (Constants<T>::mantissa_bits / 2 + 1)) - 1);
  const Vec<T> a1 = from_bits<T>(bits<T>(a) & kUpper), a2 = a - a1;
  const Vec<T> b1 = from_bits<T>(bits<T>(b) & kUpper), b2 = b - b1;
  return {high, ((a1 * b1 - high) + (a1 * b2 + a2 * b1)) + a2 * b2};
}

// exp(t²/2) Q(t) for 0 <= t <= gelu_limit, Q the upper tail of the normal distribution. 2 ulp.
ONNXGRAD_INLINE Vec<float> mills(Vec<float> t) {
  using C = Constants<float>;
  return polynomial(C::mills, t) / polynomial(C::mills_below, t);
}
ONNXGRAD_INLINE Vec<double> mills(Vec<double> t) {
  using C = Constants<double>;
  return polynomial(C::mills, (t - C::mills_center) / (t + C::mills_center));
}

// mills(t) - t/√(2π)
ONNXGRAD_INLINE Vec<float> gelu_tail(Vec<float> t) {
  using C = Constants<float>;
  return polynomial(C::gelu_tail, t) / polynomial(C::mills_below, t);
}
ONNXGRAD_INLINE Vec<double> gelu_tail(Vec<double> t) {
  return fma(t, splat<double>(-0.3989422804014327), mills(t));
}

}  // namespace detail

// e^x. 1 ulp; results below the smallest normal number are 0, above the largest +inf.
template <class T> ONNXGRAD_INLINE Vec<T> exp(Vec<T> x) {
  using C = detail::Constants<T>;
  const Vec<T> lowest = splat<T>(C::exp_lowest), highest = splat<T>(C::exp_highest);
  const auto e = detail::exp_parts<T>(at_most(highest, at_least(lowest, x)), Vec<T>{});
  // 2^n itself overflows near the top, where the result does not: scale by 2^(n-1), then by 2.
  const Vec<T> half = detail::power_of_two<T>(e.exponent - (BitsOf<T>(1) << C::mantissa_bits));
  Vec<T> y = fma(half, e.p, half) * T(2);
  y = select(x < lowest, Vec<T>{}, y);
  return select(x > highest, splat<T>(std::numeric_limits<T>::infinity()), y);
}

// e^x of a logarithm of a probability, x <= 0. 1 ulp; results below the smallest normal number
// are 0. What cannot be such a logarithm, x > 88 (709 in double), gives a number near the largest.
template <class T> ONNXGRAD_INLINE Vec<T> exp_of_log(Vec<T> x) {
  return detail::exp_negative<T>(at_most(splat<T>(sizeof(T) == 4 ? T(88) : T(709)), x));
}

// tanh(x) = m/(m + 2) with m = e^(2|x|) - 1, which keeps small x exact. 3 ulp.
template <class T> ONNXGRAD_INLINE Vec<T> tanh(Vec<T> x) {
  using C = detail::Constants<T>;
  const Vec<T> t = at_most(splat<T>(C::tanh_limit), magnitude<T>(x));
  const auto e = detail::exp_parts<T>(t + t, Vec<T>{});
  const Vec<T> power = detail::power_of_two<T>(e.exponent);
  const Vec<T> m = fma(power, e.p, power - T(1));
  return with_sign<T>(m / (m + T(2)), x);
}

// 1/(1 + e^-x). 3 ulp, also in the negative tail.
template <class T> ONNXGRAD_INLINE Vec<T> sigmoid(Vec<T> x) {
  const Vec<T> e = detail::exp_negative<T>(-magnitude<T>(x)), r = T(1) / (T(1) + e);
  return select(x < Vec<T>{}, e * r, r);
}

// erf(x): an odd polynomial up to 1, 1 - 2Q(x√2) above. 3 ulp.
template <class T> ONNXGRAD_INLINE Vec<T> erf(Vec<T> x) {
  using C = detail::Constants<T>;
  const Vec<T> t = magnitude<T>(x);
  const Vec<T> small = t * detail::polynomial(C::erf_small, at_most(splat<T>(T(1)), t * t));
  const Vec<T> u = at_most(splat<T>(C::gelu_limit), t * T(1.4142135623730951));
  const Vec<T> bounded = at_most(splat<T>(T(10)), t);
  const auto square = detail::exact_product<T>(bounded, bounded);
  const Vec<T> tail = T(2) * detail::exp_negative<T>(-square.high, -square.low) * detail::mills(u);
  return with_sign<T>(select(t < splat<T>(T(1)), small, T(1) - tail), x);
}

// x Φ(x), by the tail Φ(-|x|), which keeps the negative side exact. 4 ulp.
template <class T> ONNXGRAD_INLINE Vec<T> gelu(Vec<T> x) {
  const Vec<T> t = at_most(splat<T>(detail::Constants<T>::gelu_limit), magnitude<T>(x));
  const auto square = detail::exact_product<T>(t, t);
  const Vec<T> e = detail::exp_negative<T>(square.high * T(-0.5), square.low * T(-0.5));
  const Vec<T> tail = e * detail::mills(t);
  return x * select(x < Vec<T>{}, tail, T(1) - tail);
}

// x sigmoid(2u), u = √(2/π)(x + 0.044715 x³): the tanh form of gelu. 5 ulp for |x| < 3; in the
// negative tail the error grows with |2u|.
template <class T> ONNXGRAD_INLINE Vec<T> fast_gelu(Vec<T> x) {
  constexpr double two_alpha = 1.5957691216057308;
  const Vec<T> t = at_most(splat<T>(detail::Constants<T>::fast_gelu_limit), magnitude<T>(x));
  const Vec<T> slope = fma(t * t, splat<T>(T(two_alpha * 0.044715)), splat<T>(T(two_alpha)));
  return x * sigmoid<T>(with_sign<T>(t * slope, x));
}

// The derivatives of the gelu family all satisfy g(x) + g(-x) = 1, so each is computed at t = |x|
// as h = g(-t), which keeps the negative tail exact, and mirrored. At ±inf they give 1 and 0.
namespace detail {
template <class T> ONNXGRAD_INLINE Vec<T> mirror(Vec<T> x, Vec<T> h) {
  return select(x < Vec<T>{}, h, T(1) - h);
}

// h of  g = s(1 + w(1 - s))  with s = sigmoid(z), at -z:
//   e r (1 - w r),  e = e^-z, r = 1/(1 + e);  z, w >= 0.
template <class T> ONNXGRAD_INLINE Vec<T> sigmoid_unit_tail(Vec<T> e, Vec<T> w) {
  const Vec<T> r = T(1) / (T(1) + e);
  return e * r * fma(-w, r, splat<T>(T(1)));
}
}  // namespace detail

// d/dx of x Φ(x):  Φ(x) + x φ(x).  5 ulp of max(|g|, 1/8).
template <class T> ONNXGRAD_INLINE Vec<T> gelu_derivative(Vec<T> x) {
  using C = detail::Constants<T>;
  const Vec<T> t = at_most(splat<T>(C::gelu_limit), magnitude<T>(x));
  const auto square = detail::exact_product<T>(t, t);
  const Vec<T> e = detail::exp_negative<T>(square.high * T(-0.5), square.low * T(-0.5));
  return detail::mirror<T>(x, e * detail::gelu_tail(t));
}

// d/dx of x sigmoid(2u), u = αx + αγx³: the tanh form of gelu.  5 ulp of max(|g|, 1/8).
template <class T> ONNXGRAD_INLINE Vec<T> fast_gelu_derivative(Vec<T> x) {
  using C = detail::Constants<T>;
  constexpr double alpha = 0.7978845608028654, gamma = 0.044715;  // α = √(2/π)
  constexpr double two_alpha_log2e = 2 * alpha * 1.4426950408889634;
  constexpr T linear = T(two_alpha_log2e), linear_low = T(two_alpha_log2e - double(linear)),
              cubic = T(two_alpha_log2e * gamma), slope = T(2 * alpha);
  // makes good what 2α loses by rounding, at t² = 3/2, where 1 - w r below cancels most
  constexpr T bend = T(6 * alpha * gamma + (2 * alpha - double(slope)) / 1.5);
  const Vec<T> t = at_most(splat<T>(C::fast_gelu_limit), magnitude<T>(x)), square = t * t;
  // e^-2u = 2^-(t p), p = (2α + 2αγt²) log2(e), with what the roundings
  // of p and of the product lose: the power would feel both
  const Vec<T> p = fma(square, splat<T>(cubic), splat<T>(linear));
  const Vec<T> p_low = fma(square, splat<T>(cubic), linear - p) + linear_low;
  const auto z = detail::exact_product<T>(t, p);
  const Vec<T> e = detail::exp2_negative<T>(-z.high, -fma(t, p_low, z.low));
  const Vec<T> w = t * fma(square, splat<T>(bend), splat<T>(slope));  // x d(2u)/dx
  return detail::mirror<T>(x, detail::sigmoid_unit_tail<T>(e, w));
}

// d/dx of x sigmoid(alpha x).  5 ulp of max(|g|, 1/8).
template <class T> ONNXGRAD_INLINE Vec<T> quick_gelu_derivative(Vec<T> x, Vec<T> alpha) {
  using C = detail::Constants<T>;
  const Vec<T> scaled = alpha * x;
  const Vec<T> z = at_most(splat<T>(-T(2) * C::exp_lowest), magnitude<T>(scaled));
  return detail::mirror<T>(scaled, detail::sigmoid_unit_tail<T>(detail::exp_negative<T>(-z), z));
}

}  // namespace onnxgrad::ONNXGRAD_ISA
