// dX[row] = Σ dY[k] over the k whose index is that row: sorted by row first,
// so that every row of dX is written exactly once, by one thread,
// in a fixed order, and rows without an index are only set to zero.
#pragma once
#include "core/pointwise.h"
#include "core/reduce.h"
#include "core/workspace.h"

namespace onnxgrad::ONNXGRAD_ISA {

// `first[r] … first[r + 1]` are the places in `order`
// that hold the positions k of row r, ascending.
struct SortedIndices {
  Dim rows, count;
  const std::int64_t *first, *order;
};

struct SortSpace {
  Workspace::Shared<std::int64_t> first, order;
  static SortSpace in(Workspace& space, Dim rows, Dim count) {
    return {space.shared<std::int64_t>(rows + 2), space.shared<std::int64_t>(count)};
  }
};

// Counting sort; row(k) in [0, rows) for k in [0, count).
template <class F>
SortedIndices sort_indices(Workspace& space, SortSpace at, Dim rows, Dim count, F&& row) {
  std::int64_t *first = space[at.first].data(), *order = space[at.order].data();
  for (Dim r = 0; r < rows + 2; ++r) first[r] = 0;
  for (Dim k = 0; k < count; ++k) ++first[row(k) + 2];
  for (Dim r = 2; r < rows + 2; ++r) first[r] += first[r - 1];
  for (Dim k = 0; k < count; ++k)
    order[first[row(k) + 1]++] = k;  // afterwards first[r + 1] is where r + 1 begins
  return {rows, count, first, order};
}

// out[c] = Σ dy[order[j] · inner + c] for j in [begin, end), `count` registers
// from column c on: sums of 32 rows, then of those sums.
template <int count, class T>
ONNXGRAD_INLINE void set_columns_sum(const T* dy, const SortedIndices& s, Dim begin, Dim end,
                                     Dim inner, T* out, Dim c, Dim n) {
  Vec<T> total[count] = {};
  for (Dim group = begin; group < end; group += 32) {
    Vec<T> sum[count] = {};
    for (Dim j = group; j < smaller_of(group + 32, end); ++j)
#pragma GCC unroll 4
      for (int k = 0; k < count; ++k)
        sum[k] += load_some<T>(dy + s.order[j] * inner + c + k * lanes<T>, n);
    for (int k = 0; k < count; ++k) total[k] += sum[k];
  }
  for (int k = 0; k < count; ++k) store_some<T>(out + c + k * lanes<T>, total[k], n);
}

template <class T>
void set_row_sum(const T* dy, const SortedIndices& s, Dim row, Dim inner, T* out, Dim width) {
  const Dim begin = s.first[row], end = s.first[row + 1];
  Dim c = 0;
  for (; c + 4 * lanes<T> <= width; c += 4 * lanes<T>)
    set_columns_sum<4, T>(dy, s, begin, end, inner, out, c, lanes<T>);
  for (; c + lanes<T> <= width; c += lanes<T>)
    set_columns_sum<1, T>(dy, s, begin, end, inner, out, c, lanes<T>);
  if (c < width) set_columns_sum<1, T>(dy, s, begin, end, inner, out, c, width - c);
}

// Rows shorter than a register, [begin, end): all of them to zero
// at once, then the sums of those that have an index.
template <class T> void set_short_rows(const T* dy, const SortedIndices& s, Dim begin, Dim end,
                                       Dim inner, T* out, bool streamed) {
  fill<T>(Span<T>(out, (end - begin) * inner), streamed,
          [](Dim, Dim) ONNXGRAD_LAMBDA { return Vec<T>{}; });
  for (Dim row = begin; row < end; ++row) {
    if (s.first[row] == s.first[row + 1]) continue;
    for (Dim c = 0; c < inner; ++c) {
      double sum = 0;
      for (Dim j = s.first[row]; j < s.first[row + 1]; ++j)
        sum += double(dy[s.order[j] * inner + c]);
      out[(row - begin) * inner + c] = T(sum);
    }
  }
}

// dX viewed as [outer, rows, inner], dY as [outer, count, inner].
// Pieces are groups of rows, or parts of a long row.
template <class T>
void scatter_sum(Call& call, const SortedIndices& s, Dim outer, Dim inner, const T* dy, T* dx) {
  if (outer * s.rows * inner == 0) return;
  constexpr Dim kWidth =
      1024;  // columns of a piece: a row that many indices share is then work for several threads
  const Dim stripes = divide_up(inner, kWidth),
            group = larger_of(1, kPointwiseGrain / smaller_of(inner, kWidth));
  const Dim groups = divide_up(s.rows, group);
  const bool streamed = outer * s.rows * inner * Dim(sizeof(T)) > kStreamBytes;
  call.parallel_for(outer * groups * stripes, [&](Dim piece) {
    const Dim from = piece % stripes * kWidth, width = smaller_of(kWidth, inner - from),
              rest = piece / stripes;
    const Dim begin = rest % groups * group, end = smaller_of(begin + group, s.rows),
              o = rest / groups;
    const T* dy_slab = dy + o * s.count * inner + from;
    if (inner < lanes<T>) {
      set_short_rows<T>(dy_slab, s, begin, end, inner, dx + (o * s.rows + begin) * inner, streamed);
      return stream_done();
    }
    for (Dim row = begin; row < end; ++row) {
      T* out = dx + (o * s.rows + row) * inner + from;
      if (s.first[row + 1] > s.first[row])
        set_row_sum<T>(dy_slab, s, row, inner, out, width);
      else
        fill<T>(Span<T>(out, width), streamed, [](Dim, Dim) ONNXGRAD_LAMBDA { return Vec<T>{}; });
    }
    stream_done();
  });
}

}  // namespace onnxgrad::ONNXGRAD_ISA
