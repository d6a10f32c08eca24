// ChannelSets: a tensor [images, channels, size] whose elements are normalised
// in sets of rows, a row being one channel of one image. Batch normalisation:
// a set is a channel of all images; group normalisation: a group of one image.
//
// A set is summed, and sums are turned into a result, by one thread while
// it is in its cache; when there are fewer sets than that is good for,
// the pieces of each set are shared out. Both ways add in the same order.
#pragma once
#include <cmath>

#include "core/pointwise.h"
#include "core/reduce.h"
#include "core/wide_sum.h"
#include "core/workspace.h"

namespace onnxgrad::ONNXGRAD_ISA {

struct Sums {
  double value[4];
};

class ChannelSets {
 public:
  static ChannelSets of_channels(Dim images, Dim channels, Dim size) {
    return ChannelSets(channels, images, 1, channels, size);
  }
  static ChannelSets of_groups(Dim images, Dim channels, Dim groups, Dim size) {
    const Dim rows = groups ? channels / groups : 0;
    return ChannelSets(images * groups, rows, rows, 1, size);
  }

  Dim count() const { return count_; }
  Dim elements() const { return rows_ * size_; }  // of a set
  Dim pieces() const { return rows_ * chunks_; }  // of a set
  Dim all_pieces() const { return count_ * pieces(); }
  Dim rows() const { return rows_; }
  Dim row(Dim set, Dim k) const {
    return set * set_step_ + k * row_step_;
  }  // image · channels + channel

  struct SetPiece {
    Dim row, at, size;
  };  // `at`: its first element in the tensor
  SetPiece piece(Dim set, Dim i) const {
    if (chunks_ == 1) return {row(set, i), row(set, i) * size_, size_};
    const Dim r = row(set, i / chunks_), from = i % chunks_ * kWidth;
    return {r, r * size_ + from, smaller_of(kWidth, size_ - from)};
  }
  // f(set, go) for every set; go(n, body) runs body(i) for i in [0, n).
  template <class F> void each_set(Call& call, F&& f) const {
    if (count_ < 8 && count_ * elements() > 2 * kPointwiseGrain) {
      for (Dim set = 0; set < count_; ++set)
        f(set, [&](Dim n, auto&& body) { call.parallel_for(n, body); });
      return;
    }
    // summed and written: twice the work
    const Dim all = count_ * elements(), grain = all > kPointwiseGrain       ? kPointwiseGrain / 8
                                                 : all > kPointwiseGrain / 4 ? kPointwiseGrain / 16
                                                                             : kPointwiseGrain / 2;
    const Dim group = larger_of(1, grain / larger_of(1, elements()));
    call.parallel_ranges(count_, group, [&](Dim begin, Dim end) {
      for (Dim set = begin; set < end; ++set)
        f(set, [](Dim n, auto&& body) ONNXGRAD_LAMBDA {
          for (Dim i = 0; i < n; ++i) body(i);
        });
      stream_done();
    });
  }

 private:
  static constexpr Dim kWidth = 16384;
  ChannelSets(Dim count, Dim rows, Dim set_step, Dim row_step, Dim size)
      : count_(count),
        rows_(rows),
        set_step_(set_step),
        row_step_(row_step),
        size_(size),
        chunks_(divide_up(size, kWidth)) {}
  Dim count_, rows_, set_step_, row_step_, size_, chunks_;
};

// A mean as a T, and by how much the exact mean is above it.
template <class T> struct Mean {
  T value;
  double off;

  Mean(const WideSum<T, double>& sum, Dim terms) {
    const double count = double(larger_of(1, terms)), mean = sum.value() / count;
    value = T(mean), off = mean - double(value);
    if constexpr (WideSum<T, double>::compensated)
      off = (std::fma(-mean, count, sum.high) + sum.low) / count;
    if (off != off) off = 0;  // an infinite mean
  }
};

// The sum keeps what its additions round off: where terms cancel,
// that is much of the mean. (It cannot be found from Σ (x − mean): the same low
// bits of the mean round every x − mean of one binade in the same direction.)
template <class T, class Go>
Mean<T> mean_of_set(const ChannelSets& s, Dim set, const Go& go, const T* x, Sums* sums) {
  go(s.pieces(), [&](Dim i) {
    const auto p = s.piece(set, i);
    const WideSum<T, double> sum = wide_sum<T>(x + p.at, p.size);
    sums[set * s.pieces() + i] = {{sum.high, sum.low}};
  });
  WideSum<T, double> total;
  for (Dim i = set * s.pieces(); i < (set + 1) * s.pieces(); ++i)
    total.add({sums[i].value[0], sums[i].value[1]});
  return {total, s.elements()};
}

// Lanes past the end of a row hold 0 where x does: their x − mean must not be counted.
template <class T> ONNXGRAD_INLINE Vec<T> centred_part(const T* x, Dim n, T mean) {
  if (n == lanes<T>) return load<T>(x) - splat<T>(mean);
  T means[lanes<T>];
  for (Dim k = 0; k < lanes<T>; ++k) means[k] = k < n ? mean : T(0);
  return load_part<T>(x, n) - load<T>(means);
}

template <class T> struct SetStatistics {
  Mean<T> mean;
  double variance;
};

template <class T, class Go> SetStatistics<T> statistics_of(const ChannelSets& sets, Dim set,
                                                            const Go& go, const T* x, Sums* sums) {
  const Mean<T> mean = mean_of_set<T>(sets, set, go, x, sums);
  go(sets.pieces(), [&](Dim i) {
    const auto p = sets.piece(set, i);
    double total[1] = {};
    add_sums<1, T>(p.size, total, [&](Dim k, Dim n, Vec<T>(&sum)[1]) ONNXGRAD_LAMBDA {
      const Vec<T> centred = centred_part<T>(x + p.at + k, n, mean.value);
      sum[0] = fma(centred, centred, sum[0]);
    });
    sums[set * sets.pieces() + i].value[0] = total[0];
  });
  double squares = 0;
  for (Dim i = set * sets.pieces(); i < (set + 1) * sets.pieces(); ++i) squares += sums[i].value[0];
  return {mean, squares / double(larger_of(1, sets.elements())) - mean.off * mean.off};
}

}  // namespace onnxgrad::ONNXGRAD_ISA
