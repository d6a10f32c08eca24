#include <cmath>
#include <limits>

#include "ops/quant/fake_quant.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& quant_observer_contract() {
  static const Contract c =
      with_range_attributes(Contract("QuantObserver"), "range")
          .summary("Follows the range of a tensor, and says which scale and zero point cover it.")
          .formula(
              "where observe is not 0: new_low = low + momentum · (min(0, X) − low), new_high = "
              "high "
              "+ momentum · (max(0, X) − high); else as they were;\n"
              "scale = (new_high − new_low) / (quant_max − quant_min), zero_point = quant_min − "
              "round(new_low / scale);\n"
              "symmetric: scale = max(−new_low, new_high) / h, zero_point = quant_min + h + 1, "
              "with "
              "h = (quant_max − quant_min − 1) / 2, rounded up; an empty range has scale 1")
          .accuracy(Measure::rms, 1e-6, 1e-14)
          .attr("symmetric", 0, "1: 0 lies in the middle of the integers")
          .attr("momentum", 0.01f, "the share of the new range; 1: that alone")
          .input("X", "T[shape...]", "what is observed; not read where observe is 0")
          .input("low", "T[scales...]", "the lowest so far, at most 0")
          .input("high", "T[scales...]", "the highest so far, at least 0")
          .input("observe", "int64[1]", "0: the range stays as it is")
          .output("new_low", "T[scales...]", "the range after this tensor")
          .output("new_high", "T[scales...]", "the range after this tensor")
          .output("scale", "T[scales...]", "what one integer stands for")
          .output("zero_point", "T[scales...]", "the integer that stands for 0");
  return c;
}

namespace {

// The range of what it has seen, 0 included; NaN is passed over.
template <class T> struct Range {
  T low = T(0), high = T(0);
  void add(T x) {
    if (x < low) low = x;
    if (x > high) high = x;
  }
  void add(const Range& other) {
    add(other.low);
    add(other.high);
  }
};

template <class T> Range<T> range_of(const T* x, Dim count) {
  Vec<T> low{}, high{};
  each_register<T>(0, count, [&](Dim at, Dim n) ONNXGRAD_LAMBDA {
    const Vec<T> v = load_some<T>(x + at, n);  // 0 beyond the end
    low = select(v < low, v, low);
    high = select(v > high, v, high);
  });
  Range<T> range;
  for (Dim i = 0; i < lanes<T>; ++i) {
    range.add(low[i]);
    range.add(high[i]);
  }
  return range;
}

// Runs: the range of every piece of a run; then of all runs of a scale.
template <class T> void runs_range(Call& call, const QuantLayout& layout, const T* x,
                                   Range<T>* partial, Range<T>* ranges) {
  const Dim length = larger_of(layout.length, 1), chunks = divide_up(length, kPointwiseGrain);
  call.parallel_ranges(
      layout.count * chunks, larger_of(kPointwiseGrain / length, 1), [&](Dim from, Dim to) {
        for (Dim piece = from; piece < to; ++piece) {
          const Dim run = piece / chunks, size = layout.size(run);
          const Dim first = smaller_of(piece % chunks * kPointwiseGrain, size);
          partial[piece] =
              range_of<T>(x + layout.begin(run) + first, smaller_of(kPointwiseGrain, size - first));
        }
      });
  for (Dim piece = 0; piece < layout.count * chunks; ++piece)
    ranges[layout.scale_of_run(piece / chunks)].add(partial[piece]);
}

// Columns: every scale looks at its own.
template <class T>
void columns_range(Call& call, const QuantLayout& layout, const T* x, Range<T>* ranges) {
  const QuantShape& s = layout.shape;
  const Dim width = s.blockwise() ? 1 : s.inner, columns = layout.length;
  call.parallel_ranges(s.scales(), 64, [&](Dim first, Dim last) {
    for (Dim k = first; k < last; ++k) {
      const Dim block = k / larger_of(s.inner, 1);  // of [outer, blocks]
      const Dim begin = s.blockwise() ? block / s.blocks * s.axis + block % s.blocks * s.block : 0;
      const Dim end = s.blockwise() ? smaller_of(begin + s.block, (block / s.blocks + 1) * s.axis)
                                    : layout.count;
      const Dim column = s.blockwise() ? k % s.inner : k * width;
      for (Dim row = begin; row < end; ++row)
        for (Dim i = 0; i < width; ++i) ranges[k].add(x[row * columns + column + i]);
    }
  });
}

// Which scale and zero point cover a range.
template <class T> struct Cover {
  T scale, zero;
  Cover(const Range<T>& range, QuantRange integers, bool symmetric) {
    const T low = T(integers.low), high = T(integers.high);
    if (symmetric) {
      const T half = std::ceil((high - low - T(1)) / T(2));
      scale = std::max(-range.low, range.high) / std::max(half, T(1));
      zero = low + half + T(1);
    } else {
      scale = (range.high - range.low) / (high - low);
      zero = low;
    }
    if (!(scale >= std::numeric_limits<T>::min())) scale = T(1);
    if (!symmetric) zero = std::min(std::max(low - std::nearbyint(range.low / scale), low), high);
  }
};

}  // namespace

template <class T> void quant_observer(Call& call) {
  const QuantLayout layout = QuantLayout::of(quant_shape(call, "X", "low"));
  const QuantRange integers = quant_range(call);
  const bool symmetric = call.integer("symmetric") != 0;
  const T momentum = T(call.real("momentum"));
  if (!(momentum >= 0 && momentum <= 1))
    call.fail("momentum is " + std::to_string(double(momentum)) + ", expected 0 to 1");
  const Dim count = layout.shape.scales();
  const Dim pieces = layout.count * divide_up(larger_of(layout.length, 1), kPointwiseGrain);
  Workspace space;
  const auto seen = space.shared<Range<T>>(count);
  const auto partial = space.shared<Range<T>>(layout.runs ? pieces : 0);
  Workspace::acquire(call, space.bytes());
  const T *low = call.input<T>("low").data(), *high = call.input<T>("high").data(),
          *x = call.input<T>("X").data();
  const bool observe = call.input<std::int64_t>("observe")[0] != 0;
  T *new_low = call.output<T>("new_low").data(), *new_high = call.output<T>("new_high").data(),
    *scale = call.output<T>("scale").data(), *zero = call.output<T>("zero_point").data();
  space.open();
  Range<T>* ranges = space[seen].data();
  for (Dim k = 0; k < count; ++k) ranges[k] = {};
  if (observe && layout.runs) runs_range<T>(call, layout, x, space[partial].data(), ranges);
  if (observe && !layout.runs) columns_range<T>(call, layout, x, ranges);
  for (Dim k = 0; k < count; ++k) {
    Range<T> now{low[k], high[k]};
    if (observe) {
      now.low += momentum * (ranges[k].low - now.low);
      now.high += momentum * (ranges[k].high - now.high);
    }
    const Cover<T> cover(now, integers, symmetric);
    new_low[k] = now.low, new_high[k] = now.high;
    scale[k] = cover.scale, zero[k] = cover.zero;
  }
}
ONNXGRAD_FLOAT_AND_DOUBLE(quant_observer)

}  // namespace onnxgrad::ONNXGRAD_ISA
