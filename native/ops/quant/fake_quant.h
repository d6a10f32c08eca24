// Quantising and back, in floating point: which scale belongs to which element, and the arithmetic
// of one register.
#pragma once
#include <algorithm>

#include "core/pointwise.h"
#include "core/reduce.h"
#include "core/workspace.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

// x viewed as [outer, axis, inner]. One scale for all (per tensor: outer = axis = 1), one for each
// index of the axis, or one for each block of `block` indices of it and each inner index:
// scale[outer, blocks, inner].
struct QuantShape {
  Dim outer = 1, axis = 1, inner = 1, block = 0, blocks = 0;
  bool blockwise() const { return block > 0; }
  Dim scales() const { return blockwise() ? outer * blocks * inner : axis; }
};

// The integers, and along which axis or in which blocks `what` (a scale, a range) differs.
inline Contract with_range_attributes(Contract contract, const std::string& what) {
  return contract.attr("quant_min", 0, "the smallest integer")
      .attr("quant_max", 255, "the largest integer")
      .attr("axis", 1, "the axis along which " + what + "s differ, where there are several")
      .attr("block_size", 0,
            "indices of the axis that share a " + what + "; 0: a " + what +
                " for each index, or one for all")
      .within(0);
}

// Reads the layout from the shapes of `x` and `scale` and the attributes axis and block_size;
// fails where they disagree.
inline QuantShape quant_shape(const Call& call, std::string_view x_name,
                              std::string_view scale_name) {
  const Shape& x = call.shape(x_name);
  const Shape& scale = call.shape(scale_name);
  const Dim block = call.integer("block_size");
  QuantShape s;
  if (block == 0 && scale.size() == 1) {
    s.inner = x.size();
    return s;
  }
  const int axis = call.axis("axis", x_name);
  for (int i = 0; i < axis; ++i) s.outer *= x[i];
  s.axis = x.rank() ? x[axis] : 1;
  for (int i = axis + 1; i < x.rank(); ++i) s.inner *= x[i];
  s.block = smaller_of(block, larger_of(1, s.axis));  // a longer block is no longer than the axis
  s.blocks = block ? divide_up(s.axis, s.block) : 0;
  Shape expected = x;
  if (block) expected[axis] = s.blocks;
  const bool fits = block ? scale == expected : scale.rank() == 1 && scale[0] == s.axis;
  if (!fits)
    call.fail("input " + std::string(scale_name) + " has shape " + to_string(scale) +
              ", expected " +
              (block ? to_string(expected) + " (one for each block)"
                     : "[] or [" + std::to_string(s.axis) + "] (one for each index of axis " +
                           std::to_string(axis) + " of " + std::string(x_name) + ")"));
  return s;
}

// Numbers that share a scale; those of one row of axis 0 where that is a batch.
inline double quant_shared(const Call& call, std::string_view x_name, const QuantShape& s) {
  if (s.blockwise()) return double(s.block);
  const Shape& x = call.shape(x_name);
  const Dim rows = call.integer("batched") && x.rank() ? larger_of(x[0], 1) : 1;
  return std::max(double(s.outer * s.inner) / double(rows), 1.0);
}

// What LSQ calls the pace of a scale: how its gradient is brought to the size of a weight's.
//
//   exact     dL/ds
//   lsq       g · dL/ds with g = 1/√(n · q); n numbers share the scale, q integers lie on the
//             longer side of the zero point (127 for int8, 255 for uint8 at 0)
//   lsq_log   g · dL/ds / s², for a scale that is exp(u): du = s · dscale = g · dL/ds / s, and a
//             step of u changes s by s · du = g · dL/ds, as LSQ's own step does
enum class ScalePace { exact, lsq, lsq_log };

inline ScalePace scale_pace(const Call& call) {
  const std::string& name = call.text("scale_gradient");
  return name == "lsq" ? ScalePace::lsq : name == "lsq_log" ? ScalePace::lsq_log : ScalePace::exact;
}

// The integers [low, high] of the attributes. They stay far below 2²², where round_even() is exact.
struct QuantRange {
  float low, high;
};

inline QuantRange quant_range(const Call& call) {
  const std::int64_t low = call.integer("quant_min"), high = call.integer("quant_max"),
                     most = std::int64_t(1) << 20;
  if (low >= high || low < -most || high > most)
    call.fail("quant_min is " + std::to_string(low) + " and quant_max " + std::to_string(high) +
              ", expected quant_min < quant_max, both within ±2^20");
  return {float(low), float(high)};
}

template <class T> void check_scales(const Call& call, Span<const T> scale) {
  for (Dim i = 0; i < scale.size(); ++i)
    if (!(scale[i] > T(0)))
      call.fail("scale " + std::to_string(i) + " is " + to_string(Attribute(float(scale[i]))) +
                ", expected a number > 0");
}

// To the nearest integer, halves to the even one; for |x| < 2²².
template <class T> ONNXGRAD_INLINE Vec<T> round_even(Vec<T> x) {
  const Vec<T> magic =
      splat<T>(sizeof(T) == 4 ? T(12582912) : T(6755399441055744));  // 1.5·2^(mantissa bits)
  return (x + magic) - magic;
}

// What happens to the elements of one scale: r = clip(round(x/s), low − z, high − z), y = r·s.
template <class T> struct FakeQuantiser {
  Vec<T> scale, low, high;

  ONNXGRAD_INLINE FakeQuantiser(Vec<T> s, Vec<T> zero, QuantRange range)
      : scale(s),
        low(splat<T>(T(range.low)) - round_even<T>(zero)),
        high(splat<T>(T(range.high)) - round_even<T>(zero)) {}

  // One step beyond the range on both sides, so that what lies outside can be told; NaN stays NaN.
  ONNXGRAD_INLINE Vec<T> rounded(Vec<T> x) const {
    const Vec<T> one = splat<T>(T(1));
    return round_even<T>(at_least(low - one, at_most(high + one, x / scale)));
  }
  ONNXGRAD_INLINE Vec<T> clipped(Vec<T> r) const { return at_least(low, at_most(high, r)); }
  ONNXGRAD_INLINE VecBits<T> inside(Vec<T> r) const { return (r >= low) & (r <= high); }
};

// How the elements lie beside their scales: in runs that share one, or in rows of columns with a
// scale each.
//
//   runs      one scale per tensor; per axis with long inner; per block along the last axis
//   columns   per axis with short inner (scales are spread out over axis · inner columns);
//             per block of another axis
struct QuantLayout {
  bool runs;
  Dim count, length;  // runs and their length, or rows and their columns
  QuantShape shape;

  static QuantLayout of(const QuantShape& s) {
    constexpr Dim kShortRun = 64;  // below it a run is not worth a loop of its own
    if (s.blockwise()) {
      if (s.inner == 1) return {true, s.outer * s.blocks, s.block, s};
      return {false, s.outer * s.axis, s.inner, s};
    }
    if (s.axis == 1 || s.inner >= kShortRun) return {true, s.outer * s.axis, s.inner, s};
    return {false, s.outer, s.axis * s.inner, s};
  }
  bool spreads() const {
    return !runs && !shape.blockwise();
  }  // scales[axis] to columns[axis · inner]

  // Of run r: where it begins, how long it is, and which scale it has.
  Dim begin(Dim r) const {
    return shape.blockwise() ? r / shape.blocks * shape.axis + r % shape.blocks * shape.block
                             : r * length;
  }
  Dim size(Dim r) const {
    return shape.blockwise() ? smaller_of(length, shape.axis - r % shape.blocks * shape.block)
                             : length;
  }
  Dim scale_of_run(Dim r) const { return shape.blockwise() ? r : r % shape.axis; }
  // Of a row of columns: where the scales of its columns begin.
  Dim scales_of_row(Dim row) const {
    return shape.blockwise()
               ? (row / shape.axis * shape.blocks + row % shape.axis / shape.block) * length
               : 0;
  }
};

// The scales and zero points that a kernel reads; spread over columns where the layout asks for it.
template <class T> struct QuantScales {
  const T* scale;
  const T* zero;  // nullptr: all zero
  QuantRange range;

  ONNXGRAD_INLINE FakeQuantiser<T> one(Dim at) const {
    return {splat<T>(scale[at]), zero ? splat<T>(zero[at]) : Vec<T>{}, range};
  }
  ONNXGRAD_INLINE FakeQuantiser<T> many(Dim at, Dim count) const {
    const Vec<T> filled =
        count == lanes<T> ? Vec<T>{} : splat<T>(T(1));  // beyond the end: never divided by 0
    Vec<T> s = load_some<T>(scale + at, count);
    if (count != lanes<T>) s = select(s == Vec<T>{}, filled, s);
    return {s, zero ? load_some<T>(zero + at, count) : Vec<T>{}, range};
  }
};

// columns[a · inner + i] = scale[a]
template <class T> void spread(const QuantShape& s, Span<const T> from, T* to) {
  for (Dim a = 0; a < s.axis; ++a)
    for (Dim i = 0; i < s.inner; ++i) to[a * s.inner + i] = from[a];
}

// The checked inputs of a call, and the memory for scales that are spread out.
template <class T> class QuantCall {
 public:
  QuantCall(Call& call, std::string_view x)
      : layout(QuantLayout::of(quant_shape(call, x, "scale"))), range_(quant_range(call)) {
    check_scales<T>(call, call.input<T>("scale"));
    if (call.has("zero_point") && call.shape("zero_point") != call.shape("scale"))
      call.fail("input zero_point has shape " + to_string(call.shape("zero_point")) +
                ", expected that of scale, " + to_string(call.shape("scale")));
    if (!layout.spreads()) return;
    wide_scale_ = space.shared<T>(layout.length);
    wide_zero_ = space.shared<T>(layout.length);
  }
  // After the outputs are there.
  QuantScales<T> scales(const Call& call) {
    const Span<const T> scale = call.input<T>("scale"), zero = call.input<T>("zero_point");
    const bool has_zero = call.has("zero_point");
    if (!layout.spreads()) return {scale.data(), has_zero ? zero.data() : nullptr, range_};
    spread<T>(layout.shape, scale, space[wide_scale_].data());
    if (has_zero) spread<T>(layout.shape, zero, space[wide_zero_].data());
    return {space[wide_scale_].data(), has_zero ? space[wide_zero_].data() : nullptr, range_};
  }

  QuantLayout layout;
  Workspace space;

 private:
  QuantRange range_;
  Workspace::Shared<T> wide_scale_{}, wide_zero_{};
};

// f(at, count, quantiser) for every register of the tensor, on all threads.
template <class T, class F>
void each_quantised(Call& call, const QuantLayout& layout, const QuantScales<T>& scales, F f) {
  const Dim length = larger_of(layout.length, 1);
  if (layout.runs) {
    const Dim chunks = divide_up(length, kPointwiseGrain),
              together = larger_of(kPointwiseGrain / length, 1);
    return call.parallel_ranges(layout.count * chunks, together, [&](Dim from, Dim to) {
      for (Dim piece = from; piece < to; ++piece) {
        const Dim run = piece / chunks, begin = layout.begin(run), size = layout.size(run);
        const Dim first = piece % chunks * kPointwiseGrain,
                  last = smaller_of(first + kPointwiseGrain, size);
        const FakeQuantiser<T> q = scales.one(layout.scale_of_run(run));
        each_register<T>(begin + first, begin + last,
                         [&](Dim at, Dim n) ONNXGRAD_LAMBDA { f(at, n, q); });
      }
    });
  }
  call.parallel_ranges(layout.count, larger_of(kPointwiseGrain / length, 1), [&](Dim from, Dim to) {
    for (Dim row = from; row < to; ++row) {
      const Dim begin = row * layout.length, of_row = layout.scales_of_row(row);
      each_register<T>(0, layout.length, [&](Dim c, Dim n) ONNXGRAD_LAMBDA {
        f(begin + c, n, scales.many(of_row + c, n));
      });
    }
  });
}

}  // namespace onnxgrad::ONNXGRAD_ISA
