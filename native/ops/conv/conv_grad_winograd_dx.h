// dX of a 3×3 (or d×3×3) convolution with stride 1 by Winograd:
// a correlation of dY with the mirrored filters,
//
//   dX[c][i] = Σ_{m, j} dY[m][i + j + pad − (kernel − 1)] · W[m][c][kernel − 1 − j]
//
// Turned around (conv_forward.h) the filters are not mirrored.
#pragma once
#include "ops/conv/conv_winograd_correlation.h"

namespace onnxgrad::ONNXGRAD_ISA {

template <class T, int m> class WinogradDx : public InputGradient<T> {
 public:
  explicit WinogradDx(const ConvShape& s) : s_(s), correlation_(mirrored(s)) {}
  Dim bytes() const override { return correlation_.bytes(); }

  void begin(Span<const T> dy, Span<const T> w, Span<T> dx, Dim at) override {
    w_ = w;
    correlation_.begin_with(this->bias_values());
    correlation_.begin(dy.data(), dx.data(), at);
  }
  Dim stages() const override { return correlation_.stages(); }
  Dim pieces(Dim stage) const override { return correlation_.pieces(stage); }
  void run_piece(Dim stage, Dim piece) override {
    correlation_.run_piece(stage, piece, LoadTaps{s_, w_.data()});
  }
  void run(Call& call, Span<const T> dy, Span<const T> w, Span<T> dx) override {
    correlation_.begin_with(this->bias_values());
    correlation_.run(call, dy.data(), dx.data(), LoadTaps{s_, w.data()});
  }

 private:
  struct LoadTaps {
    const ConvShape& s;
    const T* w;
    void operator()(Dim filter, Dim slab_tap, Dim, Dim panel, T* taps) const {
      const Dim slabs = s.taps() / 9, first = panel * kPanel<T>,
                slab = s.turned ? slab_tap : slabs - 1 - slab_tap;
      const T* from = w + s.taps_at(0, filter, first) + slab * 9;
      pack_transposed(from, s.channel_pitch(), 9, smaller_of(s.channels - first, kPanel<T>), taps);
    }
  };

  static CorrelationShape mirrored(const ConvShape& s) {
    const Geometry g(s);
    CorrelationShape c;
    c.mirrored = !s.turned;
    c.images = s.images, c.inputs = s.filters, c.outputs = s.channels, c.slab_taps = g.kernel[0];
    for (int a = 0; a < 3; ++a)
      c.in[a] = g.out[a], c.out[a] = g.in[a], c.first[a] = g.pad[a] - (g.kernel[a] - 1);
    return c;
  }

  const ConvShape& s_;
  WinogradCorrelation<T, m, 3> correlation_;
  Span<const T> w_;
};

// The same for 5×5: four kernels of 3×3, filled up with zeros.
// 64 products for four outputs instead of 100.
template <class T> class QuarteredWinogradDx : public InputGradient<T> {
 public:
  explicit QuarteredWinogradDx(const ConvShape& s) : s_(s), correlation_(quartered(s)) {}
  Dim bytes() const override { return correlation_.bytes(); }

  void run(Call& call, Span<const T> dy, Span<const T> w, Span<T> dx) override {
    correlation_.begin_with(this->bias_values());
    correlation_.run(call, dy.data(), dx.data(),
                     [&](Dim filter, Dim quarter, Dim, Dim panel, T* taps) {
                       load_quarter(w.data(), filter, quarter, panel, taps);
                     });
  }

 private:
  static CorrelationShape quartered(const ConvShape& s) {
    const Geometry g(s);
    CorrelationShape c;
    c.quartered = true, c.slab_taps = 4;
    c.images = s.images, c.inputs = s.filters, c.outputs = s.channels;
    for (int a = 0; a < 3; ++a)
      c.in[a] = g.out[a], c.out[a] = g.in[a], c.first[a] = g.pad[a] - (g.kernel[a] - 1);
    return c;
  }

  // taps[3·i + j][channel]: tap (i, j) of one of the four kernels,
  // of the mirrored filter (as it is when turned around).
  void load_quarter(const T* w, Dim filter, Dim quarter, Dim panel, T* taps) const {
    const Dim first = panel * kPanel<T>, width = smaller_of(s_.channels - first, kPanel<T>);
    const T* from = w + s_.taps_at(0, filter, first);
    for (Dim t = 0; t < 9; ++t) {
      const Dim row = quarter / 2 * 3 + t / 3, column = quarter % 2 * 3 + t % 3;
      const bool outside = row >= s_.kernel[0] || column >= s_.kernel[1];
      const Dim tap = row * s_.kernel[1] + column, at = s_.turned ? tap : s_.taps() - 1 - tap;
      for (Dim c = 0; c < kPanel<T>; ++c)
        taps[t * kPanel<T> + c] = outside || c >= width ? T(0) : from[c * s_.channel_pitch() + at];
    }
  }

  const ConvShape& s_;
  WinogradCorrelation<T, 2, 3> correlation_;
};

}  // namespace onnxgrad::ONNXGRAD_ISA
