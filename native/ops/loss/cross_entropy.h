// SoftmaxCrossEntropyLoss and its gradients. Scores are
// viewed as [outer, classes, inner], labels as [outer, inner].
//
//   log_prob = scores − max − log Σ exp(scores − max)
//   loss[k]  = −weight[label]·log_prob[label]
//   d_logits = (exp(log_prob) − [class = label])·factor[k],   factor[k] = weight[label]·dY[k]
//
// with dY[k] = dY for "sum" and dY / Σ weight[label] for "mean"; an ignored label has factor 0.
#pragma once
#include <cmath>
#include <limits>

#include "core/pointwise.h"
#include "core/reduce.h"
#include "core/vmath.h"
#include "core/wide_sum.h"
#include "core/workspace.h"
#include "ops/gather/gather_family.h"

namespace onnxgrad::ONNXGRAD_ISA {

enum class Reduction { none, sum, mean };

struct Classes {
  Dim outer, classes, inner;
  Reduction reduction;
  bool has_ignored;
  std::int64_t ignored;
  Dim labels() const { return outer * inner; }
};

// Labels of a piece of work, their classes side by side. A label costs as much as some 28 classes
// beside its own.
inline Dim rows_together(Dim classes) {
  return larger_of(1, kPointwiseGrain / 4 / (larger_of(1, classes) + 28));
}

inline Reduction reduction_of(const Call& call) {
  const std::string& text = call.text("reduction");
  return text == "none" ? Reduction::none : text == "sum" ? Reduction::sum : Reduction::mean;
}

// Scores [N, C, d…] and labels [N, d…].
inline Classes classes_of(const Call& call, const char* scores, const char* labels) {
  const Shape &s = call.shape(scores), &l = call.shape(labels);
  Shape expected{s[0]};
  for (int a = 2; a < s.rank(); ++a) expected.push_back(s[a]);
  if (l != expected)
    call.fail("input " + std::string(labels) + " has shape " + to_string(l) + ", expected " +
              to_string(expected) + " (" + scores + " has shape " + to_string(s) + ")");
  return {s[0], s[1], s.product(2, s.rank()), reduction_of(call), false, 0};
}

inline void check_output_type(const Call& call) {
  if (!call.given("output_type")) return;
  const std::int64_t type = call.integer("output_type"),
                     expected = call.type() == DType::float64 ? 11 : 1;
  if (type != expected && type != 0)
    call.fail("output_type is " + std::to_string(type) + ", expected " + std::to_string(expected) +
              ", the type of the other tensors (" + name_of(call.type()) + ")");
}

// ignore_index as an optional scalar input.
inline void read_ignored(const Call& call, Classes& s) {
  if (!call.has("ignore_index")) return;
  s.has_ignored = true, s.ignored = call.input<std::int64_t>("ignore_index")[0];
}

template <class I> void check_labels(const Call& call, const char* input, const Classes& s) {
  const Span<const I> labels = call.input<I>(input);
  for (Dim k = 0; k < labels.size(); ++k) {
    if (s.has_ignored && Dim(labels[k]) == s.ignored) continue;
    if (Dim(labels[k]) < 0 || Dim(labels[k]) >= s.classes)
      call.fail("input " + std::string(input) + " has the value " + std::to_string(labels[k]) +
                " at " + place_of(call.shape(input), k) + ", expected 0.." +
                std::to_string(s.classes - 1) +
                (s.has_ignored ? " or ignore_index = " + std::to_string(s.ignored) : ""));
  }
}

// The weight of label k; 0 when it is ignored.
template <class T, class I>
ONNXGRAD_INLINE double weight_of(const Classes& s, const I* labels, const T* weights, Dim k) {
  if (s.has_ignored && Dim(labels[k]) == s.ignored) return 0;
  return weights ? double(weights[labels[k]]) : 1;
}

template <class T, class I>
double sum_of_weights(const Classes& s, const I* labels, const T* weights) {
  if (!weights && !s.has_ignored) return double(s.labels());
  if (!weights) {
    Dim counted = 0;
    for (Dim k = 0; k < s.labels(); ++k) counted += Dim(labels[k]) != s.ignored;
    return double(counted);
  }
  LongSum sum;
  for (Dim k = 0; k < s.labels(); ++k) sum.add(weight_of<T, I>(s, labels, weights, k));
  return sum.value();
}

// ---- the logarithms of the probabilities

// Σ exp(x − largest) in two parts: the largest themselves give 1 each,
// `tops`, and all others `rest`. The logarithm of a probability near
// 1 is −log1p(rest): beside a 1, a small rest would be rounded away.
template <class T> ONNXGRAD_INLINE void add_exponential(Vec<T> below, Vec<T>& rest, Vec<T>& tops) {
  const auto top = below == Vec<T>{};
  rest += select(top, Vec<T>{}, exp<T>(below));
  tops += select(top, splat<T>(T(1)), Vec<T>{});
}
inline double log_of_sum(double rest, double tops) {
  return std::log(tops) + std::log1p(rest / tops);
}

// One label, its classes side by side: the largest, the sum of exponentials, the logarithms.
template <class T> void set_log_row(Dim classes, const T* x, T* log_prob, bool streamed) {
  Vec<T> top = splat<T>(-std::numeric_limits<T>::infinity());
  each_register<T>(0, classes, [&](Dim c, Dim n) ONNXGRAD_LAMBDA {
    if (n == lanes<T>)
      top = at_least(top, load<T>(x + c));
    else
      for (Dim k = 0; k < n; ++k) top = at_least(top, splat<T>(x[c + k]));
  });
  T most = top[0];
  for (Dim k = 1; k < lanes<T>; ++k) most = top[k] > most || top[k] != top[k] ? top[k] : most;
  const Vec<T> largest = splat<T>(most);
  double total[2] = {};
  add_sums<2, T>(classes, total, [&](Dim c, Dim n, Vec<T>(&sum)[2]) ONNXGRAD_LAMBDA {
    if (n == lanes<T>) return add_exponential<T>(load<T>(x + c) - largest, sum[0], sum[1]);
    T below[lanes<T>];  // lanes past the end count as 0
    for (Dim k = 0; k < lanes<T>; ++k)
      below[k] = k < n ? x[c + k] - most : -std::numeric_limits<T>::infinity();
    add_exponential<T>(load<T>(below), sum[0], sum[1]);
  });
  const Vec<T> shift = splat<T>(T(log_of_sum(total[0], total[1])));
  fill<T>(Span<T>(log_prob, classes), streamed,
          [&](Dim c, Dim n) ONNXGRAD_LAMBDA { return (load_some<T>(x + c, n) - largest) - shift; });
}

// ---- the gradient

constexpr Dim kLabelStripe = 1024;  // labels of a piece of work, where the classes lie apart

// The classes of one label side by side (inner = 1):
// d = exp(log_prob)·factor (+ bias), then the label's own term. d may be log_prob.
template <class T> void set_row(const Classes& s, const T* log_prob, const T* bias, T* d, Dim label,
                                T factor, bool streamed) {
  const Vec<T> f = splat<T>(factor);
  if (factor == T(0) && !bias) {
    fill<T>(Span<T>(d, s.classes), streamed, [](Dim, Dim) ONNXGRAD_LAMBDA { return Vec<T>{}; });
    return;
  }
  const T own =
      label >= 0 ? std::expm1(log_prob[label]) * factor + (bias ? bias[label] : T(0)) : T(0);
  if (bias)
    fill<T>(Span<T>(d, s.classes), streamed, [&](Dim c, Dim n) ONNXGRAD_LAMBDA {
      return fma(exp<T>(load_some<T>(log_prob + c, n)), f, load_some<T>(bias + c, n));
    });
  else
    fill<T>(Span<T>(d, s.classes), streamed, [&](Dim c, Dim n) ONNXGRAD_LAMBDA {
      return exp<T>(load_some<T>(log_prob + c, n)) * f;
    });
  if (streamed) stream_done();
  if (label >= 0) d[label] = own;
}

// Labels [from, to) of one slab [classes, inner]; `factor` and `label` are those of the whole slab.
// d may be log_prob.
template <class T, class I> void set_columns(const Classes& s, const T* log_prob, const T* bias,
                                             T* d, const I* label, const T* factor, Dim from,
                                             Dim to) {
  T own[kLabelStripe];  // the terms of the labels themselves, before they are written over
  for (Dim i = from; i < to; ++i) {
    const Dim at = Dim(label[i]) * s.inner + i;
    own[i - from] =
        factor[i] == T(0) ? T(0) : std::expm1(log_prob[at]) * factor[i] + (bias ? bias[at] : T(0));
  }
  for (Dim c = 0; c < s.classes; ++c) {
    const Dim row = c * s.inner;
    each_register<T>(from, to, [&](Dim i, Dim n) ONNXGRAD_LAMBDA {
      const Vec<T> f = load_some<T>(factor + i, n),
                   added = bias ? load_some<T>(bias + row + i, n) : Vec<T>{};
      store_some<T>(
          d + row + i,
          fma(select(f == Vec<T>{}, Vec<T>{}, exp<T>(load_some<T>(log_prob + row + i, n))), f,
              added),
          n);
    });
  }
  for (Dim i = from; i < to; ++i)
    if (factor[i] != T(0)) d[Dim(label[i]) * s.inner + i] = own[i - from];
}

template <class T, class I> void cross_entropy_grad(Call& call, Classes s, const char* bias_name) {
  check_labels<I>(call, "label", s);
  if (call.has("weight"))
    check_shape(call, "weight", Shape{s.classes}, [] { return "one per class"; });
  if (s.reduction != Reduction::none && call.input<T>("dY").size() != 1)
    call.fail("input dY has shape " + to_string(call.shape("dY")) +
              ", expected a scalar for reduction '" + call.text("reduction") + "'");
  if (s.reduction == Reduction::none)
    check_shape(call, "dY", call.shape("label"), [] { return "reduction is 'none'"; });
  if (bias_name && call.has(bias_name) &&
      call.input<T>(bias_name).size() != call.input<T>("log_prob").size())
    call.fail("input bias has shape " + to_string(call.shape(bias_name)) +
              ", expected as many elements as log_prob of shape " +
              to_string(call.shape("log_prob")));
  Workspace space;
  const auto factors = space.shared<T>(s.labels());
  Workspace::acquire(call, space.bytes());
  const I* label = call.input<I>("label").data();
  const T *dy = call.input<T>("dY").data(), *log_prob = call.input<T>("log_prob").data(),
          *weight = call.input<T>("weight").data();
  const T* bias = bias_name ? call.input<T>(bias_name).data() : nullptr;
  const Span<T> d = call.output<T>("d_logits");
  space.open();
  T* factor = space[factors].data();
  const double whole = s.reduction == Reduction::mean ? sum_of_weights<T, I>(s, label, weight) : 1;
  if (!weight && !s.has_ignored && s.reduction != Reduction::none)
    std::fill(factor, factor + s.labels(), T(double(dy[0]) / whole));
  else
    for (Dim k = 0; k < s.labels(); ++k) {
      const double w = weight_of<T, I>(s, label, weight, k);
      factor[k] = w == 0 ? T(0) : T(w * double(dy[s.reduction == Reduction::none ? k : 0]) / whole);
    }
  const bool streamed = d.data() != log_prob && 2 * d.size() * Dim(sizeof(T)) > kStreamBytes;
  if (s.inner == 1)
    return call.parallel_ranges(s.outer, rows_together(s.classes), [&](Dim begin, Dim end) {
      for (Dim k = begin; k < end; ++k)
        set_row<T>(s, log_prob + k * s.classes, bias ? bias + k * s.classes : nullptr,
                   d.data() + k * s.classes, factor[k] == T(0) ? Dim(-1) : Dim(label[k]), factor[k],
                   streamed);
      stream_done();
    });
  const Dim stripes = divide_up(s.inner, kLabelStripe), slab = s.classes * s.inner;
  call.parallel_for(s.outer * stripes, [&](Dim piece) {
    const Dim o = piece / stripes, from = piece % stripes * kLabelStripe;
    set_columns<T, I>(s, log_prob + o * slab, bias ? bias + o * slab : nullptr, d.data() + o * slab,
                      label + o * s.inner, factor + o * s.inner, from,
                      smaller_of(from + kLabelStripe, s.inner));
  });
}

}  // namespace onnxgrad::ONNXGRAD_ISA
