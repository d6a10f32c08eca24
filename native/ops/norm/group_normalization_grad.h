// The gradients of GroupNormalization and InstanceNormalization (a group is one channel).
// The statistics are recomputed: a group is in the cache when it is summed,
// so that reading it once more costs less than keeping them from
// the forward pass, which ONNX Runtime's operators do not give anyway.
//
//   x̂ = (X − mean)·inv, g = dY·scale, count elements per group:
//
//   dX = inv·(g − (Σg + x̂·Σ g·x̂)/count)
//   dscale = Σ dY·x̂,   dbias = Σ dY,   over images and spatial dims
#pragma once
#include <cmath>

#include "core/channel_sets.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

// The attribute num_groups; fails where it does not divide the channels, or the scales fit neither
// channels nor groups. `input` is the one that carries C first.
inline Dim checked_groups(Call& call, const std::string& input) {
  const Dim groups = call.integer("num_groups"), channels = call.dim("C"),
            scales = call.shape("scale").size();
  if (channels % groups != 0)
    call.fail("num_groups is " + std::to_string(groups) +
              ", expected a divisor of C = " + std::to_string(channels) + " (from " + input + ")");
  if (scales != channels && scales != groups)
    call.fail("input scale has shape " + to_string(call.shape("scale")) +
              ", expected [C] or [num_groups] with C = " + std::to_string(channels) + " (from " +
              input + "), num_groups = " + std::to_string(groups));
  return groups;
}

template <class T> struct GroupNorm {
  Dim images, channels, groups, size, scales;
  bool scale_per_group;  // opset 18: one scale for the channels of a group
  double epsilon;
  const T *dy, *x, *scale;
  const T *y, *added;  // null where no Relu follows, and where dX is all
  T* dx;

  // dY of elements [at, at + n): behind a Relu it counts where the result is above 0.
  ONNXGRAD_INLINE Vec<T> cotangents(Dim at, Dim n) const {
    const Vec<T> own = load_some<T>(dy + at, n);
    return y ? select(load_some<T>(y + at, n) > Vec<T>{}, own, Vec<T>{}) : own;
  }
  ONNXGRAD_INLINE Vec<double> wide_cotangents(Dim at) const {
    const Vec<double> own = load_double(dy + at);
    return y ? select(load_double(y + at) > Vec<double>{}, own, Vec<double>{}) : own;
  }
  double cotangent(Dim at) const { return y && !(y[at] > T(0)) ? 0.0 : double(dy[at]); }
};

// What a group gives: its statistics, the true mean being mean + off, and Σg, Σ g·(X − mean).
struct GroupTerms {
  double mean, off, inv, g, gc;
};

// Per piece: Σ (X − mean)², Σ dY, Σ dY·(X − mean).
template <class T> Sums sum_piece(const GroupNorm<T>& s, const ChannelSets::SetPiece& p, T mean) {
  double total[3] = {};
  add_sums<3, T>(p.size, total, [&](Dim k, Dim n, Vec<T>(&sum)[3]) ONNXGRAD_LAMBDA {
    const Vec<T> dy = s.cotangents(p.at + k, n), centred = centred_part<T>(s.x + p.at + k, n, mean);
    sum[0] = fma(centred, centred, sum[0]);
    sum[1] += dy;
    sum[2] = fma(dy, centred, sum[2]);
  });
  return {{total[0], total[1], total[2]}};
}
// The same, of which the last two lose nothing to the rounding of terms and sums: a quarter slower.
template <class T>
Sums sum_piece_exactly(const GroupNorm<T>& s, const ChannelSets::SetPiece& p, T mean) {
  const T* x = s.x + p.at;
  WideSum<T, Vec<double>> dy_sums, product_sums;
  Vec<double> square_sums{};
  Dim i = 0;
  for (; i + lanes<double> <= p.size; i += lanes<double>) {
    const Vec<double> cotangents = s.wide_cotangents(p.at + i),
                      centred = load_double(x + i) - splat<double>(double(mean));
    square_sums = fma(centred, centred, square_sums);
    dy_sums.add(cotangents), product_sums.add_product(cotangents, centred);
  }
  WideSum<T, double> dy_sum = sum_of_lanes(dy_sums), product_sum = sum_of_lanes(product_sums);
  double squares = sum_lanes<double>(square_sums);
  for (; i < p.size; ++i) {
    const double centred = double(x[i]) - double(mean);
    squares += centred * centred;
    const double cotangent = s.cotangent(p.at + i);
    dy_sum.add(cotangent), product_sum.add_product(cotangent, centred);
  }
  return {{squares, dy_sum.value(), product_sum.value()}};
}

// Among so few scales, one whose terms cancel spoils the accuracy of the whole tensor.
constexpr Dim kFewScales = 8;

template <class T, class Go> void sum_pieces(const ChannelSets& sets, Dim set, const Go& go,
                                             const GroupNorm<T>& s, T mean, Sums* sums) {
  go(sets.pieces(), [&](Dim i) {
    const auto p = sets.piece(set, i);
    sums[set * sets.pieces() + i] =
        s.scales <= kFewScales ? sum_piece_exactly<T>(s, p, mean) : sum_piece<T>(s, p, mean);
  });
}

// Adds the pieces up; leaves Σ dY and Σ dY·x̂ of each row in `by_row` for dscale and dbias.
template <class T> GroupTerms add_pieces(const ChannelSets& sets, Dim set, const GroupNorm<T>& s,
                                         Mean<T> mean, const Sums* sums, Sums* by_row) {
  const double count = double(sets.elements());
  double squares = 0;
  for (Dim i = set * sets.pieces(); i < (set + 1) * sets.pieces(); ++i) squares += sums[i].value[0];
  GroupTerms t{double(mean.value), mean.off,
               1 / std::sqrt(squares / count - mean.off * mean.off + s.epsilon), 0, 0};
  const Dim chunks = sets.rows() ? sets.pieces() / sets.rows() : 0;
  for (Dim k = 0; k < sets.rows(); ++k) {
    const Dim row = sets.row(set, k), channel = row % s.channels;
    double dy = 0, dy_c = 0;
    for (Dim i = k * chunks; i < (k + 1) * chunks; ++i)
      dy += sums[set * sets.pieces() + i].value[1], dy_c += sums[set * sets.pieces() + i].value[2];
    dy_c -= mean.off * dy;
    const double scale = double(s.scale[s.scale_per_group ? channel / sets.rows() : channel]);
    t.g += scale * dy, t.gc += scale * dy_c;
    by_row[row] = {{dy, dy_c * t.inv, 0, 0}};
  }
  return t;
}

template <class T, class Go> void set_group(const ChannelSets& sets, Dim set, const Go& go,
                                            const GroupNorm<T>& s, const GroupTerms& t,
                                            bool streamed) {
  const double count = double(sets.elements());
  const double steepness = -t.inv * t.inv * t.inv * t.gc / count;
  const Vec<T> mean = splat<T>(T(t.mean)), slope = splat<T>(T(steepness)),
               offset = splat<T>(T(-t.inv * t.g / count - steepness * t.off));
  go(sets.pieces(), [&](Dim i) {
    const auto p = sets.piece(set, i);
    const Dim channel = p.row % s.channels;
    const Vec<T> factor =
        splat<T>(T(t.inv * double(s.scale[s.scale_per_group ? channel / sets.rows() : channel])));
    fill<T>(Span<T>(s.dx + p.at, p.size), streamed, [&](Dim k, Dim n) ONNXGRAD_LAMBDA {
      const Vec<T> dx = fma(factor, s.cotangents(p.at + k, n),
                            fma(slope, load_some<T>(s.x + p.at + k, n) - mean, offset));
      return s.added ? dx + load_some<T>(s.added + p.at + k, n) : dx;
    });
    if (streamed) stream_done();
  });
}

// `y`: the result, where a Relu follows; `added`: what dX is added to. Null for none.
template <class T> void group_normalization(Call& call, Dim groups, bool scale_per_group,
                                            const T* y = nullptr, const T* added = nullptr) {
  const Shape& shape = call.shape("X");
  const Dim size = shape.product(2, shape.rank());
  const ChannelSets sets = ChannelSets::of_groups(shape[0], shape[1], groups, size);
  Workspace space;
  const auto all_sums = space.shared<Sums>(sets.all_pieces()),
             all_rows = space.shared<Sums>(shape[0] * shape[1]);
  Workspace::acquire(call, space.bytes());
  GroupNorm<T> s{shape[0],
                 shape[1],
                 groups,
                 size,
                 call.shape("scale").size(),
                 scale_per_group,
                 double(call.real("epsilon")),
                 call.input<T>("dY").data(),
                 call.input<T>("X").data(),
                 call.input<T>("scale").data(),
                 y,
                 added,
                 nullptr};
  s.dx = call.output<T>("dX").data();
  const Span<T> dscale = call.output<T>("dscale"), dbias = call.output<T>("dbias");
  space.open();
  Sums *sums = space[all_sums].data(), *by_row = space[all_rows].data();
  const bool streamed = 3 * shape.size() * Dim(sizeof(T)) > kStreamBytes;
  if (shape.size() == 0)
    for (Dim row = 0; row < shape[0] * shape[1]; ++row) by_row[row] = {};
  else
    sets.each_set(call, [&](Dim set, const auto& go) {
      const Mean<T> mean = mean_of_set<T>(sets, set, go, s.x, sums);
      sum_pieces<T>(sets, set, go, s, mean.value, sums);
      set_group<T>(sets, set, go, s, add_pieces<T>(sets, set, s, mean, sums, by_row), streamed);
    });
  const Dim share = dscale.size() ? shape[1] / dscale.size() : 1;  // channels of one scale
  for (Dim k = 0; k < dscale.size(); ++k) {
    LongSum scale_sum, bias_sum;
    for (Dim image = 0; image < shape[0]; ++image)
      for (Dim c = k * share; c < (k + 1) * share; ++c)
        bias_sum.add(by_row[image * shape[1] + c].value[0]),
            scale_sum.add(by_row[image * shape[1] + c].value[1]);
    dscale[k] = T(scale_sum.value()), dbias[k] = T(bias_sum.value());
  }
}

}  // namespace onnxgrad::ONNXGRAD_ISA
