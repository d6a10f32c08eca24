#include "core/separable.h"
#include "ops/gather/gather_family.h"
#include "ops/pool/pool_window.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& average_pool_grad_contract() {
  static const Contract c =
      with_window_attributes(Contract("AveragePoolGrad"))
          .summary("Gradient of AveragePool, in any number of spatial dims.")
          .formula("dX[i] = Σ dY[o] / size(o) over the windows o that cover i")
          .accuracy(Measure::rms, 2e-6, 1e-13)
          .attr("count_include_pad", 0, "1: padding counts in the size of a window")
          .attr("dilations", Kind::integers, "distance between elements of a window; 1 when absent")
          .within(1)
          .attr("ceil_mode", 0, "1: the last window may reach beyond the padding")
          .input("dY", "T[N, C, out...]", "cotangent of Y")
          .input("shape", "int64[rank]", "the shape of X")
          .output("dX", "T[in...]", "gradient of X");
  return c;
}

namespace {

std::vector<Window> prepare(const Call& call, const Shape& in) {
  const Shape& dy = call.shape("dY");
  if (in.rank() != dy.rank() || in[0] != dy[0] || in[1] != dy[1])
    call.fail("input shape is " + to_string(in) + ", expected " + std::to_string(dy.rank()) +
              " dims that begin with [" + std::to_string(dy[0]) + ", " + std::to_string(dy[1]) +
              "] (from dY)");
  const std::vector<Window> list = windows_of(call, "dY", in.data() + 2);
  Shape expected{in[0], in[1]};
  for (const Window& w : list) expected.push_back(w.out);
  check_shape(call, "dY", expected,
              [&] { return "what the windows give for shape " + to_string(in); });
  return list;
}

// Of window o: its elements [from, to) lie in X, and `size` of them count.
struct Covered {
  Dim from, to, size;
};
Covered covered(const Window& w, Dim o, bool count_pads) {
  const Dim first = o * w.stride - w.before;
  // how many elements of the window, from its first on, lie before the place `end`
  const auto before = [&](Dim end) {
    return end <= first ? 0 : smaller_of(w.kernel, divide_up(end - first, w.dilation));
  };
  const Dim from = before(0), to = before(w.in);
  return {from, to, count_pads ? before(w.in + w.after) : to - from};
}

void check_work(const Call& call, const Window& w) {
  Dim entries = 0;
  for (Dim o = 0; o < w.out && entries <= kMostEntries; ++o) {
    const Covered c = covered(w, o, false);
    entries += c.to - c.from;
  }
  if (entries > kMostEntries)
    call.fail("kernel_shape is " + to_string(Attribute(call.integers("kernel_shape"))) +
              ", expected windows that take at most " + std::to_string(kMostEntries) +
              " elements along an axis, all together");
}

// Each window spreads its cotangent evenly over the elements it covers.
template <class T> AxisMap<T> map_of(const Window& w, bool count_pads) {
  if (w.in == w.out && w.kernel == 1 && w.stride == 1 && w.before == 0) {
    AxisMap<T> same;
    same.in = same.out = w.in;
    return same;
  }
  AxisMapBuilder<T> map(w.out, w.in);
  for (Dim o = 0; o < w.out; ++o) {
    const Covered c = covered(w, o, count_pads);
    for (Dim k = c.from; k < c.to; ++k)
      map.add(o * w.stride - w.before + k * w.dilation, o, 1.0 / double(c.size));
  }
  return map.take();
}

// One window that covers the whole image: every element gets the same.
bool covers_everything(const std::vector<Window>& windows) {
  for (const Window& w : windows)
    if (w.out != 1 || w.dilation != 1 || w.kernel - w.before < w.in) return false;
  return !windows.empty();
}

// Up to here what Separable prepares takes longer than what it saves.
constexpr Dim kFewElements = Dim(1) << 18;

// Windows side by side, without padding: each element lies in exactly one.
bool lie_side_by_side(const std::vector<Window>& windows) {
  for (const Window& w : windows)
    if (w.before != 0 || w.dilation != 1 || w.kernel != w.stride || w.in != w.out * w.kernel)
      return false;
  return windows.size() == 2;
}

// dX of one plane: every element of dY, times the share, over its window.
template <class T>
void repeat_plane(const Window& rows, const Window& columns, double share, const T* dy, T* dx) {
  for (Dim o = 0; o < rows.out; ++o, dy += columns.out) {
    T* const first = dx;
    for (Dim i = 0; i < columns.out; ++i)
      for (Dim k = 0; k < columns.kernel; ++k) *dx++ = T(double(dy[i]) * share);
    for (Dim k = 1; k < rows.kernel; ++k, dx += columns.in)
      std::copy(first, first + columns.in, dx);
  }
}
template <class T>
void repeat(Call& call, Dim planes, const std::vector<Window>& w, const T* dy, T* dx) {
  const Dim in = w[0].in * w[1].in, out = w[0].out * w[1].out;
  const double share = 1.0 / double(w[0].kernel * w[1].kernel);
  call.parallel_ranges(planes, larger_of(1, kPointwiseGrain / 8 / larger_of(1, in)),
                       [&](Dim begin, Dim end) {
                         for (Dim p = begin; p < end; ++p)
                           repeat_plane<T>(w[0], w[1], share, dy + p * out, dx + p * in);
                       });
}

template <class T> void spread(Call& call, Dim planes, Dim size, double share, const T* dy, T* dx) {
  call.parallel_ranges(planes, larger_of(1, kPointwiseGrain / larger_of(1, size)),
                       [&](Dim begin, Dim end) {
                         for (Dim p = begin; p < end; ++p) {
                           const Vec<T> value = splat<T>(T(double(dy[p]) * share));
                           fill<T>(Span<T>(dx + p * size, size), false,
                                   [&](Dim, Dim) ONNXGRAD_LAMBDA { return value; });
                         }
                       });
}

}  // namespace

template <class T> void average_pool_grad(Call& call) {
  const Shape in = shape_in(call, "shape");
  std::vector<AxisMap<T>> maps(1);
  maps[0].in = maps[0].out = call.dim("N") * call.dim("C");
  const std::vector<Window> windows = prepare(call, in);
  if (lie_side_by_side(windows) && in.size() <= kFewElements) {
    call.set_dims("in...", in);
    T* dx = call.output<T>("dX").data();
    return repeat<T>(call, call.dim("N") * call.dim("C"), windows, call.input<T>("dY").data(), dx);
  }
  double share = 1;
  for (const Window& w : windows) {
    check_work(call, w);
    maps.push_back(map_of<T>(w, call.integer("count_include_pad") != 0));
    if (covers_everything(windows))
      share *= maps.back().identity || w.in == 0 ? 1.0 : double(maps.back().weight[0]);
  }
  Separable<T> pool(std::move(maps));
  Workspace::acquire(call, pool.bytes());
  call.set_dims("in...", in);
  T* dx = call.output<T>("dX").data();
  if (covers_everything(windows))
    return spread<T>(call, call.dim("N") * call.dim("C"), in.product(2, in.rank()), share,
                     call.input<T>("dY").data(), dx);
  pool.run(call, call.input<T>("dY").data(), dx);
}
ONNXGRAD_FLOAT_AND_DOUBLE(average_pool_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
