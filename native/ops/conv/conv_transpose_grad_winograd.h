// dX of a 4×4 transposed convolution with stride 2 by Winograd F(2×2, 2×2): a correlation of dY
// with the filters as they are, 2×2 taps for each of the four residues of the stride,
//
//   dX[c][i] = Σ_{m, residue, j} dY[m][2·(i + j) + residue − pad] · W[c][m][2·j + residue]
#pragma once
#include "ops/conv/conv_winograd_correlation.h"

namespace onnxgrad::ONNXGRAD_ISA {

template <class T> class WinogradTransposeDx : public InputGradient<T> {
 public:
  explicit WinogradTransposeDx(const ConvShape& s) : s_(s), correlation_(correlation(s)) {}
  Dim bytes() const override { return correlation_.bytes(); }

  void run(Call& call, Span<const T> dy, Span<const T> w, Span<T> dx) override {
    correlation_.run(
        call, dy.data(), dx.data(), [&](Dim input, Dim, Dim residue, Dim panel, T* taps) {
          const Dim first = panel * kPanel<T>;
          const T* from =
              w.data() + (first * s_.channels + input) * 16 + residue / 2 * 4 + residue % 2;
          std::fill(taps, taps + 4 * kPanel<T>, T(0));
          for (Dim c = 0; c < smaller_of(s_.filters - first, kPanel<T>); ++c)
            for (Dim tap = 0; tap < 4; ++tap)
              taps[tap * kPanel<T> + c] = from[c * s_.channels * 16 + tap / 2 * 8 + tap % 2 * 2];
        });
  }

 private:
  // s is the convolution from Y to X: its `in` is Y's size and its channels are those of dY.
  static CorrelationShape correlation(const ConvShape& s) {
    CorrelationShape c;
    c.images = s.images, c.inputs = s.channels, c.outputs = s.filters, c.step = 2;
    const Geometry g(s);
    for (int a = 0; a < 3; ++a) c.in[a] = g.in[a], c.out[a] = g.out[a], c.first[a] = -g.pad[a];
    return c;
  }

  const ConvShape& s_;
  WinogradCorrelation<T, 2, 2> correlation_;
};

}  // namespace onnxgrad::ONNXGRAD_ISA
