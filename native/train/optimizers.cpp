// Compiled once per instruction set, like the operators.
#include "train/optimizers.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/parallel.h"
#include "core/vector.h"

namespace onnxgrad::ONNXGRAD_ISA {
namespace {

// Elements per piece: about 30 µs of memory traffic,
// and the four streams of a piece fit the second-level cache.
constexpr Dim kGrain = Dim(1) << 14;

struct TensorPiece {
  std::size_t tensor;
  Dim begin, count;
};

template <class T> std::vector<TensorPiece> cut(const Buffers<T>& buffers) {
  std::vector<TensorPiece> pieces;
  for (std::size_t k = 0; k < buffers.size(); ++k)
    for (Dim begin = 0; begin < buffers[k].size(); begin += kGrain)
      pieces.push_back({k, begin, std::min(kGrain, buffers[k].size() - begin)});
  return pieces;
}

// body(index, piece) for every piece, on the pool.
template <class F> void for_each(const std::vector<TensorPiece>& pieces, F&& body) {
  struct Context {
    const std::vector<TensorPiece>& pieces;
    F& body;
  } context{pieces, body};
  Pool::instance().parallel_for(
      Dim(pieces.size()),
      [](void* c, Turn& turn) {
        auto& context = *static_cast<Context*>(c);
        for (Dim i; (i = turn.next()) >= 0;)
          context.body(i, context.pieces[static_cast<std::size_t>(i)]);
      },
      &context);
}

template <class T> struct Clamp {
  explicit Clamp(const Incoming& in)
      : scale(splat<T>(T(in.scale))),
        limit(splat<T>(in.limit > 0 ? T(in.limit) : std::numeric_limits<T>::infinity())) {}
  ONNXGRAD_INLINE Vec<T> operator()(Vec<T> g) const {
    return at_least(-limit, at_most(limit, g * scale));
  }
  Vec<T> scale, limit;
};

template <class T> void adam(const Buffers<T>& p, const Buffers<T>& g, const Buffers<T>& m,
                             const Buffers<T>& v, const AdamSettings& s, const Incoming& incoming) {
  const Clamp<T> clamp(incoming);
  // In double, then rounded once: 1 - β₂ᵗ in float loses half its digits at the first steps.
  const double correction1 = 1 - std::pow(s.beta1, s.step),
               correction2 = 1 - std::pow(s.beta2, s.step);
  const Vec<T> shrink = splat<T>(T(s.decoupled ? 1 - s.lr * s.decay : 1.0));
  const Vec<T> decay = splat<T>(T(s.decoupled ? 0.0 : s.decay));
  const Vec<T> new1 = splat<T>(T(1 - s.beta1)), keep2 = splat<T>(T(s.beta2)),
               new2 = splat<T>(T(1 - s.beta2));
  const Vec<T> rate = splat<T>(T(s.lr / correction1)),
               widen = splat<T>(T(1 / std::sqrt(correction2)));
  const Vec<T> epsilon = splat<T>(T(s.epsilon));
  for_each(cut(p), [&](Dim, const TensorPiece& piece) {
    T *pp = p[piece.tensor].data() + piece.begin, *mp = m[piece.tensor].data() + piece.begin,
      *vp = v[piece.tensor].data() + piece.begin;
    const T* gp = g[piece.tensor].data() + piece.begin;
    const auto update = [&](Dim i, Dim count) ONNXGRAD_LAMBDA {
      Vec<T> x = load_some<T>(pp + i, count) * shrink;
      const Vec<T> d = clamp(load_some<T>(gp + i, count)) + decay * x;
      Vec<T> first = load_some<T>(mp + i, count), second = load_some<T>(vp + i, count);
      first += (d - first) * new1;
      second = second * keep2 + (d * d) * new2;
      x -= (rate * first) / (root(second) * widen + epsilon);
      store_some<T>(pp + i, x, count);
      store_some<T>(mp + i, first, count);
      store_some<T>(vp + i, second, count);
    };
    Dim i = 0;
    for (; i + lanes<T> <= piece.count; i += lanes<T>) update(i, lanes<T>);
    if (i < piece.count) update(i, piece.count - i);
  });
}

template <class T> void sgd(const Buffers<T>& p, const Buffers<T>& g, const Buffers<T>& b,
                            const SgdSettings& s, const Incoming& incoming) {
  const Clamp<T> clamp(incoming);
  const Vec<T> lr = splat<T>(T(s.lr)), momentum = splat<T>(T(s.momentum)),
               decay = splat<T>(T(s.decay));
  const Vec<T> share = splat<T>(T(s.first ? 1.0 : 1 - s.dampening)),
               keep = splat<T>(T(s.first ? 0.0 : s.momentum));
  const bool has_momentum = !b.empty();
  for_each(cut(p), [&](Dim, const TensorPiece& piece) {
    T* pp = p[piece.tensor].data() + piece.begin;
    T* bp = has_momentum ? b[piece.tensor].data() + piece.begin : nullptr;
    const T* gp = g[piece.tensor].data() + piece.begin;
    const auto update = [&](Dim i, Dim count) ONNXGRAD_LAMBDA {
      const Vec<T> x = load_some<T>(pp + i, count);
      Vec<T> d = clamp(load_some<T>(gp + i, count)) + decay * x;
      if (has_momentum) {
        const Vec<T> kept = load_some<T>(bp + i, count) * keep + d * share;
        store_some<T>(bp + i, kept, count);
        d = s.nesterov ? d + momentum * kept : kept;
      }
      store_some<T>(pp + i, x - lr * d, count);
    };
    Dim i = 0;
    for (; i + lanes<T> <= piece.count; i += lanes<T>) update(i, lanes<T>);
    if (i < piece.count) update(i, piece.count - i);
  });
}

// One partial sum per piece, added in order: the same bits for every number of threads.
template <class T> double squares(const Buffers<T>& g) {
  const std::vector<TensorPiece> pieces = cut(g);
  std::vector<double> partial(pieces.size());
  for_each(pieces, [&](Dim index, const TensorPiece& piece) {
    const T* gp = g[piece.tensor].data() + piece.begin;
    double sums[8] = {};
    Dim i = 0;
    for (; i + 8 <= piece.count; i += 8)
      for (Dim k = 0; k < 8; ++k) sums[k] += double(gp[i + k]) * double(gp[i + k]);
    for (; i < piece.count; ++i) sums[0] += double(gp[i]) * double(gp[i]);
    partial[static_cast<std::size_t>(index)] =
        ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
  });
  double total = 0;
  for (double x : partial) total += x;
  return total;
}

template <class T> void add(const Buffers<T>& total, const Buffers<T>& g) {
  for_each(cut(total), [&](Dim, const TensorPiece& piece) {
    T* to = total[piece.tensor].data() + piece.begin;
    const T* from = g[piece.tensor].data() + piece.begin;
    for (Dim i = 0; i < piece.count; ++i) to[i] += from[i];
  });
}

}  // namespace

template <class T> const Optimizers<T>& optimizers() {
  static const Optimizers<T> table{&adam<T>, &sgd<T>, &squares<T>, &add<T>};
  return table;
}
template const Optimizers<float>& optimizers<float>();
template const Optimizers<double>& optimizers<double>();

}  // namespace onnxgrad::ONNXGRAD_ISA
