// The gradients of Softmax and LogSoftmax along one axis, for any layout, without a transpose.
#pragma once
#include "core/pointwise.h"
#include "core/reduce.h"
#include "core/vmath.h"
#include "core/wide_sum.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

// A tensor viewed as [outer, axis, inner]; softmax ran along `axis`.
struct SoftmaxShape {
  Dim outer, axis, inner;
};

// From opset 13 on: the axis alone.
inline SoftmaxShape softmax_along_axis(const Call& call) {
  const Shape& y = call.shape("Y");
  if (y.rank() == 0) return call.axis("axis", "Y"), SoftmaxShape{1, 1, 1};
  const int a = call.axis("axis", "Y");
  return {y.product(0, a), y[a], y.product(a + 1, y.rank())};
}

// Up to opset 12: the tensor is flattened to two dims at the axis.
inline SoftmaxShape softmax_flattened(const Call& call) {
  const Shape& y = call.shape("Y");
  const int a = call.axis("axis", "Y");
  return {y.product(0, a), y.product(a, y.rank()), 1};
}

// The sum of a row's terms, or of a register of columns: in double and more,
// because hundreds of terms may cancel beside one large Y whose own dY is 0.
template <class Kind, class T> struct TermSum {
  static constexpr int kParts = int(lanes<T> / lanes<double>);
  WideSum<T, Vec<double>> part[kParts];

  ONNXGRAD_INLINE void add(const T* dy, const T* y, Dim count) {
    if (count < lanes<T>) return add_some(dy, y, count);
    for (int p = 0; p < kParts; ++p)
      Kind::add_term(part[p], load_double(dy + p * lanes<double>),
                     load_double(y + p * lanes<double>));
  }
  ONNXGRAD_INLINE void add(const TermSum& other) {
    for (int p = 0; p < kParts; ++p) part[p].add(other.part[p]);
  }
  // Of all lanes.
  WideSum<T, double> of_row() {
    if constexpr (kParts == 1) return sum_of_lanes(part[0]);
    return {sum_in_double(part[0].high + part[kParts - 1].high), 0};
  }
  // Of each lane.
  Vec<T> of_columns() const {
    if constexpr (kParts == 1)
      return part[0].of_lanes();
    else
      return to_float(part[0].high, part[1].high);
  }

 private:
  ONNXGRAD_INLINE void add_some(const T* dy, const T* y, Dim count) {
    const Vec<T> a = load_part<T>(dy, count), b = load_part<T>(y, count);
    if constexpr (kParts == 1) {
      Kind::add_term(part[0], a, b);
    } else {
      Kind::add_term(part[0], low_half(a), low_half(b));
      Kind::add_term(part[1], high_half(a), high_half(b));
    }
  }
};

// Σ Y·dY in float, a few terms at a time, which a CompensatedSum
// takes over: without the conversions to double.
struct ProductSum {
  Vec<float> sum{};
  ONNXGRAD_INLINE void add(const float* dy, const float* y, Dim count) {
    sum = fma(load_some<float>(dy, count), load_some<float>(y, count), sum);
  }
  ONNXGRAD_INLINE void add(const ProductSum& other) { sum += other.sum; }
};
struct CompensatedSum {
  Vec<float> sum{}, excess{};
  ONNXGRAD_INLINE void add(const ProductSum& part) {
    add_compensated<float>(sum, excess, part.sum);
  }
  // An infinite sum has no excess (NaN by the formula).
  Vec<float> known_excess() const { return select(excess == excess, excess, Vec<float>{}); }
  WideSum<float, double> of_row() const {
    return {sum_in_double(sum) - sum_in_double(known_excess()), 0};
  }
  Vec<float> of_columns() const { return sum - known_excess(); }
};

// dX = Y·(dY − Σ Y·dY)
struct Softmax {
  static constexpr Dim kBlockRows = 64;
  template <class T> using Sum = TermSum<Softmax, T>;    // of kBlockRows terms, for each lane
  template <class T> using Total = TermSum<Softmax, T>;  // of such sums
  template <class Sum, class V> static ONNXGRAD_INLINE void add_term(Sum& sum, V dy, V y) {
    sum.add_product(dy, y);
  }
  template <class T> static ONNXGRAD_INLINE Vec<T> gradient(Vec<T> dy, Vec<T> y, Vec<T> sum) {
    return y * (dy - sum);
  }
};
// The same along at most a thousand floats.
struct ShortSoftmax : Softmax {
  static constexpr Dim kBlockRows = 4;
  template <class T> using Sum = ProductSum;
  template <class T> using Total = CompensatedSum;
};
constexpr Dim kShortAxis = 1024;
// dX = dY − exp(Y)·Σ dY
struct LogSoftmax {
  static constexpr Dim kBlockRows = 64;
  template <class T> using Sum = TermSum<LogSoftmax, T>;
  template <class T> using Total = TermSum<LogSoftmax, T>;
  template <class Sum, class V> static ONNXGRAD_INLINE void add_term(Sum& sum, V dy, V) {
    sum.add(dy);
  }
  template <class T> static ONNXGRAD_INLINE Vec<T> gradient(Vec<T> dy, Vec<T> y, Vec<T> sum) {
    return fma(-sum, exp_of_log<T>(y), dy);
  }
};

// Rows longer than this are cut into blocks, so that one long row is work for several threads too.
constexpr Dim kLongRow = Dim(1) << 17;

// The sum of the terms of one row.
template <class Kind, class T> WideSum<T, double> sum_terms(const T* dy, const T* y, Dim count) {
  constexpr Dim group = kTogether * lanes<T>;
  typename Kind::template Total<T> total;
  for (Dim block = 0; block < count; block += Kind::kBlockRows * group) {
    const Dim end = smaller_of(block + Kind::kBlockRows * group, count);
    typename Kind::template Sum<T>
        sum[kTogether];  // several chains hide the latency of the addition
    Dim i = block;
    for (; i + group <= end; i += group)
      for (int k = 0; k < kTogether; ++k)
        sum[k].add(dy + i + k * lanes<T>, y + i + k * lanes<T>, lanes<T>);
    for (; i < end; i += lanes<T>) sum[0].add(dy + i, y + i, smaller_of(lanes<T>, end - i));
    sum[0].add(sum[1]), sum[2].add(sum[3]), sum[0].add(sum[2]);
    total.add(sum[0]);
  }
  return total.of_row();
}

template <class Kind, class T>
void set_gradient(const T* dy, const T* y, Span<T> dx, double sum, bool streamed) {
  const Vec<T> total = splat<T>(T(sum));
  fill<T>(dx, streamed, [&](Dim i, Dim n) ONNXGRAD_LAMBDA {
    return Kind::template gradient<T>(load_some<T>(dy + i, n), load_some<T>(y + i, n), total);
  });
}

// inner == 1: rows are contiguous.
template <class Kind, class T> void softmax_rows(Call& call, SoftmaxShape s, Span<const T> dy,
                                                 Span<const T> y, Span<T> dx, bool streamed) {
  const Dim group = kPointwiseGrain / (s.axis + 1) + 1;
  call.parallel_ranges(s.outer, group, [&](Dim begin, Dim end) {
    for (Dim row = begin; row < end; ++row) {
      const T *dy_row = dy.data() + row * s.axis, *y_row = y.data() + row * s.axis;
      const double sum = sum_terms<Kind>(dy_row, y_row, s.axis).value();
      set_gradient<Kind>(dy_row, y_row, dx.part(row * s.axis, s.axis), sum, streamed);
    }
    stream_done();
  });
}

// inner == 1, few long rows: sums of blocks first, then the blocks of dX.
template <class Kind, class T> void softmax_long_rows(Call& call, SoftmaxShape s, Span<const T> dy,
                                                      Span<const T> y, Span<T> dx, bool streamed) {
  constexpr int kBlocks = 64;  // per row, whatever its length
  const Dim width = (s.axis + kBlocks - 1) / kBlocks;
  const auto block = [&](Dim b) { return b * width < s.axis ? b * width : s.axis; };
  WideSum<T, double> sums[kBlocks];
  for (Dim row = 0; row < s.outer; ++row) {
    const T *dy_row = dy.data() + row * s.axis, *y_row = y.data() + row * s.axis;
    call.parallel_for(kBlocks, [&](Dim b) {
      sums[b] = sum_terms<Kind>(dy_row + block(b), y_row + block(b), block(b + 1) - block(b));
    });
    WideSum<T, double> sum;
    for (const auto& part : sums) sum.add(part);
    call.parallel_for(kBlocks, [&](Dim b) {
      const Dim from = block(b), count = block(b + 1) - from;
      set_gradient<Kind>(dy_row + from, y_row + from, dx.part(row * s.axis + from, count),
                         sum.value(), streamed);
      stream_done();
    });
  }
}

// 256 bytes of neighbouring columns are summed together:
// whole cache lines, and the sums stay in registers.
constexpr int kStripe = (kVectorBytes > 16 ? 256 : 128) / kVectorBytes;

// Columns [0, width) of one [axis, inner] slab; `width`
// is at most a stripe, `full` says that it is one.
template <class Kind, bool full, class T> struct Stripe {
  const T *dy, *y;
  T* dx;
  Dim axis, inner, width;
  bool streamed;

  Dim count(int k) const {  // how many of the columns of register k there are
    const Dim left = width - k * lanes<T>;
    return full || left >= lanes<T> ? lanes<T> : left > 0 ? left : 0;
  }

  // The sum of each column. `meanwhile(a)` is called as row a is read.
  template <class F> ONNXGRAD_INLINE void sum(Vec<T> (&total)[kStripe], F&& meanwhile) const {
    typename Kind::template Total<T> sums[kStripe];
    for (Dim block = 0; block < axis; block += Kind::kBlockRows) {
      const Dim end = smaller_of(block + Kind::kBlockRows, axis);
      typename Kind::template Sum<T> part[kStripe];
      for (Dim a = block; a < end; ++a) {
        for (int k = 0; k < kStripe; ++k) {
          const Dim at = a * inner + k * lanes<T>;
          if (full || count(k) > 0) part[k].add(dy + at, y + at, count(k));
        }
        meanwhile(a);
      }
      for (int k = 0; k < kStripe; ++k) sums[k].add(part[k]);
    }
    for (int k = 0; k < kStripe; ++k) total[k] = sums[k].of_columns();
  }

  // Row a of dX.
  ONNXGRAD_INLINE void set_row(Dim a, const Vec<T> (&total)[kStripe]) const {
    Vec<T> value[kStripe];  // stored together, see kTogether
    for (int k = 0; k < kStripe; ++k) {
      const Dim at = a * inner + k * lanes<T>;
      if (full || count(k) > 0)
        value[k] = Kind::template gradient<T>(load_some<T>(dy + at, count(k)),
                                              load_some<T>(y + at, count(k)), total[k]);
    }
    for (int k = 0; k < kStripe; ++k) {
      T* out = dx + a * inner + k * lanes<T>;
      if (full)
        put<T>(out, value[k], streamed);
      else if (count(k) > 0)
        store_some<T>(out, value[k], count(k));
    }
  }
  void set_all(const Vec<T> (&total)[kStripe]) const {
    for (Dim a = 0; a < axis; ++a) set_row(a, total);
  }
};

// A stripe by itself: sums, then dX from the level 2 cache.
template <class Kind, bool full, class T> void set_stripe(const Stripe<Kind, full, T>& stripe) {
  Vec<T> total[kStripe];
  stripe.sum(total, [](Dim) ONNXGRAD_LAMBDA {});
  stripe.set_all(total);
}

// Stripes of fewer elements are left to the caches and the processor, which overlap them as well.
constexpr Dim kLongStripe = Dim(1) << 14;

// Long stripes one after the other, `at(piece)` is one of them:
// while one is written, the next is summed, so that the memory,
// which writes more slowly than it reads, is never without something to write.
template <class T, class F> void set_stripes_overlapped(Turn& turn, F&& at) {
  Dim piece = turn.next();
  if (piece < 0) return;
  auto stripe = at(piece);
  Vec<T> total[kStripe], next_total[kStripe];
  stripe.sum(total, [](Dim) ONNXGRAD_LAMBDA {});
  while ((piece = turn.next()) >= 0) {
    const auto next = at(piece);
    next.sum(next_total, [&](Dim a) ONNXGRAD_LAMBDA { stripe.set_row(a, total); });
    stripe = next;
    for (int k = 0; k < kStripe; ++k) total[k] = next_total[k];
  }
  stripe.set_all(total);
}

// inner > 1: columns are summed side by side, a stripe at a time.
template <class Kind, class T> void softmax_columns(Call& call, SoftmaxShape s, Span<const T> dy,
                                                    Span<const T> y, Span<T> dx, bool streamed) {
  constexpr Dim width = kStripe * lanes<T>;
  const Dim stripes = (s.inner + width - 1) / width, slab = s.axis * s.inner;
  const bool aligned =
      reinterpret_cast<std::uintptr_t>(dx.data()) % kVectorBytes == 0 && s.inner % lanes<T> == 0;
  const auto start = [&](Dim piece) { return piece / stripes * slab + piece % stripes * width; };
  const auto full = [&](Dim piece) {
    const Dim at = start(piece);
    return Stripe<Kind, true, T>{dy.data() + at, y.data() + at, dx.data() + at,     s.axis,
                                 s.inner,        width,         streamed && aligned};
  };
  const auto narrow = [&](Dim piece) {
    const Dim at = start(piece);
    return Stripe<Kind, false, T>{dy.data() + at, y.data() + at,   dx.data() + at, s.axis,
                                  s.inner,        s.inner % width, false};
  };
  const Dim cost = s.axis * (s.inner < width ? s.inner : width), pieces = s.outer * stripes;
  if (streamed && aligned && s.inner % width == 0 && cost >= kLongStripe)
    return call.parallel_turns(pieces, [&](Turn& turn) {
      set_stripes_overlapped<T>(turn, full);
      stream_done();
    });
  call.parallel_ranges(pieces, kPointwiseGrain / (cost + 1) + 1, [&](Dim begin, Dim end) {
    for (Dim piece = begin; piece < end; ++piece)
      if (piece % stripes * width + width <= s.inner)
        set_stripe(full(piece));
      else
        set_stripe(narrow(piece));
    stream_done();
  });
}

// dX may be the memory of dY.
template <class Kind, class T> void softmax_any_layout(Call& call, SoftmaxShape s) {
  const Span<const T> dy = call.input<T>("dY"), y = call.input<T>("Y");
  const Span<T> dx = call.output<T>("dX");
  const bool streamed = 3 * dx.size() * Dim(sizeof(T)) > kStreamBytes;
  if (dx.size() == 0) return;
  if (s.inner > 1)
    softmax_columns<Kind, T>(call, s, dy, y, dx, streamed);
  else if (s.axis > kLongRow && s.outer < 64)
    softmax_long_rows<Kind, T>(call, s, dy, y, dx, streamed);
  else
    softmax_rows<Kind, T>(call, s, dy, y, dx, streamed);
}

template <class Kind, class T> void softmax_family(Call& call, SoftmaxShape s) {
  constexpr bool may_be_short = std::is_same_v<Kind, Softmax> && std::is_same_v<T, float>;
  using Short = std::conditional_t<may_be_short, ShortSoftmax, Kind>;
  s.axis <= kShortAxis ? softmax_any_layout<Short, T>(call, s)
                       : softmax_any_layout<Kind, T>(call, s);
}

inline Contract softmax_contract(const char* name, const char* summary, const char* formula,
                                 int axis) {
  return Contract(name)
      .summary(summary)
      .formula(formula)
      .accuracy(Measure::row, 1e-6, 1e-13)
      .attr("axis", axis,
            axis < 0 ? "the axis that was normalised"
                     : "the tensor is flattened to two dims at this axis")
      .input("dY", "T[shape...]", "cotangent of Y")
      .input("Y", "T[shape...]", "what the forward operator gave")
      .output("dX", "T[shape...]", "gradient of X")
      .inplace("dY", "dX");
}

}  // namespace onnxgrad::ONNXGRAD_ISA
