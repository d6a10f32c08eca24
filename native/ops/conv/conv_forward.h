// Y of a convolution, with the algorithms of conv_grad_*.h.
//
// A convolution turned around (its result taken for its input, channels for filters,
// the taps mirrored) has as its dX what the convolution itself computes:
//
//   Y[m][o] = Σ_{c, k} X[c][o + k·dilation − pad] · W[m][c][k]
//   dX[c][i] = Σ_{m, k} dY[m][i + pad − k·dilation] · W[m][c][k]
//              with pad → (kernel − 1)·dilation − pad
//
// so each algorithm for dX with stride 1 serves for Y as well. With a stride, Y is the direct
// product whose pixels read X `stride` apart, or, for single channels, a kernel of its own.
#pragma once
#include "ops/conv/conv_grad_depthwise.h"
#include "ops/conv/conv_grad_plain.h"

namespace onnxgrad::ONNXGRAD_ISA {

// Y[f][o] = Σ_tap X[o·stride + tap·dilation − pad] · W[f][tap]:
// one channel and few filters per group.
template <class T> class DepthwiseForward : public InputGradient<T> {
 public:
  explicit DepthwiseForward(const ConvShape& s) : s_(s), g_(s), plane_(s) {
    together_ = clamp(16384 / larger_of(s.out_size(), 1), 1, divide_up(s.images * s.groups, 16));
    scratch_ = space_.template scratch<T>(plane_.size(), s.images * s.groups);
  }
  Dim bytes() const override { return space_.bytes(); }

  void run(Call& call, Span<const T> x, Span<const T> w, Span<T> y) override {
    space_.open();
    call.parallel_ranges(s_.images * s_.groups, together_, [&](Dim begin, Dim end) {
      const auto memory = space_.borrow(scratch_);
      std::fill(memory.data(), memory.data() + plane_.size(), T(0));
      for (Dim i = begin; i < end; ++i) {
        plane_.copy(x.data() + i * s_.in_size(), memory.data());
        for (Dim f = i * s_.filters; f < (i + 1) * s_.filters; ++f)
          set_plane(f % (s_.groups * s_.filters), memory.data(), w.data(),
                    y.data() + f * s_.out_size());
      }
    });
  }

 private:
  void set_plane(Dim filter, const T* x, const T* w, T* y) const {
    w += filter * s_.taps();
    const Vec<T> bias = splat<T>(this->bias(filter));
    for (Dim d = 0; d < g_.out[0]; ++d)
      for (Dim h = 0; h < g_.out[1]; ++h, y += g_.out[2]) {
        const T* row = x + plane_.row_of(d, h);
        Dim i = 0;
        for (; i + 2 * lanes<T> <= g_.out[2]; i += 2 * lanes<T>)
          set_registers<2>(bias, row + i, w, y + i, lanes<T>);
        for (; i < g_.out[2]; i += lanes<T>)
          set_registers<1>(bias, row + i, w, y + i, smaller_of(lanes<T>, g_.out[2] - i));
      }
  }

  // `count`: elements of the last register.
  template <int registers>
  ONNXGRAD_INLINE void set_registers(Vec<T> bias, const T* x, const T* w, T* y, Dim count) const {
    Vec<T> sum[registers];
#pragma GCC unroll 2
    for (int r = 0; r < registers; ++r) sum[r] = bias;
    for (Dim tap = 0; tap < s_.taps(); ++tap) {
      const Vec<T> factor = splat<T>(w[tap]);
      const T* from = x + plane_.offset(tap);
#pragma GCC unroll 2
      for (int r = 0; r < registers; ++r)
        sum[r] = fma(factor, load<T>(from + r * lanes<T>), sum[r]);
    }
#pragma GCC unroll 2
    for (int r = 0; r < registers - 1; ++r) store<T>(y + r * lanes<T>, sum[r]);
    store_some<T>(y + (registers - 1) * lanes<T>, sum[registers - 1], count);
  }

  const ConvShape& s_;
  Geometry g_;
  SortedPlane<T> plane_;
  Dim together_;
  Workspace space_;
  Workspace::Scratch<T> scratch_{};
};

// From the definition, for what no faster algorithm takes.
template <class T> class PlainForward : public InputGradient<T> {
 public:
  explicit PlainForward(const ConvShape& s) : s_(s) {}
  Dim bytes() const override { return 0; }
  void run(Call& call, Span<const T> x, Span<const T> w, Span<T> y) override {
    call.parallel_for(s_.out_size() ? s_.images * s_.groups * s_.filters : 0, [&](Dim plane) {
      const Dim filter = plane % (s_.groups * s_.filters),
                pair = plane / s_.filters;  // (image, group)
      Shape o = detail::zero_index(s_.out);
      for (Dim i = 0; i < s_.out_size(); ++i, detail::next_index(o, s_.out))
        y[plane * s_.out_size() + i] = T(sum(x.data() + pair * s_.channels * s_.in_size(),
                                             w.data() + filter * s_.channels * s_.taps(), o) +
                                         double(this->bias(filter)));
    });
  }

 private:
  double sum(const T* x, const T* w, const Shape& o) const {
    double sum = 0;
    Shape k = detail::zero_index(s_.kernel);
    for (Dim tap = 0; tap < s_.taps(); ++tap, detail::next_index(k, s_.kernel)) {
      const Dim i = detail::input_of(s_, o, k);
      for (Dim c = 0; c < s_.channels && i >= 0; ++c)
        sum += double(x[c * s_.in_size() + i]) * double(w[c * s_.taps() + tap]);
    }
    return sum;
  }

  const ConvShape& s_;
};

}  // namespace onnxgrad::ONNXGRAD_ISA
