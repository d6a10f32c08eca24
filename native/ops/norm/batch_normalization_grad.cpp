#include "core/channel_sets.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& batch_normalization_grad_contract() {
  static const Contract c =
      Contract("BatchNormalizationGrad")
          .summary(
              "Gradient of BatchNormalization in training mode: the statistics are those of the "
              "batch.")
          .formula(
              "x̂ = (X − mean)·inv: bias_grad = Σ dY; scale_grad = Σ dY·x̂; "
              "X_grad = scale·inv·(dY − (bias_grad + x̂·scale_grad)/count), sums over batch and "
              "spatial dims")
          .accuracy(Measure::rms, 2e-6, 1e-13)
          .attr("epsilon", 1e-5f, "not used: `variance` already holds the inverse deviation")
          .input("dY", "T[N, C, size...]", "cotangent of Y")
          .input("X", "T[N, C, size...]", "what went in")
          .input("scale", "T[C]", "scale")
          .input("mean", "T[C]", "mean of each channel: saved_mean of BatchNormInternal")
          .input("variance", "T[C]",
                 "inverse deviation 1 / √(variance + epsilon) of each channel: saved_inv_std of "
                 "BatchNormInternal")
          .output("X_grad", "T[N, C, size...]", "gradient of X")
          .output("scale_grad", "T[C]", "gradient of the scale")
          .output("bias_grad", "T[C]", "gradient of the bias");
  return c;
}

namespace {

template <class T> struct Batch {
  Dim rows, columns;
  const T *dy, *x, *scale, *mean, *inv;
  T *dx, *dscale, *dbias;
};

// X_grad = a·(dY − m) + b·(X − mean) + c: m is the mean of dY as a T, c the little that it is off.
// With −a·m within c, the rounding of c would show where dY lies far from 0.
template <class T> struct Coefficients {
  T a, m, b, c;
};
template <class T> Coefficients<T> set_channel(const Batch<T>& s, Dim channel,
                                               const WideSum<T, double>& dy, double dy_x,
                                               Dim count) {
  const double inv = double(s.inv[channel]), a = double(s.scale[channel]) * inv;
  const Mean<T> m(dy, count);
  s.dbias[channel] = T(dy.value()), s.dscale[channel] = T(dy_x * inv);
  return {T(a), m.value, T(-a * inv * inv * dy_x / double(count)), T(-a * m.off)};
}

// The same, a register at a time.
template <class T> struct Normalised {
  Vec<T> a, m, b, c, mean;
  ONNXGRAD_INLINE Vec<T> operator()(Vec<T> dy, Vec<T> x) const {
    return fma(a, dy - m, fma(b, x - mean, c));
  }
};

// f(k, n) for the registers of a row, cut where they would cross lines of the cache:
// short rows begin anywhere, and a register that crosses costs two.
// For results only: a sum would depend on where its terms lie in memory.
template <class T, class F>
ONNXGRAD_INLINE void each_aligned_register(const T* row, Dim size, F&& f) {
  const Dim head = smaller_of(until_aligned(row, lanes<T>), size);
  if (head > 0) f(0, head);
  Dim k = head;
  for (; k + lanes<T> <= size; k += lanes<T>) f(k, lanes<T>);
  if (k < size) f(k, size - k);
}

template <class T> ONNXGRAD_INLINE void set_short_row(const Normalised<T>& gradient, const T* dy,
                                                      const T* x, T* dx, Dim size) {
  each_aligned_register<T>(dx, size, [&](Dim k, Dim n) ONNXGRAD_LAMBDA {
    store_some<T>(dx + k, gradient(load_some<T>(dy + k, n), load_some<T>(x + k, n)), n);
  });
}

// Running sums of dY and of dY·(X − mean), in several
// registers each: they hide the latency of the additions.
template <class T> struct RunningSums {
  static constexpr int kRows = 4;
  Vec<T> mean, dy_sum[kRows] = {}, dy_x_sum[kRows] = {};

  // Adds `rows` rows, `step` elements apart.
  template <int rows> ONNXGRAD_INLINE void add(const T* dy, const T* x, Dim step, Dim size) {
    each_register<T>(0, size, [&](Dim k, Dim n) ONNXGRAD_LAMBDA {
#pragma GCC unroll 4
      for (int i = 0; i < rows; ++i) {
        const Vec<T> v = load_some<T>(dy + i * step + k, n);
        dy_sum[i] += v;
        dy_x_sum[i] = fma(v, load_some<T>(x + i * step + k, n) - mean, dy_x_sum[i]);
      }
    });
  }
  static double total(const Vec<T> (&sum)[kRows]) {
    return double(sum_lanes<T>((sum[0] + sum[1]) + (sum[2] + sum[3])));
  }
};

// Σ dY and Σ dY·(X − mean) of a channel with short rows: the registers go on from row to row.
template <class T> Sums sum_short_rows(const ChannelSets& sets, Dim channel, const Batch<T>& s) {
  if (sets.elements() == 0) return {{0, 0, 0}};
  constexpr int kRows = RunningSums<T>::kRows;
  const Dim rows = sets.rows(), size = sets.elements() / rows,
            step = (sets.row(channel, 1) - sets.row(channel, 0)) * size;
  const Dim together = larger_of(kReduceBlock / size, kRows);  // before double takes over
  const T *dy = s.dy + sets.row(channel, 0) * size, *x = s.x + sets.row(channel, 0) * size;
  Sums total{{0, 0, 0}};
  for (Dim row = 0; row < rows;) {
    RunningSums<T> sums{splat<T>(s.mean[channel])};
    const Dim end = smaller_of(row + together, rows);
    for (; row + kRows <= end; row += kRows)
      sums.template add<kRows>(dy + row * step, x + row * step, step, size);
    for (; row < end; ++row) sums.template add<1>(dy + row * step, x + row * step, step, size);
    total.value[0] += RunningSums<T>::total(sums.dy_sum),
        total.value[1] += RunningSums<T>::total(sums.dy_x_sum);
  }
  return total;
}

template <class T>
void images(Call& call, const ChannelSets& sets, const Batch<T>& s, Sums* sums, bool streamed) {
  sets.each_set(call, [&](Dim channel, const auto& go) {
    const T mean = s.mean[channel];
    const bool short_rows = sets.count() >= 8 && sets.elements() < 512 * sets.rows();
    if (short_rows)
      sums[channel * sets.pieces()] = sum_short_rows<T>(sets, channel, s);
    else
      go(sets.pieces(), [&](Dim i) {
        const auto p = sets.piece(channel, i);
        double total[2] = {};
        add_sums<2, T>(p.size, total, [&](Dim k, Dim n, Vec<T>(&sum)[2]) ONNXGRAD_LAMBDA {
          const Vec<T> dy = load_some<T>(s.dy + p.at + k, n);
          sum[0] += dy;
          sum[1] = fma(dy, load_some<T>(s.x + p.at + k, n) - splat<T>(mean), sum[1]);
        });
        sums[channel * sets.pieces() + i] = {{total[0], total[1], 0}};
      });
    WideSum<T, double> dy;
    double dy_x = 0;
    const Dim first = channel * sets.pieces();
    for (Dim i = first; i < first + (short_rows ? 1 : sets.pieces()); ++i)
      dy.add(sums[i].value[0]), dy_x += sums[i].value[1];
    const Coefficients<T> f = set_channel(s, channel, dy, dy_x, sets.elements());
    const Normalised<T> gradient{splat<T>(f.a), splat<T>(f.m), splat<T>(f.b), splat<T>(f.c),
                                 splat<T>(mean)};
    go(sets.pieces(), [&](Dim i) {
      const auto p = sets.piece(channel, i);
      const T *dy_row = s.dy + p.at, *x_row = s.x + p.at;
      if (short_rows && !streamed)
        return set_short_row<T>(gradient, dy_row, x_row, s.dx + p.at, p.size);
      fill<T>(Span<T>(s.dx + p.at, p.size), streamed, [&](Dim k, Dim n) ONNXGRAD_LAMBDA {
        return gradient(load_some<T>(dy_row + k, n), load_some<T>(x_row + k, n));
      });
      if (streamed) stream_done();
    });
  });
}

// Without spatial dims (or next to none) the channels lie side by side:
// columns are summed, a block of rows at a time. The sum of dY keeps
// what its additions round off: dX is what is left of dY after its mean.
template <class T>
void columns(Call& call, const Batch<T>& s, RowBlocks blocks, T* partial, T* coefficients) {
  call.parallel_for(blocks.count, [&](Dim b) {
    T *dy_sum = partial + b * 3 * s.columns, *dy_excess = dy_sum + s.columns,
      *dy_x_sum = dy_excess + s.columns;
    for (Dim i = 0; i < 3 * s.columns; ++i) dy_sum[i] = T(0);
    for (Dim row = blocks.begin(b); row < blocks.end(b); ++row)
      each_register<T>(0, s.columns, [&](Dim c, Dim n) ONNXGRAD_LAMBDA {
        const Vec<T> dy = load_some<T>(s.dy + row * s.columns + c, n);
        const Vec<T> centred =
            load_some<T>(s.x + row * s.columns + c, n) - load_some<T>(s.mean + c, n);
        Vec<T> sum = load_some<T>(dy_sum + c, n), excess = load_some<T>(dy_excess + c, n);
        add_compensated<T>(sum, excess, dy);
        store_some<T>(dy_sum + c, sum, n), store_some<T>(dy_excess + c, excess, n);
        store_some<T>(dy_x_sum + c, fma(dy, centred, load_some<T>(dy_x_sum + c, n)), n);
      });
  });
  T *a = coefficients, *m = a + s.columns, *b = m + s.columns, *c = b + s.columns;
  call.parallel_ranges(s.columns, 256, [&](Dim begin, Dim end) {
    for (Dim k = begin; k < end; ++k) {
      WideSum<T, double> dy, dy_x;
      for (const T *sums = partial + k, *last = sums + blocks.count * 3 * s.columns; sums != last;
           sums += 3 * s.columns)
        dy.add({double(sums[0]), -double(sums[s.columns])}), dy_x.add(double(sums[2 * s.columns]));
      const Coefficients<T> f = set_channel(s, k, dy, dy_x.value(), s.rows);
      a[k] = f.a, m[k] = f.m, b[k] = f.b, c[k] = f.c;
    }
  });
  call.parallel_for(blocks.count, [&](Dim block) {
    for (Dim row = blocks.begin(block); row < blocks.end(block); ++row)
      each_register<T>(0, s.columns, [&](Dim k, Dim n) ONNXGRAD_LAMBDA {
        const Normalised<T> gradient{load_some<T>(a + k, n), load_some<T>(m + k, n),
                                     load_some<T>(b + k, n), load_some<T>(c + k, n),
                                     load_some<T>(s.mean + k, n)};
        const Dim at = row * s.columns + k;
        store_some<T>(s.dx + at, gradient(load_some<T>(s.dy + at, n), load_some<T>(s.x + at, n)),
                      n);
      });
  });
}

}  // namespace

template <class T> void batch_normalization_grad(Call& call) {
  const Shape& shape = call.shape("X");
  const Dim size = shape.product(2, shape.rank());
  const ChannelSets sets = ChannelSets::of_channels(shape[0], shape[1], size);
  const RowBlocks blocks = RowBlocks::of(shape[0], shape[1], kPointwiseGrain);
  Workspace space;
  const auto sums = space.shared<Sums>(size == 1 ? 0 : sets.all_pieces());
  const auto partials = space.shared<T>(size == 1 ? 3 * blocks.count * shape[1] : 0);
  const auto coefficients = space.shared<T>(size == 1 ? 4 * shape[1] : 0);
  Workspace::acquire(call, space.bytes());
  Batch<T> s{shape[0],
             shape[1],
             call.input<T>("dY").data(),
             call.input<T>("X").data(),
             call.input<T>("scale").data(),
             call.input<T>("mean").data(),
             call.input<T>("variance").data(),
             nullptr,
             nullptr,
             nullptr};
  s.dx = call.output<T>("X_grad").data(), s.dscale = call.output<T>("scale_grad").data(),
  s.dbias = call.output<T>("bias_grad").data();
  space.open();
  if (size == 1)
    columns<T>(call, s, blocks, space[partials].data(), space[coefficients].data());
  else
    images<T>(call, sets, s, space[sums].data(), 3 * shape.size() * Dim(sizeof(T)) > kStreamBytes);
}
ONNXGRAD_FLOAT_AND_DOUBLE(batch_normalization_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
