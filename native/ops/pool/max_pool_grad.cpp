#include <atomic>

#include "ops/gather/gather_family.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& max_pool_grad_contract() {
  static const Contract c =
      Contract("MaxPoolGrad")
          .summary("Gradient of MaxPool, from the indices that it gave.")
          .formula("dX[i] = Σ dY[o] over the o with Indices[o] = i")
          .accuracy(Measure::rms, 2e-6, 1e-13)
          .input("dY", "T[N, C, out...]", "cotangent of Y")
          .input("Indices", "I[N, C, out...]",
                 "where in X, as a flat number, each maximum stood; MaxPool's second output")
          .input("shape", "int64[rank]", "the shape of X")
          .optional("Y", "T[N, C, out...]",
                    "what a Relu behind it gave: dY counts where it is above 0")
          .output("dX", "T[in...]", "gradient of X");
  return c;
}

namespace {

// X and dY as planes, one per image and channel; an index points into the plane of its own output.
struct PooledPlanes {
  Dim count, in, out;
};

PooledPlanes prepare(const Call& call, const Shape& in) {
  const Shape& out = call.shape("dY");
  if (in.rank() != out.rank() || in[0] != out[0] || in[1] != out[1])
    call.fail("input shape is " + to_string(in) + ", expected " + std::to_string(out.rank()) +
              " dims that begin with [" + std::to_string(out[0]) + ", " + std::to_string(out[1]) +
              "] (from dY)");
  return {in[0] * in[1], in.product(2, in.rank()), out.product(2, out.rank())};
}

// Planes of a piece of work, `each` elements of `all`.
Dim planes_together(Dim all, Dim each) {
  return larger_of(1, pointwise_grain(all) / larger_of(1, each));
}

// Without a branch: which results are above 0 is hard to foresee.
template <class T, class I> [[gnu::noinline]]
void add_above_zero(const I* indices, const T* dy, const T* y, Dim count, T* dx) {
  for (Dim k = 0; k < count; ++k) {
    const T kept = y[k] > T(0) ? dy[k] : T(0);
    dx[indices[k]] += kept;
  }
}

template <class I> void check_planes(Call& call, const PooledPlanes& s) {
  const I* indices = call.input<I>("Indices").data();
  std::atomic<Dim> first_bad{s.count};
  call.parallel_ranges(s.count, planes_together(s.count * s.out, s.out), [&](Dim begin, Dim end) {
    for (Dim p = begin; p < end; ++p) {
      // the highest bit is set as soon as one index is below the plane or beyond it
      std::uint64_t outside = 0;
      const auto first = std::uint64_t(p * s.in), last = std::uint64_t(s.in) - 1;
      for (Dim k = 0; k < s.out; ++k) {
        const auto at = std::uint64_t(std::int64_t(indices[p * s.out + k])) - first;
        outside |= at | (last - at);
      }
      if (outside >> 63 == 0) continue;
      Dim known = first_bad.load();
      while (p < known && !first_bad.compare_exchange_weak(known, p)) {
      }
    }
  });
  const Dim p = first_bad;
  for (Dim k = p * s.out; p < s.count; ++k)
    if (Dim(indices[k]) < p * s.in || Dim(indices[k]) >= (p + 1) * s.in)
      call.fail("input Indices has the value " + std::to_string(indices[k]) + " at " +
                place_of(call.shape("Indices"), k) + ", expected " + std::to_string(p * s.in) +
                ".." + std::to_string((p + 1) * s.in - 1) + ", the places of its channel in X");
}

}  // namespace

template <class T> void max_pool_grad(Call& call) {
  const Shape in = shape_in(call, "shape");
  const PooledPlanes s = prepare(call, in);
  with_index_type(call, "Indices", [&](auto zero) {
    using I = decltype(zero);
    if (s.out > 0) check_planes<I>(call, s);
    call.set_dims("in...", in);
    const I* indices = call.input<I>("Indices").data();
    const T *dy = call.input<T>("dY").data(), *y = call.input<T>("Y").data();
    T* dx = call.output<T>("dX").data();
    call.parallel_ranges(s.count, planes_together(s.count * (s.in + s.out), s.in + s.out),
                         [&](Dim begin, Dim end) {
                           for (Dim p = begin; p < end; ++p) {
                             fill<T>(Span<T>(dx + p * s.in, s.in), false,
                                     [](Dim, Dim) ONNXGRAD_LAMBDA { return Vec<T>{}; });
                             const Dim first = p * s.out;
                             if (y)
                               add_above_zero(indices + first, dy + first, y + first, s.out, dx);
                             else
                               for (Dim k = first; k < first + s.out; ++k) dx[indices[k]] += dy[k];
                           }
                         });
  });
}
ONNXGRAD_FLOAT_AND_DOUBLE(max_pool_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
