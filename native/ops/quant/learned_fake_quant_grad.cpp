#include <cmath>

#include "core/vmath.h"
#include "core/wide_sum.h"
#include "ops/quant/fake_quant.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& learned_fake_quant_grad_contract() {
  static const Contract c =
      with_range_attributes(Contract("LearnedFakeQuantGrad"), "scale")
          .summary(
              "Gradient of FakeQuant for its input and for scales and zero points that are learned "
              "(LSQ, LSQ+).")
          .formula(
              "with t = input / scale and r as in FakeQuant: dX = dY where round(t) is within the "
              "range, else 0;\n"
              "dscale = grad_factor · Σ dY · (r − t) within the range, dY · r outside of it;\n"
              "dzero_point = grad_factor · Σ −dY · scale outside of it; scale_gradient multiplies "
              "dscale by 1/√(n · q) (lsq) or 1/(√(n · q) · scale²) (lsq_log), where n numbers "
              "share a scale and q = max(quant_max − z, z − quant_min − 1)")
          .accuracy(Measure::rms, 2e-6, 1e-13)
          .accuracy_of("dX", Measure::ulp, 5, 1e-13)
          .attr("grad_factor", 1.0f, "what dscale and dzero_point are multiplied by")
          .attr("scale_gradient", "exact", {"exact", "lsq", "lsq_log"},
                "the pace of learned scales: the derivative, LSQ's, or LSQ's for a scale that is "
                "learned as its logarithm")
          .attr("batched", 0, "1: n counts the numbers of one row of axis 0, not of a whole batch")
          .input("dY", "T[shape...]", "cotangent of the output")
          .input("input", "T[shape...]", "what was quantised")
          .input("scale", "T[scales...]", "as FakeQuant had it")
          .optional("zero_point", "T[scales...]", "as FakeQuant had it")
          .optional_output("dX", "T[shape...]", "gradient of the input")
          .optional_output("dscale", "T[scales...]", "gradient of the scales")
          .optional_output("dzero_point", "T[scales...]", "gradient of the zero points");
  return c;
}

namespace {

// r·s − x, where the two nearly cancel: one rounding of the difference, none of the product.
template <class T> ONNXGRAD_INLINE Vec<T> beyond(Vec<T> r, Vec<T> s, Vec<T> x) {
  if constexpr (kHasFma) return fma(r, s, -x);
  const auto product = detail::exact_product<T>(r, s);
  return (product.high - x) + product.low;
}

// What one register adds to the three gradients. The two sums lack what all their terms share:
// dscale = Σ over_scale / scale, dzero_point = Σ outside · −scale.
template <class T> struct FakeQuantTerms {
  Vec<T> dx, over_scale, outside;

  ONNXGRAD_INLINE FakeQuantTerms(Vec<T> dy, Vec<T> x, const FakeQuantiser<T>& q) {
    const Vec<T> rounded = q.rounded(x), r = q.clipped(rounded);
    const VecBits<T> inside = q.inside(rounded);
    dx = select(inside, dy, Vec<T>{});
    outside = dy - dx;
    over_scale = dy * select(inside, beyond<T>(r, q.scale, x),
                             r * q.scale);  // r·s − x without the rounding of x/s
  }
};

// Terms cancel where a scale is about right: their sum is taken in double, and in double with what
// the additions lose.
template <class T> class FakeQuantSum {
 public:
  ONNXGRAD_INLINE void add(Vec<T> terms) {
    if constexpr (sizeof(T) == sizeof(double)) {
      sums_[0].add(terms);
    } else {
      sums_[0].add(low_half(terms));
      sums_[1].add(high_half(terms));
    }
  }
  double value() {
    sums_[0].add(sums_[1]);
    return sum_of_lanes(sums_[0]).value();
  }

 private:
  WideSum<T, Vec<double>> sums_[2];
};

// Where the sums of all elements that share a scale go, and what they are multiplied by.
template <class T> struct ScaleGradients {
  T *dscale, *dzero;      // nullptr: not asked for
  const T *scale, *zero;  // zero: nullptr for all zero
  QuantRange range;
  double shared;  // numbers of a scale
  ScalePace pace;
  double factor;

  void put(Dim k, double over_scale, double outside) const {
    const double s = double(scale[k]);
    if (dscale) dscale[k] = T(over_scale / s * factor * pace_of(k));
    if (dzero) dzero[k] = T(-outside * s * factor);
  }
  double pace_of(Dim k) const {
    if (pace == ScalePace::exact) return 1;
    const double z = zero ? double(zero[k]) : 0, s = double(scale[k]);
    const double q = std::max(double(range.high) - z, z - double(range.low) - 1);
    const double g = 1 / std::sqrt(shared * std::max(q, 1.0));
    return pace == ScalePace::lsq ? g : g / (s * s);
  }
};

// Runs: one pair of sums for each piece of a run; then those of all runs of a scale, in order.
template <class T> void sum_runs(Call& call, const QuantLayout& layout,
                                 const QuantScales<T>& scales, const T* dy, const T* x, T* dx,
                                 double* partial, const ScaleGradients<T>& out) {
  const Dim length = larger_of(layout.length, 1), chunks = divide_up(length, kPointwiseGrain);
  const Dim together = larger_of(kPointwiseGrain / length, 1);
  call.parallel_ranges(layout.count * chunks, together, [&](Dim from, Dim to) {
    for (Dim piece = from; piece < to; ++piece) {
      const Dim run = piece / chunks, begin = layout.begin(run), size = layout.size(run);
      const Dim first = smaller_of(piece % chunks * kPointwiseGrain, size);
      const Dim count = smaller_of(kPointwiseGrain, size - first), at = begin + first;
      const FakeQuantiser<T> q = scales.one(layout.scale_of_run(run));
      FakeQuantSum<T> sums[2];
      each_register<T>(0, count, [&](Dim i, Dim n) ONNXGRAD_LAMBDA {
        const FakeQuantTerms<T> terms(load_some<T>(dy + at + i, n), load_some<T>(x + at + i, n), q);
        if (dx) store_some<T>(dx + at + i, terms.dx, n);
        sums[0].add(terms.over_scale);
        if (out.dzero) sums[1].add(terms.outside);
      });
      partial[2 * piece] = sums[0].value();
      partial[2 * piece + 1] = sums[1].value();
    }
  });
  const Dim scale_count = layout.shape.scales();
  call.parallel_ranges(scale_count, 256, [&](Dim from, Dim to) {
    for (Dim s = from; s < to; ++s) {
      double total[2] = {};
      for (Dim run = s; run < layout.count; run += scale_count)
        for (Dim piece = run * chunks; piece < (run + 1) * chunks; ++piece)
          for (int k = 0; k < 2; ++k) total[k] += partial[2 * piece + k];
      out.put(s, total[0], total[1]);
    }
  });
}

// A little more than the columns: sums that lie whole pages apart would wait for each other.
Dim column_pitch(Dim columns) {
  return columns + 80;
}

// Columns: the sums of the columns over rows [from, to), which share their scales. Row by row, as
// they lie in memory; the sums of a few rows are kept in T and moved to double.
template <class T> void sum_rows(const QuantLayout& layout, const QuantScales<T>& scales,
                                 const T* dy, const T* x, T* dx, Dim from, Dim to, T* partial) {
  const Dim columns = layout.length, of_rows = layout.scales_of_row(from);
  T *over = partial, *outside = partial + column_pitch(columns);
  for (Dim c = 0; c < columns; ++c) over[c] = outside[c] = T(0);
  for (Dim row = from; row < to; ++row)
    each_register<T>(0, columns, [&](Dim c, Dim n) ONNXGRAD_LAMBDA {
      const Dim at = row * columns + c;
      const FakeQuantTerms<T> terms(load_some<T>(dy + at, n), load_some<T>(x + at, n),
                                    scales.many(of_rows + c, n));
      if (dx) store_some<T>(dx + at, terms.dx, n);
      store_some<T>(over + c, load_some<T>(over + c, n) + terms.over_scale, n);
      store_some<T>(outside + c, load_some<T>(outside + c, n) + terms.outside, n);
    });
}

// How rows are cut: blocks of rows whose scales are the same.
struct QuantRowCut {
  Dim count, height;
};

QuantRowCut row_cut(const QuantLayout& layout) {
  const QuantShape& s = layout.shape;
  if (s.blockwise()) return {s.outer * s.blocks, s.block};
  const RowBlocks blocks = RowBlocks::of(layout.count, layout.length, kPointwiseGrain);
  return {blocks.count, blocks.height};
}

template <class T> void sum_columns(Call& call, const QuantLayout& layout,
                                    const QuantScales<T>& scales, const T* dy, const T* x, T* dx,
                                    T* partial, const ScaleGradients<T>& out) {
  const QuantShape& s = layout.shape;
  const QuantRowCut cut = row_cut(layout);
  const Dim columns = layout.length, pitch = 2 * column_pitch(columns);
  call.parallel_for(cut.count, [&](Dim block) {
    const Dim from =
        s.blockwise() ? block / s.blocks * s.axis + block % s.blocks * s.block : block * cut.height;
    const Dim end = s.blockwise() ? (block / s.blocks + 1) * s.axis : layout.count;
    sum_rows<T>(layout, scales, dy, x, dx, from, smaller_of(from + cut.height, end),
                partial + block * pitch);
  });
  // Of scale k: one block and one column, or all blocks and `inner` columns; block by block, as
  // they lie in memory.
  constexpr Dim kScales = 256;
  const Dim width = s.blockwise() ? 1 : s.inner;
  call.parallel_ranges(s.scales(), kScales, [&](Dim first, Dim last) {
    double total[2][kScales] = {};
    const Dim blocks = s.blockwise() ? 1 : cut.count;
    for (Dim block = 0; block < blocks; ++block)
      for (int g = 0; g < 2; ++g)
        for (Dim k = first; k < last; ++k)
          for (Dim c = 0; c < width; ++c) {
            const Dim of = s.blockwise() ? k / columns : block,
                      column = s.blockwise() ? k % columns : k * width + c;
            total[g][k - first] += double(partial[of * pitch + g * column_pitch(columns) + column]);
          }
    for (Dim k = first; k < last; ++k) out.put(k, total[0][k - first], total[1][k - first]);
  });
}

}  // namespace

template <class T> void learned_fake_quant_grad(Call& call) {
  QuantCall<T> quant(call, "input");
  const QuantLayout& layout = quant.layout;
  const Dim chunks = divide_up(larger_of(layout.length, 1), kPointwiseGrain);
  const auto run_sums =
      quant.space.template shared<double>(layout.runs ? 2 * layout.count * chunks : 0);
  const auto column_sums = quant.space.template shared<T>(
      layout.runs ? 0 : 2 * row_cut(layout).count * column_pitch(layout.length));
  Workspace::acquire(call, quant.space.bytes());
  const T *dy = call.input<T>("dY").data(), *x = call.input<T>("input").data();
  T* dx = call.optional_output<T>("dX").data();
  const ScaleGradients<T> out{call.optional_output<T>("dscale").data(),
                              call.optional_output<T>("dzero_point").data(),
                              call.input<T>("scale").data(),
                              call.has("zero_point") ? call.input<T>("zero_point").data() : nullptr,
                              quant_range(call),
                              quant_shared(call, "input", layout.shape),
                              scale_pace(call),
                              double(call.real("grad_factor"))};
  quant.space.open();
  const QuantScales<T> scales = quant.scales(call);
  if (layout.runs)
    sum_runs<T>(call, layout, scales, dy, x, dx, quant.space[run_sums].data(), out);
  else
    sum_columns<T>(call, layout, scales, dy, x, dx, quant.space[column_sums].data(), out);
}
ONNXGRAD_FLOAT_AND_DOUBLE(learned_fake_quant_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
