#include <limits>
#include <vector>

#include "core/residues.h"
#include "core/workspace.h"
#include "ops/pool/pool_window.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& max_pool_training_contract() {
  static const Contract c =
      with_window_attributes(Contract("MaxPoolTraining"))
          .summary("MaxPool with the indices that MaxPoolGrad needs.")
          .formula(
              "Y[o] = X[Indices[o]] = max X[i] over the window of o, the first of equal ones; a "
              "NaN in the window wins")
          .accuracy(Measure::rms, 0, 0)
          .attr("activation", "none", {"none", "relu"}, "relu: a largest that is negative gives 0")
          .attr("dilations", Kind::integers, "distance between elements of a window; 1 when absent")
          .within(1)
          .attr("ceil_mode", 0, "1: the last window may reach beyond the padding")
          .input("X", "T[N, C, in...]", "images, or signals, or volumes; one to three spatial dims")
          .output("Y", "T[N, C, out...]", "the largest of each window")
          .optional_output("Indices", "int64[N, C, out...]",
                           "where in X, as a flat number, each maximum stood");
  return c;
}

namespace {

// Along one axis every window must cover an element, or its maximum would not exist.
void check_covers(const Call& call, const Window& w, int axis) {
  for (Dim o = 0; o < w.out; ++o) {
    const Dim first = o * w.stride - w.before,
              skipped = first < 0 ? divide_up(-first, w.dilation) : 0;
    if (skipped >= w.kernel || first + skipped * w.dilation >= w.in)
      call.fail("window " + std::to_string(o) + " along axis " + std::to_string(axis) +
                " covers padding only (X has shape " + to_string(call.shape("X")) + ")");
  }
}

constexpr Dim kMostTaps = Dim(1) << 20;  // of a window: each has a place in working memory

// One window per spatial dim, seen as three dims: missing ones come first, with size 1.
std::vector<Window> prepare(const Call& call) {
  const int spatial = call.shape("X").rank() - 2;
  if (spatial < 1 || spatial > 3)
    call.fail("input X has shape " + to_string(call.shape("X")) +
              ", expected one to three spatial dims");
  std::vector<Window> list(std::size_t(3 - spatial), Window{1, 1, 1, 1, 1, 0, 0});
  int axis = 2;
  for (const Window& w : windows_of(call, "X", call.shape("X").data() + 2)) {
    check_covers(call, w, axis++);
    list.push_back(w);
  }
  const Shape kernel{list[0].kernel, list[1].kernel, list[2].kernel};
  if (kernel.size() > kMostTaps)
    call.fail("kernel_shape is " + to_string(Attribute(call.integers("kernel_shape"))) +
              ", expected at most " + std::to_string(kMostTaps) + " elements");
  if (call.shape("X").product(2, spatial + 2) >= Dim(1) << 31)
    call.fail("input X has shape " + to_string(call.shape("X")) +
              ", expected fewer than 2^31 elements per channel");
  return list;
}

// The rows of X that one row of windows covers, with −∞ around them; columns are sorted
// by their residue modulo the stride, so that a register of windows reads neighbours.
template <class T> class PoolRow {
 public:
  explicit PoolRow(const std::vector<Window>& w) : d_(w[0]), h_(w[1]), w_(w[2]) {
    width_ = (w_.out - 1) * w_.stride + (w_.kernel - 1) * w_.dilation + 1;
    residue_ = divide_up(larger_of(width_, 1), w_.stride) + 2 * lanes<T>;
    for (Dim d = 0; d < d_.kernel; ++d)
      for (Dim h = 0; h < h_.kernel; ++h)
        for (Dim i = 0; i < w_.kernel; ++i) {
          const Dim column = i * w_.dilation, row = (d * h_.kernel + h) * residue_ * w_.stride;
          offsets_.push_back(row + column % w_.stride * residue_ + column / w_.stride);
          places_.push_back(
              BitsOf<T>((d * d_.dilation * h_.in + h * h_.dilation) * w_.in + column));
        }
  }
  Dim size() const { return d_.kernel * h_.kernel * residue_ * w_.stride; }

  // Windows (d, h, 0 … out) of the plane X whose first
  // element has number `number`. `memory` begins as −∞.
  void run(const T* x, Dim number, Dim d, Dim h, T* memory, T* y, std::int64_t* indices) const {
    copy_rows(x, d, h, memory);
    const Dim corner =
        ((d * d_.stride - d_.before) * h_.in + h * h_.stride - h_.before) * w_.in - w_.before;
    for (Dim i = 0; i < w_.out; i += lanes<T>) {
      const Dim count = smaller_of(lanes<T>, w_.out - i);
      Vec<T> best = splat<T>(-std::numeric_limits<T>::infinity());
      VecBits<T> place =
          VecBits<T>{} - 1;  // of the best, counted from the window's corner; -1: none yet
      for (std::size_t tap = 0; tap < offsets_.size(); ++tap) {
        const Vec<T> v = load<T>(memory + offsets_[tap] + i);
        const VecBits<T> better = (v > best) | (v != v);
        best = select(better, v, best);
        place = select(better, VecBits<T>{} + places_[tap], place);
      }
      store_some<T>(y + i, best, count);
      if (!indices) continue;
      BitsOf<T> places[lanes<T>];
      std::memcpy(places, &place, sizeof places);
      for (Dim j = 0; j < count; ++j)
        if (places[j] < 0) places[j] = places_[std::size_t(first_inside(d, h, i + j))];
      const Dim first = number + corner + i * w_.stride;
      for (Dim j = 0; j < count; ++j) indices[i + j] = first + j * w_.stride + places[j];
    }
  }

 private:
  void copy_rows(const T* x, Dim d, Dim h, T* to) const {
    const Dim row = residue_ * w_.stride, last = smaller_of(width_, w_.in + w_.before);
    for (Dim k = 0; k < d_.kernel * h_.kernel; ++k, to += row) {
      const Dim in_d = d * d_.stride - d_.before + k / h_.kernel * d_.dilation;
      const Dim in_h = h * h_.stride - h_.before + k % h_.kernel * h_.dilation;
      if (in_d < 0 || in_d >= d_.in || in_h < 0 || in_h >= h_.in)
        std::fill(to, to + row, -std::numeric_limits<T>::infinity());
      else
        sort_columns(x + (in_d * h_.in + in_h) * w_.in - w_.before, w_.before, last, w_.stride,
                     residue_, to);
    }
  }

  // The first element of a window that holds −∞ only.
  Dim first_inside(Dim d, Dim h, Dim w) const {
    const auto skipped = [](const Window& window, Dim o) {
      return divide_up(larger_of(0, window.before - o * window.stride), window.dilation);
    };
    return (skipped(d_, d) * h_.kernel + skipped(h_, h)) * w_.kernel + skipped(w_, w);
  }

  const Window &d_, &h_, &w_;
  Dim width_, residue_;
  std::vector<Dim> offsets_;       // of a tap, in working memory
  std::vector<BitsOf<T>> places_;  // of a tap, in X from the window's corner
};

// By itself: within the loop over rows the compiler would keep less of a row in registers.
template <class T> [[gnu::noinline]] void cut_below_zero(T* y, Dim count) {
  for (Dim i = 0; i < count; ++i) y[i] = y[i] < T(0) ? T(0) : y[i];  // NaN stays
}

}  // namespace

template <class T> void max_pool_training(Call& call) {
  const std::vector<Window> w = prepare(call);
  Shape out;
  for (std::size_t a = std::size_t(5 - call.shape("X").rank()); a < 3; ++a) out.push_back(w[a].out);
  call.set_dims("out...", out);
  call.end_if_empty();
  const PoolRow<T> row(w);
  const Dim planes = call.dim("N") * call.dim("C"), in = w[0].in * w[1].in * w[2].in,
            rows = w[0].out * w[1].out;
  const Dim together =
      larger_of(1, 2048 / larger_of(1, rows * w[2].out * Dim(w[1].kernel * w[2].kernel)));
  Workspace space;
  const auto scratch = space.scratch<T>(row.size(), divide_up(planes, together));
  Workspace::acquire(call, space.bytes());
  const T* x = call.input<T>("X").data();
  const bool cut = call.text("activation") == "relu";
  T* y = call.output<T>("Y").data();
  std::int64_t* indices = call.optional_output<std::int64_t>("Indices").data();
  space.open();
  call.parallel_ranges(planes, together, [&](Dim begin, Dim end) {
    const auto memory = space.borrow(scratch);
    std::fill(memory.data(), memory.data() + row.size(), -std::numeric_limits<T>::infinity());
    for (Dim p = begin; p < end; ++p)
      for (Dim r = 0; r < rows; ++r) {
        const Dim at = (p * rows + r) * w[2].out;
        row.run(x + p * in, p * in, r / w[1].out, r % w[1].out, memory.data(), y + at,
                indices ? indices + at : nullptr);
      }
    const Dim plane = rows * w[2].out;
    if (cut) cut_below_zero(y + begin * plane, (end - begin) * plane);
  });
}
ONNXGRAD_FLOAT_AND_DOUBLE(max_pool_training)

}  // namespace onnxgrad::ONNXGRAD_ISA
