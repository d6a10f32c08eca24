// The gradients of the layer normalisations: rows of `columns` elements, each normalised by itself.
//
//   x̂ = (X − mean)·inv        LayerNormalization; without the mean: SimplifiedLayerNormalization
//   x̂ = (Y − bias) / scale    from what the operator gave: InvertibleLayerNormalization
//   g = dY·scale
//   dX = inv·(g − Σg/columns − x̂·Σ(g·x̂)/columns)
//   dscale = Σ_rows dY·x̂,   dbias = Σ_rows dY
#pragma once
#include "core/pointwise.h"
#include "core/reduce.h"
#include "core/workspace.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

enum class Normalization { centred, uncentred, inverted };

template <class T> struct LayerNorm {
  Dim rows, columns;
  const T *dy, *x, *scale, *bias, *mean,
      *inv;        // x is Y for the inverted form; mean or bias may be null
  const T* added;  // to dX; may be null
  T* dx;
  bool streamed;  // dX is larger than the caches, and its rows are aligned
};

// Σ g and Σ g·(X − mean) of one row; for the inverted form Σ g·x̂.
struct RowSums {
  double g, gc;
};

// dX = dY·inv·scale + offset + slope·centred,  dscale += dY·inv·centred,
// with centred = X − mean (inv is 1 for x̂).
template <class T> struct RowTerms {
  Vec<T> mean, inv, slope, offset;
};

// X − mean, or x̂ for the inverted form.
template <Normalization kind, class T>
ONNXGRAD_INLINE Vec<T> centred(const LayerNorm<T>& s, Dim row, Dim i, Dim n, Vec<T> mean) {
  const Vec<T> x = load_some<T>(s.x + row * s.columns + i, n);
  if constexpr (kind == Normalization::centred) return x - mean;
  if constexpr (kind == Normalization::uncentred) return x;
  const Vec<T> scale = load_some<T>(s.scale + i, n),
               xhat = (x - load_some<T>(s.bias + i, n)) / scale;
  return n == lanes<T> ? xhat
                       : select(scale == Vec<T>{}, Vec<T>{}, xhat);  // lanes past the end are 0/0
}

template <Normalization kind, class T>
RowSums sum_row(const LayerNorm<T>& s, Dim row, Dim from, Dim to) {
  const Vec<T> mean = splat<T>(s.mean ? s.mean[row] : T(0));
  const T* dy = s.dy + row * s.columns;
  double total[2] = {};
  add_sums<2, T>(to - from, total, [&](Dim k, Dim n, Vec<T>(&sums)[2]) ONNXGRAD_LAMBDA {
    const Dim i = from + k;
    const Vec<T> g = load_some<T>(dy + i, n) * load_some<T>(s.scale + i, n);
    if constexpr (kind != Normalization::uncentred) sums[0] += g;
    sums[1] = fma(g, centred<kind, T>(s, row, i, n, mean), sums[1]);
  });
  return {total[0], total[1]};
}

template <Normalization kind, class T>
RowTerms<T> terms_of(const LayerNorm<T>& s, Dim row, RowSums sums) {
  const double inv = double(s.inv[row]), columns = double(s.columns);
  const double slope = kind == Normalization::inverted ? inv : inv * inv * inv;
  return {splat<T>(s.mean ? s.mean[row] : T(0)), splat<T>(s.inv[row]),
          splat<T>(T(-slope * sums.gc / columns)), splat<T>(T(-inv * sums.g / columns))};
}

// dX of `count` rows from `row` on, columns [from, to), and their share
// of dscale and dbias: two rows at once, so that the partial sums are read
// and written half as often (the terms of more rows do not fit the registers).
template <Normalization kind, int count, class T> void add_rows(const LayerNorm<T>& s, Dim row,
                                                                const RowTerms<T>* terms, Dim from,
                                                                Dim to, T* dscale, T* dbias) {
  RowTerms<T> held[count];
  for (int r = 0; r < count; ++r) held[r] = terms[r];
  each_register<T>(from, to, [&](Dim i, Dim n) ONNXGRAD_LAMBDA {
    const Vec<T> scale = load_some<T>(s.scale + i, n);
    Vec<T> dscale_sum = load_some<T>(dscale + i, n), dbias_sum{};
    if constexpr (kind != Normalization::uncentred) dbias_sum = load_some<T>(dbias + i, n);
#pragma GCC unroll 4
    for (int r = 0; r < count; ++r) {
      const Dim at = (row + r) * s.columns + i;
      const Vec<T> dy = load_some<T>(s.dy + at, n), g = dy * held[r].inv;
      const Vec<T> c = centred<kind, T>(s, row + r, i, n, held[r].mean);
      Vec<T> dx = fma(c, held[r].slope, fma(g, scale, held[r].offset));
      if (s.added) dx += load_some<T>(s.added + at, n);
      s.streamed ? stream<T>(s.dx + at, dx) : store_some<T>(s.dx + at, dx, n);
      dscale_sum = fma(kind == Normalization::inverted ? dy : g, c, dscale_sum);
      dbias_sum += dy;
    }
    store_some<T>(dscale + i, dscale_sum, n);
    if constexpr (kind != Normalization::uncentred) store_some<T>(dbias + i, dbias_sum, n);
  });
}

constexpr int kRowsAtOnce = 2;

// Rows [begin, end): sums, then dX while the rows are still in the cache.
template <Normalization kind, class T>
void normalize_rows(const LayerNorm<T>& s, Dim begin, Dim end, T* dscale, T* dbias) {
  RowTerms<T> terms[kRowsAtOnce];
  for (Dim row = begin; row < end; row += kRowsAtOnce) {
    const Dim count = smaller_of(kRowsAtOnce, end - row);
    for (Dim r = 0; r < count; ++r)
      terms[r] = terms_of<kind>(s, row + r, sum_row<kind>(s, row + r, 0, s.columns));
    if (count == kRowsAtOnce)
      add_rows<kind, kRowsAtOnce>(s, row, terms, 0, s.columns, dscale, dbias);
    else
      for (Dim r = 0; r < count; ++r)
        add_rows<kind, 1>(s, row + r, terms + r, 0, s.columns, dscale, dbias);
  }
}

// Rows of usual length: blocks of rows, each with partial sums of its own.
template <Normalization kind, class T>
void normalize_blocks(Call& call, const LayerNorm<T>& s, Workspace& space,
                      Workspace::Shared<T> partials, RowBlocks blocks, Span<T> dscale,
                      Span<T> dbias) {
  space.open();
  T* partial = space[partials].data();
  call.parallel_for(blocks.count, [&](Dim b) {
    T* mine = partial + b * 2 * s.columns;
    for (Dim i = 0; i < 2 * s.columns; ++i) mine[i] = T(0);
    normalize_rows<kind>(s, blocks.begin(b), blocks.end(b), mine, mine + s.columns);
    stream_done();
  });
  sum_partials<T>(call, partial, blocks.count, 2 * s.columns, dscale);
  if (dbias) sum_partials<T>(call, partial + s.columns, blocks.count, 2 * s.columns, dbias);
}

constexpr Dim kLongNormRow = 16384;

// Long rows: sums of blocks of columns first; then each
// block of columns goes through all rows and owns its dscale.
template <Normalization kind, class T>
void normalize_long_rows(Call& call, const LayerNorm<T>& s, Workspace& space,
                         Workspace::Shared<RowSums> sums, Span<T> dscale, Span<T> dbias) {
  space.open();
  RowSums* sum = space[sums].data();
  const Dim pieces = divide_up(s.columns, kLongNormRow);
  call.parallel_for(s.rows * pieces, [&](Dim k) {
    const Dim from = k % pieces * kLongNormRow;
    sum[k] = sum_row<kind>(s, k / pieces, from, smaller_of(from + kLongNormRow, s.columns));
  });
  for (Dim row = 0; row < s.rows; ++row) {
    RowSums total{0, 0};
    for (Dim k = row * pieces; k < (row + 1) * pieces; ++k)
      total.g += sum[k].g, total.gc += sum[k].gc;
    sum[row] = total;  // row <= row * pieces: not read again
  }
  call.parallel_ranges(s.columns, 4096, [&](Dim from, Dim to) {
    for (Dim i = from; i < to; ++i) dscale[i] = T(0);
    if (dbias)
      for (Dim i = from; i < to; ++i) dbias[i] = T(0);
    for (Dim row = 0; row < s.rows; ++row) {
      const RowTerms<T> terms = terms_of<kind>(s, row, sum[row]);
      add_rows<kind, 1>(s, row, &terms, from, to, dscale.data(), dbias.data());
    }
    stream_done();
  });
}

// ---- what the three operators share

// The axis attribute splits X into rows and columns;
// scale (and bias) has the columns, the statistics have the rows.
inline void check_parts(const Call& call, int axis, const char* x,
                        std::initializer_list<const char*> of_columns,
                        std::initializer_list<const char*> of_rows) {
  const Shape& shape = call.shape(x);
  const Shape columns(shape.data() + axis, shape.rank() - axis), rows(shape.data(), axis);
  Shape kept = rows;
  for (int i = axis; i < shape.rank(); ++i) kept.push_back(1);
  const auto wrong = [&](const char* name, const Shape& expected) {
    call.fail("input " + std::string(name) + " has shape " + to_string(call.shape(name)) +
              ", expected " + to_string(expected) + " (" + x + " has shape " + to_string(shape) +
              ", axis is " + std::to_string(call.integer("axis")) + ")");
  };
  for (const char* name : of_columns)
    if (call.shape(name) != columns) wrong(name, columns);
  for (const char* name : of_rows)
    if (call.shape(name) != kept && call.shape(name) != rows) wrong(name, kept);
}

template <Normalization kind, class T>
void layer_normalization(Call& call, const char* x, const char* mean, const char* inv) {
  const int axis = call.axis("axis", x);
  const Shape& shape = call.shape(x);
  if (shape.rank() == 0)
    call.fail("input " + std::string(x) + " has shape [], expected at least one dim");
  if (kind == Normalization::inverted) check_parts(call, axis, x, {"scale", "bias"}, {inv});
  if (kind == Normalization::centred) check_parts(call, axis, x, {"scale"}, {mean, inv});
  if (kind == Normalization::uncentred) check_parts(call, axis, x, {"scale"}, {inv});
  const Dim rows = shape.product(0, axis), columns = shape.product(axis, shape.rank());
  const bool is_long = columns > kLongNormRow;
  const bool few = rows * columns < 8 * kPointwiseGrain;  // pieces: cut finer
  const RowBlocks blocks = RowBlocks::of(rows, columns, kPointwiseGrain / (few ? 2 : 1));
  Workspace space;
  const auto partials = space.shared<T>(is_long ? 0 : blocks.count * 2 * columns);
  const auto sums = space.shared<RowSums>(is_long ? rows * divide_up(columns, kLongNormRow) : 0);
  Workspace::acquire(call, space.bytes());

  LayerNorm<T> s{rows,
                 columns,
                 call.input<T>("Y_grad").data(),
                 call.input<T>(x).data(),
                 call.input<T>("scale").data(),
                 nullptr,
                 nullptr,
                 call.input<T>(inv).data(),
                 nullptr,
                 nullptr,
                 false};
  if (kind == Normalization::inverted) s.bias = call.input<T>("bias").data();
  if (kind == Normalization::centred) s.mean = call.input<T>(mean).data();
  if (kind != Normalization::inverted) s.added = call.input<T>("added").data();
  s.dx = call.output<T>("X_grad").data();
  s.streamed = columns % lanes<T> == 0 &&
               reinterpret_cast<std::uintptr_t>(s.dx) % kVectorBytes == 0 &&
               3 * rows * columns * Dim(sizeof(T)) > kStreamBytes;
  const Span<T> dscale = call.output<T>("scale_grad");
  const Span<T> dbias = kind == Normalization::uncentred ? Span<T>() : call.output<T>("bias_grad");
  if (is_long)
    normalize_long_rows<kind, T>(call, s, space, sums, dscale, dbias);
  else
    normalize_blocks<kind, T>(call, s, space, partials, blocks, dscale, dbias);
}

}  // namespace onnxgrad::ONNXGRAD_ISA
