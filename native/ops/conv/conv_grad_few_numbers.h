// dW and dBias of a few numbers: each is one long sum, and when its terms cancel, what is left
// shows the rounding of the sum. (With many numbers some do not cancel, and the error is small next
// to those.) So float is summed in double, and double with its rounding errors.
//
//   dW[f][c][k] = Σ_{n, o} dY[n][f][o] · X[n][c][o·stride + k·dilation − pad]
#pragma once
#include "core/wide_sum.h"
#include "ops/conv/conv_grad_blocks.h"

namespace onnxgrad::ONNXGRAD_ISA {

// Σ_i a[i] · b[i·step]
template <class T> WideSum<T, double> wide_dot(const T* a, const T* b, Dim step, Dim count) {
  WideSum<T, Vec<double>> sum;
  Vec<double> x{}, y{};
  for (Dim i = 0; i < count; i += lanes<double>) {
    if (step == 1 && i + lanes<double> <= count) {
      sum.add_product(load_double(a + i), load_double(b + i));
      continue;
    }
    for (Dim k = 0; k < lanes<double>; ++k) {
      x[k] = i + k < count ? double(a[i + k]) : 0.0;
      y[k] = i + k < count ? double(b[(i + k) * step]) : 0.0;
    }
    sum.add_product(x, y);
  }
  return sum_of_lanes(sum);
}

template <class T> class FewNumbersDw : public FilterGradient<T> {
 public:
  explicit FewNumbersDw(const ConvShape& s)
      : s_(s),
        g_(s),
        numbers_(s.groups * s.filters * s.channels * s.taps()),
        rows_(s.images * g_.out[0] * g_.out[1]),
        parts_(clamp(rows_ * g_.out[2] * numbers_ / kTermsPerTask, 1, smaller_of(rows_, 64))) {
    partial_ = space_.template shared<WideSum<T, double>>(parts_ * numbers_);
  }
  Dim bytes() const override { return space_.bytes(); }

  // The rows of dY are cut into parts by the shape alone; their sums are added in order.
  void run(Call& call, Span<const T> dy, Span<const T> x, Span<T> dw, Span<T>) override {
    space_.open();
    WideSum<T, double>* partial = space_[partial_].data();
    call.parallel_for(parts_, [&](Dim part) {
      WideSum<T, double>* sums = partial + part * numbers_;
      std::fill(sums, sums + numbers_, WideSum<T, double>{});
      for (Dim row = rows_ * part / parts_; row < rows_ * (part + 1) / parts_; ++row)
        for (Dim i = 0; i < numbers_; ++i) sums[i].add(row_sum(dy.data(), x.data(), row, i));
    });
    for (Dim i = 0; i < numbers_; ++i) {
      for (Dim part = 1; part < parts_; ++part) partial[i].add(partial[part * numbers_ + i]);
      dw[i] = T(partial[i].value());
    }
  }

 private:
  static constexpr Dim kTermsPerTask = 16384;

  // What row (n, d, h) of outputs adds to number (f, c, tap) of dW.
  WideSum<T, double> row_sum(const T* dy, const T* x, Dim row, Dim number) const {
    const Dim taps = s_.taps(), tap = number % taps, f = number / taps / s_.channels;
    const Dim channel = f / s_.filters * s_.channels + number / taps % s_.channels;
    const Dim h = row % g_.out[1], d = row / g_.out[1] % g_.out[0], n = row / g_.out[1] / g_.out[0];
    const Dim in_d = input_at(0, d, tap / g_.kernel[2] / g_.kernel[1]),
              in_h = input_at(1, h, tap / g_.kernel[2] % g_.kernel[1]),
              in_w = input_at(2, 0, tap % g_.kernel[2]), step = g_.stride[2];
    if (in_d < 0 || in_d >= g_.in[0] || in_h < 0 || in_h >= g_.in[1]) return {};
    const Dim first = in_w < 0 ? divide_up(-in_w, step) : 0,
              last = in_w < g_.in[2] ? smaller_of(g_.out[2], (g_.in[2] - 1 - in_w) / step + 1) : 0;
    if (first >= last) return {};
    const Dim plane = n * s_.groups * s_.channels + channel;
    return wide_dot(
        dy + (n * s_.groups * s_.filters + f) * s_.out_size() + (d * g_.out[1] + h) * g_.out[2] +
            first,
        x + plane * s_.in_size() + (in_d * g_.in[1] + in_h) * g_.in[2] + in_w + first * step, step,
        last - first);
  }
  // Which input output `o` reads through tap `k`, along axis a.
  Dim input_at(int a, Dim o, Dim k) const {
    return o * g_.stride[a] + k * g_.dilation[a] - g_.pad[a];
  }

  const ConvShape& s_;
  Geometry g_;
  Dim numbers_, rows_, parts_;
  Workspace space_;
  Workspace::Shared<WideSum<T, double>> partial_{};
};

}  // namespace onnxgrad::ONNXGRAD_ISA
