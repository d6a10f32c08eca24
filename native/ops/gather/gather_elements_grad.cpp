#include "ops/gather/gather_family.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& gather_elements_grad_contract() {
  static const Contract c =
      Contract("GatherElementsGrad")
          .summary("Gradient of GatherElements.")
          .formula(
              "dX[…, r, …] = Σ dY[…, k, …] over the k with indices[…, k, …] = r, the other dims "
              "alike")
          .accuracy(Measure::rms, 2e-6, 1e-13)
          .attr("axis", 0, "the axis that was gathered from")
          .input("dY", "T[out...]", "cotangent of Y")
          .input("shape", "int64[rank]", "the shape of X")
          .input("indices", "I[out...]",
                 "what GatherElements was given; negative ones count from the end")
          .output("dX", "T[in...]", "gradient of X");
  return c;
}

namespace {

// X as [outer, rows, inner]; indices as [outer', count, inner']
// with outer' and inner' a corner of X's.
struct Lines {
  Shape in, out;
  int axis;
  Dim outer, rows, inner, out_outer, count, out_inner;
};

Lines prepare(const Call& call) {
  Lines s;
  s.in = shape_in(call, "shape"), s.out = call.shape("indices");
  if (s.in.rank() != s.out.rank() || s.in.rank() == 0)
    call.fail("input indices has shape " + to_string(s.out) +
              ", expected as many dims as shape, which is " + to_string(s.in) +
              (s.in.rank() == 0 ? ", and at least one" : ""));
  s.axis = axis_in(call, s.in);
  for (int a = 0; a < s.in.rank(); ++a)
    if (a != s.axis && s.out[a] > s.in[a])
      call.fail("input indices has shape " + to_string(s.out) + ", expected dims of at most " +
                to_string(s.in) + " beside axis " + std::to_string(s.axis));
  const int a = s.axis, rank = s.in.rank();
  s.outer = s.in.product(0, a), s.rows = s.in[a], s.inner = s.in.product(a + 1, rank);
  s.out_outer = s.out.product(0, a), s.count = s.out[a], s.out_inner = s.out.product(a + 1, rank);
  return s;
}

// Where element k of the dims [from, to) of indices stands in the same dims of X.
Dim in_x(const Lines& s, int from, int to, Dim k) {
  Dim at = 0, stride = 1;
  for (int a = to - 1; a >= from; --a)
    at += k % s.out[a] * stride, k /= s.out[a], stride *= s.in[a];
  return at;
}

// Columns [from, to) of one outer index: the lines of X that they reach into belong to them alone.
template <class T, class I> void add_lines(const Lines& s, const I* indices, const T* dy,
                                           const std::int64_t* column, Dim from, Dim to, T* dx) {
  for (Dim k = 0; k < s.count; ++k)
    for (Dim i = from; i < to; ++i) {
      const Dim row = counted_from_front(indices[k * s.out_inner + i], s.rows);
      dx[row * s.inner + column[i]] += dy[k * s.out_inner + i];
    }
}

}  // namespace

template <class T> void gather_elements_grad(Call& call) {
  const Lines s = prepare(call);
  with_index_type(call, "indices", [&](auto zero) {
    using I = decltype(zero);
    check_indices<I>(call, "indices", s.rows);
    call.set_dims("in...", s.in);
    call.end_if_empty();
    Workspace space;
    const auto columns = space.shared<std::int64_t>(s.out.size() > 0 ? s.out_inner : 0);
    Workspace::acquire(call, space.bytes());
    const Span<T> dx = call.output<T>("dX");
    const I* indices = call.input<I>("indices").data();
    const T* dy = call.input<T>("dY").data();
    space.open();
    const Span<std::int64_t> column = space[columns];
    for (Dim i = 0; i < column.size(); ++i) column[i] = in_x(s, s.axis + 1, s.in.rank(), i);
    const bool streamed = dx.size() * Dim(sizeof(T)) > kStreamBytes;
    call.parallel_ranges(dx.size(), kPointwiseGrain, [&](Dim begin, Dim end) {
      fill<T>(dx.part(begin, end - begin), streamed,
              [](Dim, Dim) ONNXGRAD_LAMBDA { return Vec<T>{}; });
      stream_done();
    });
    constexpr Dim kWidth = 256;
    const Dim stripes = divide_up(s.out_inner, kWidth), slab = s.count * s.out_inner;
    const Dim group =
        larger_of(1, kPointwiseGrain / larger_of(1, s.count * smaller_of(s.out_inner, kWidth)));
    call.parallel_ranges(s.out_outer * stripes, group, [&](Dim begin, Dim end) {
      for (Dim piece = begin; piece < end; ++piece) {
        const Dim o = piece / stripes, from = piece % stripes * kWidth;
        add_lines<T, I>(s, indices + o * slab, dy + o * slab, column.data(), from,
                        smaller_of(from + kWidth, s.out_inner),
                        dx.data() + in_x(s, 0, s.axis, o) * s.rows * s.inner);
      }
    });
  });
}
ONNXGRAD_FLOAT_AND_DOUBLE(gather_elements_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
