// The activations of ONNX's recurrent operators:
// parsing, value, and slope as a function of the value.
#pragma once
#include <cmath>
#include <limits>

#include "core/vmath.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

enum class Function : std::uint8_t {
  affine,
  relu,
  leaky_relu,
  thresholded_relu,
  tanh,
  scaled_tanh,
  sigmoid,
  hard_sigmoid,
  elu,
  softsign,
  softplus
};

// Defaults as in onnxruntime, which takes 0 where it
// knows no default (ONNX's ThresholdedRelu alone has 1).
struct FunctionSpec {
  const char* name;
  Function function;
  bool takes_alpha, takes_beta;
  float alpha, beta;
};
inline Span<const FunctionSpec> function_specs() {
  static constexpr FunctionSpec specs[] = {
      {"Affine", Function::affine, true, true, 0, 0},
      {"Relu", Function::relu, false, false, 0, 0},
      {"LeakyRelu", Function::leaky_relu, true, false, 0.01f, 0},
      {"ThresholdedRelu", Function::thresholded_relu, true, false, 0, 0},
      {"Tanh", Function::tanh, false, false, 0, 0},
      {"ScaledTanh", Function::scaled_tanh, true, true, 0, 0},
      {"Sigmoid", Function::sigmoid, false, false, 0, 0},
      {"HardSigmoid", Function::hard_sigmoid, true, true, 0.2f, 0.5f},
      {"Elu", Function::elu, true, false, 1, 0},
      {"Softsign", Function::softsign, false, false, 0, 0},
      {"Softplus", Function::softplus, false, false, 0, 0},
  };
  return {specs, Dim(sizeof specs / sizeof specs[0])};
}

struct Activation {
  Function function = Function::tanh;
  float alpha = 0, beta = 0;
};

// ONNX writes "Tanh"; onnxruntime takes any case.
inline bool same_word(const std::string& a, const char* b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; };
  std::size_t i = 0;
  for (; i < a.size() && b[i]; ++i)
    if (lower(a[i]) != lower(b[i])) return false;
  return i == a.size() && !b[i];
}

inline const FunctionSpec& function_named(const Contract& contract, const std::string& name) {
  for (const FunctionSpec& spec : function_specs())
    if (same_word(name, spec.name)) return spec;
  std::string known;
  for (const FunctionSpec& spec : function_specs())
    known += (known.empty()                         ? ""
              : spec.function == Function::softplus ? " or "
                                                    : ", ") +
             std::string(spec.name);
  contract.fail("activations has '" + name + "', expected " + known);
}

// Without a name the list is that of `defaults`, once per direction. Alphas and betas are consumed
// in order, each by the functions that take one; a function that finds none left has its default.
inline std::vector<Activation> parse_activations(const Contract& contract, Strings names,
                                                 const Floats& alphas, const Floats& betas,
                                                 const Strings& defaults, Dim directions) {
  const std::size_t expected = defaults.size() * std::size_t(directions);
  if (names.empty())
    for (Dim d = 0; d < directions; ++d)
      names.insert(names.end(), defaults.begin(), defaults.end());
  if (names.size() != expected)
    contract.fail("activations has " + std::to_string(names.size()) + " names, expected " +
                  std::to_string(expected) + " (" + std::to_string(defaults.size()) +
                  " for each direction)");
  std::vector<Activation> list;
  std::size_t alpha = 0, beta = 0;
  for (const std::string& name : names) {
    const FunctionSpec& spec = function_named(contract, name);
    Activation a{spec.function, spec.alpha, spec.beta};
    if (spec.takes_alpha && alpha < alphas.size()) a.alpha = alphas[alpha++];
    if (spec.takes_beta && beta < betas.size()) a.beta = betas[beta++];
    list.push_back(a);
  }
  return list;
}

// The gradient reads slopes off stored values.
// Below alpha 0 these three take a value on both sides of their kink.
inline void require_slopes(const Contract& contract, const std::vector<Activation>& activations) {
  for (const Activation& a : activations) {
    const bool kinked = a.function == Function::leaky_relu || a.function == Function::elu ||
                        a.function == Function::thresholded_relu;
    if (!kinked || a.alpha >= 0) continue;
    for (const FunctionSpec& spec : function_specs())
      if (spec.function == a.function)
        contract.fail("activation " + std::string(spec.name) + " has alpha " +
                      to_string(Attribute(a.alpha)) +
                      ", expected 0 or more: below that its derivative does not follow from its "
                      "stored value");
  }
}

namespace detail {

template <class T, class F> ONNXGRAD_INLINE Vec<T> lane_by_lane(Vec<T> x, F f) {
  T lane[lanes<T>];
  store<T>(lane, x);
  for (T& v : lane) v = f(v);
  return load<T>(lane);
}

}  // namespace detail

// f(x).
template <class T> inline Vec<T> value_of(Activation f, Vec<T> x) {
  const Vec<T> zero{}, one = splat<T>(T(1)), alpha = splat<T>(T(f.alpha)),
                       beta = splat<T>(T(f.beta));
  switch (f.function) {
    case Function::affine: return alpha * x + beta;
    case Function::relu: return select(x < zero, zero, x);
    case Function::leaky_relu: return select(x < zero, alpha * x, x);
    case Function::thresholded_relu: return select(x <= alpha, zero, x);
    case Function::tanh: return tanh<T>(x);
    case Function::scaled_tanh: return alpha * tanh<T>(beta * x);
    case Function::sigmoid: return sigmoid<T>(x);
    case Function::hard_sigmoid: return at_most(one, at_least(zero, alpha * x + beta));
    case Function::elu:
      return select(
          x < zero,
          alpha * detail::lane_by_lane<T>(x, [](T v) { return v < 0 ? std::expm1(v) : v; }), x);
    case Function::softsign: return x / (one + magnitude<T>(x));
    case Function::softplus:  // ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|)
      return detail::lane_by_lane<T>(
          x, [](T v) { return (v > 0 ? v : v * 0) + std::log1p(std::exp(-std::abs(v))); });
  }
  return x;
}

// f'(x) for y = f(x).
template <class T> inline Vec<T> slope_at(Activation f, Vec<T> y) {
  const Vec<T> zero{}, one = splat<T>(T(1)), alpha = splat<T>(T(f.alpha)),
                       beta = splat<T>(T(f.beta));
  switch (f.function) {
    case Function::affine: return alpha;
    case Function::relu:
    case Function::thresholded_relu: return select(y == zero, zero, one);
    case Function::leaky_relu: return select(y > zero, one, alpha);
    case Function::tanh: return one - y * y;
    case Function::scaled_tanh: return f.alpha == 0 ? zero : beta * (alpha - y * y / alpha);
    case Function::sigmoid: return y * (one - y);
    case Function::hard_sigmoid: return select(y > zero, select(y < one, alpha, zero), zero);
    case Function::elu: return select(y > zero, one, y + alpha);
    case Function::softsign: {
      const Vec<T> rest = one - magnitude<T>(y);
      return rest * rest;
    }
    case Function::softplus: return detail::lane_by_lane<T>(y, [](T v) { return -std::expm1(-v); });
  }
  return one;
}

// An activation behind a clip: f(max(-clip, min(x, clip))).
//
// Where the clip acted the slope is 0. Only values are stored, so that is recognised
// by the value: f is monotone, and what f gives at a limit comes from an x at the limit
// or beyond, up to rounding. Values within 8 ulp of f(±clip) count as clipped;
// the x that this takes wrongly lie within 8 ulp / f'(clip) of the limit.
template <class T> class ClippedActivation {
 public:
  ClippedActivation(Activation f, bool has_clip, float clip)
      : f_(f), has_clip_(has_clip), clip_(T(clip)) {
    if (!has_clip) return;
    const T a = value_of<T>(f, splat<T>(-clip_))[0], b = value_of<T>(f, splat<T>(clip_))[0];
    const T low = a < b ? a : b, high = a < b ? b : a, ulps = 8 * std::numeric_limits<T>::epsilon();
    low_ = low + ulps * std::abs(low);
    high_ = high - ulps * std::abs(high);
  }
  ONNXGRAD_INLINE Vec<T> value(Vec<T> x) const {
    if (has_clip_) x = at_most(splat<T>(clip_), at_least(splat<T>(-clip_), x));
    return value_of<T>(f_, x);
  }
  ONNXGRAD_INLINE Vec<T> slope(Vec<T> y) const {
    const Vec<T> slope = slope_at<T>(f_, y);
    if (!has_clip_) return slope;
    return select(y > splat<T>(low_), select(y < splat<T>(high_), slope, Vec<T>{}), Vec<T>{});
  }

 private:
  Activation f_;
  bool has_clip_;
  T clip_, low_ = 0, high_ = 0;
};

// What a cell does with its pre-activations: gates through f,
// candidates through g, the cell state through h. (GRU has no h.) The standard
// cell is compiled by itself: there the choice of function costs nothing.
template <class T> struct StandardCell {
  ONNXGRAD_INLINE Vec<T> gate(Vec<T> x) const { return sigmoid<T>(x); }
  ONNXGRAD_INLINE Vec<T> gate_slope(Vec<T> y) const { return y * (T(1) - y); }
  ONNXGRAD_INLINE Vec<T> candidate(Vec<T> x) const { return tanh<T>(x); }
  ONNXGRAD_INLINE Vec<T> candidate_slope(Vec<T> y) const { return T(1) - y * y; }
  ONNXGRAD_INLINE Vec<T> squash(Vec<T> c) const { return tanh<T>(c); }
  ONNXGRAD_INLINE Vec<T> squash_slope(Vec<T> y) const { return T(1) - y * y; }
};

template <class T> struct AnyCell {
  ClippedActivation<T> f, g, h;
  // `functions` points at the direction's f, g and, with three of them, h.
  AnyCell(const Activation* functions, int count, bool has_clip, float clip)
      : f(functions[0], has_clip, clip),
        g(functions[1], has_clip, clip),
        h(functions[count - 1], false, 0) {}
  ONNXGRAD_INLINE Vec<T> gate(Vec<T> x) const { return f.value(x); }
  ONNXGRAD_INLINE Vec<T> gate_slope(Vec<T> y) const { return f.slope(y); }
  ONNXGRAD_INLINE Vec<T> candidate(Vec<T> x) const { return g.value(x); }
  ONNXGRAD_INLINE Vec<T> candidate_slope(Vec<T> y) const { return g.slope(y); }
  ONNXGRAD_INLINE Vec<T> squash(Vec<T> c) const { return h.value(c); }
  ONNXGRAD_INLINE Vec<T> squash_slope(Vec<T> y) const { return h.slope(y); }
};

}  // namespace onnxgrad::ONNXGRAD_ISA
