// The gradients of Softmax and LogSoftmax along one axis, for any layout, without a transpose.
#pragma once
#include "core/pointwise.h"
#include "core/vmath.h"
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

// Softmax:     sum over Y·dY;   dX = Y·(dY − sum)
struct Softmax {
  static constexpr bool sums_y = true;
  template <class V> static ONNXGRAD_INLINE V add_term(V sum, V dy, V y) { return fma(dy, y, sum); }
  template <class T> static ONNXGRAD_INLINE Vec<T> gradient(Vec<T> dy, Vec<T> y, Vec<T> sum) {
    return y * (dy - sum);
  }
};
// LogSoftmax:  sum over dY;     dX = dY − sum·exp(Y)
struct LogSoftmax {
  static constexpr bool sums_y = false;
  template <class V> static ONNXGRAD_INLINE V add_term(V sum, V dy, V) { return sum + dy; }
  template <class T> static ONNXGRAD_INLINE Vec<T> gradient(Vec<T> dy, Vec<T> y, Vec<T> sum) {
    return fma(-sum, exp_of_log<T>(y), dy);
  }
};

// Terms added in the working type before a wider sum takes over: a vocabulary row is long, its
// terms change sign.
constexpr Dim kSumBlock = 4096;
// Rows longer than this are cut into blocks, so that one long row is work for several threads too.
constexpr Dim kLongRow = Dim(1) << 17;

template <class Kind, class T> double sum_terms(const T* dy, const T* y, Dim count) {
  double total = 0;
  for (Dim block = 0; block < count; block += kSumBlock) {
    const Dim end = block + kSumBlock < count ? block + kSumBlock : count;
    Vec<T> sum[4] = {};  // four chains hide the latency of the addition
    Dim i = block;
    for (; i + 4 * lanes<T> <= end; i += 4 * lanes<T>)
      for (int k = 0; k < 4; ++k)
        sum[k] =
            Kind::add_term(sum[k], load<T>(dy + i + k * lanes<T>), load<T>(y + i + k * lanes<T>));
    for (; i < end; i += lanes<T>) {
      const Dim n = end - i < lanes<T> ? end - i : lanes<T>;
      sum[0] = Kind::add_term(sum[0], load_some<T>(dy + i, n), load_some<T>(y + i, n));
    }
    total += double(sum_lanes<T>((sum[0] + sum[1]) + (sum[2] + sum[3])));
  }
  return total;
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
      const double sum = sum_terms<Kind>(dy_row, y_row, s.axis);
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
  double sums[kBlocks];
  for (Dim row = 0; row < s.outer; ++row) {
    const T *dy_row = dy.data() + row * s.axis, *y_row = y.data() + row * s.axis;
    call.parallel_for(kBlocks, [&](Dim b) {
      sums[b] = sum_terms<Kind>(dy_row + block(b), y_row + block(b), block(b + 1) - block(b));
    });
    double sum = 0;
    for (double part : sums) sum += part;
    call.parallel_for(kBlocks, [&](Dim b) {
      const Dim from = block(b), count = block(b + 1) - from;
      set_gradient<Kind>(dy_row + from, y_row + from, dx.part(row * s.axis + from, count), sum,
                         streamed);
      stream_done();
    });
  }
}

// 256 bytes of neighbouring columns are summed together: whole cache lines, and the sums stay in
// registers.
constexpr int kStripe = (kVectorBytes > 16 ? 256 : 128) / kVectorBytes;

// Columns [0, width) of one [axis, inner] slab; `width` is at most a stripe, `full` says that it is
// one. While dX is computed from the level 2 cache, the memory fetches the next stripe, `ahead`
// elements from here. What the sum does not read is fetched a few rows ahead instead: a whole
// stripe of it would take the place of what is needed first.
template <class Kind, bool full, class T>
ONNXGRAD_INLINE void softmax_stripe(SoftmaxShape s, const T* dy, const T* y, T* dx, Dim width,
                                    bool streamed, Dim ahead) {
  const auto count = [&](int k) ONNXGRAD_LAMBDA {
    const Dim left = width - k * lanes<T>;
    return full || left >= lanes<T> ? lanes<T> : left > 0 ? left : 0;
  };
  Vec<T> total[kStripe] = {};
  for (Dim block = 0; block < s.axis;
       block += 64) {  // sums of sums: the error grows with 64 + axis/64, not axis
    const Dim end = block + 64 < s.axis ? block + 64 : s.axis;
    Vec<T> sum[kStripe] = {};
    for (Dim a = block; a < end; ++a)
      for (int k = 0; k < kStripe; ++k) {
        const Dim at = a * s.inner + k * lanes<T>;
        if (full || count(k) > 0)
          sum[k] = Kind::add_term(sum[k], load_some<T>(dy + at, count(k)),
                                  load_some<T>(y + at, count(k)));
      }
    for (int k = 0; k < kStripe; ++k) total[k] += sum[k];
  }
  for (Dim a = 0; a < s.axis; ++a)
    for (int k = 0; k < kStripe; ++k) {
      const Dim at = a * s.inner + k * lanes<T>;
      if (!full && count(k) == 0) continue;
      if (full && streamed) {
        __builtin_prefetch(dy + ahead + at, 0, 2);
        __builtin_prefetch(y + at + (Kind::sums_y ? ahead : 16 * s.inner), 0, 2);
      }
      const Vec<T> value = Kind::template gradient<T>(load_some<T>(dy + at, count(k)),
                                                      load_some<T>(y + at, count(k)), total[k]);
      if (full && streamed)
        stream<T>(dx + at, value);
      else
        store_some<T>(dx + at, value, count(k));
    }
}

// inner > 1: columns are summed side by side, a stripe at a time.
template <class Kind, class T> void softmax_columns(Call& call, SoftmaxShape s, Span<const T> dy,
                                                    Span<const T> y, Span<T> dx, bool streamed) {
  constexpr Dim width = kStripe * lanes<T>;
  const Dim stripes = (s.inner + width - 1) / width, slab = s.axis * s.inner;
  const bool aligned =
      reinterpret_cast<std::uintptr_t>(dx.data()) % kVectorBytes == 0 && s.inner % lanes<T> == 0;
  const auto start = [&](Dim piece) { return piece / stripes * slab + piece % stripes * width; };
  const Dim cost = s.axis * (s.inner < width ? s.inner : width);
  call.parallel_ranges(
      s.outer * stripes, kPointwiseGrain / (cost + 1) + 1, [&](Dim begin, Dim end) {
        for (Dim piece = begin; piece < end; ++piece) {
          const Dim column = piece % stripes * width, at = start(piece);
          if (column + width <= s.inner)
            softmax_stripe<Kind, true, T>(s, dy.data() + at, y.data() + at, dx.data() + at, width,
                                          streamed && aligned,
                                          piece + 1 < end ? start(piece + 1) - at : 0);
          else
            softmax_stripe<Kind, false, T>(s, dy.data() + at, y.data() + at, dx.data() + at,
                                           s.inner - column, false, 0);
        }
        stream_done();
      });
}

// dX may be the memory of dY.
template <class Kind, class T> void softmax_family(Call& call, SoftmaxShape s) {
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
