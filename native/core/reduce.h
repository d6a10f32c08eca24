// Sums in a fixed order, whatever the number of threads:
// registers within a block, blocks in double.
#pragma once
#include "core/call.h"
#include "core/dims.h"
#include "core/vector.h"

namespace onnxgrad::ONNXGRAD_ISA {

// Terms added in T before double takes over: the error
// of a long sum then grows with the block, not with its length.
constexpr Dim kReduceBlock = 1024;

// f(i, n) for the registers of elements [from, to); n is a constant for all but the last.
template <class T, class F> ONNXGRAD_INLINE void each_register(Dim from, Dim to, F&& f) {
  Dim i = from;
  for (; i + lanes<T> <= to; i += lanes<T>) f(i, lanes<T>);
  if (i < to) f(i, to - i);
}

// sum += term. What rounding adds to the sum is added to `excess`: exactly where
// the sum is larger than the term, nearly elsewhere. The true sum is sum − excess.
template <class T> ONNXGRAD_INLINE void add_compensated(Vec<T>& sum, Vec<T>& excess, Vec<T> term) {
  const Vec<T> next = sum + term;
  excess += (next - sum) - term;
  sum = next;
}

// total[k] += Σ_i terms. `add(i, n, sums)` adds the terms
// of elements [i, i + n) to the registers sums[0 … N).
template <int N, class T, class F>
ONNXGRAD_INLINE void add_sums(Dim count, double (&total)[N], F&& add) {
  constexpr int chains = N == 1 ? 4 : 2;  // independent additions hide each other's latency
  for (Dim block = 0; block < count; block += kReduceBlock) {
    const Dim end = smaller_of(block + kReduceBlock, count);
    Vec<T> sums[chains][N] = {};
    Dim i = block;
    for (; i + chains * lanes<T> <= end; i += chains * lanes<T>)
#pragma GCC unroll 4
      for (int c = 0; c < chains; ++c) add(i + c * lanes<T>, lanes<T>, sums[c]);
    for (; i < end; i += lanes<T>) add(i, smaller_of(lanes<T>, end - i), sums[0]);
    for (int k = 0; k < N; ++k) {
      Vec<T> sum = sums[0][k] + sums[1][k];
      if constexpr (chains == 4) sum += sums[2][k] + sums[3][k];
      total[k] += double(sum_lanes<T>(sum));
    }
  }
}

// Sums over the rows of a matrix, made of partial sums of blocks of rows.
// The cut depends on the shape alone. Blocks are low, because equal terms drift
// when many are added in float, unless their sums would fill the working memory.
struct RowBlocks {
  Dim rows, height, count;  // rows in all, rows of a block, blocks

  static RowBlocks of(Dim rows, Dim columns, Dim grain) {
    constexpr Dim kMostSums = Dim(1) << 22;
    const Dim wide = larger_of(columns, 1), most = larger_of(512, kMostSums / wide);
    const Dim height =
        larger_of(smaller_of(128, larger_of(16, divide_up(grain, wide))), divide_up(rows, most));
    return {rows, height, divide_up(rows, height)};
  }
  Dim begin(Dim block) const { return block * height; }
  Dim end(Dim block) const { return smaller_of((block + 1) * height, rows); }
};

// out[c] = Σ_block partial[block · pitch + c].
// What the additions round off is summed beside the sum.
template <class T>
void sum_partials(Call& call, const T* partial, Dim blocks, Dim pitch, Span<T> out) {
  call.parallel_ranges(out.size(), 2048, [&](Dim from, Dim to) {
    each_register<T>(from, to, [&](Dim c, Dim n) ONNXGRAD_LAMBDA {
      Vec<T> sum{}, excess{};
      for (Dim b = 0; b < blocks; ++b)
        add_compensated<T>(sum, excess, load_some<T>(partial + b * pitch + c, n));
      store_some<T>(out.data() + c, sum - select(excess == excess, excess, Vec<T>{}), n);
    });
  });
}

}  // namespace onnxgrad::ONNXGRAD_ISA
