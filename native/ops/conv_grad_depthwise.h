// One input channel per group: each plane of dY meets one plane of X, and nothing is summed over channels.
#pragma once
#include "ops/conv_grad_blocks.h"
#include "ops/conv_grad_plain.h"

namespace onnxgrad::ONNXGRAD_ISA {

// A plane with zero borders in working memory. Rows are long enough for registers to run over their ends.
template <class T> struct BorderedPlane {
  Dim rows, columns, pitch;
  BorderedPlane(Dim rows_, Dim columns_) : rows(rows_), columns(columns_), pitch(whole(columns_) + lanes<T>) {}
  static Dim whole(Dim columns) { return ceil_div(columns, lanes<T>) * lanes<T>; }
  Dim size() const { return rows * pitch; }

  // The plane [height][width] with its first element at row `top`, column `left`; a part outside is left out.
  // `to` is zero wherever no plane of this size was written before.
  void fill(const T* plane, Dim height, Dim width, Dim top, Dim left, T* to) const {
    const Dim skip_rows = larger(-top, 0), last_row = smaller(height, rows - top);
    const Dim skip = larger(-left, 0), count = smaller(width, columns - left) - skip;
    for (Dim y = skip_rows; y < last_row; ++y) {
      const T* from = plane + y * width + skip;
      T* row = to + (top + y) * pitch + left + skip;
      Dim x = 0;
      for (; x + lanes<T> <= count; x += lanes<T>) store<T>(row + x, load<T>(from + x));
      if (x < count) store_part<T>(row + x, load_part<T>(from + x, count - x), count - x);
    }
  }
};

// 3×3 with stride 1, one filter per channel: dX[y][x] = Σ W[2 − i][2 − j] · P[y + i][x + j], P being dY with borders.
// Each row of P is loaded once and serves the three rows of dX that need it.
template <class T> class DepthwiseDx : public InputGradient<T> {
 public:
  explicit DepthwiseDx(const ConvShape& s) : s_(s), bordered_(s.in[0] + 2, s.in[1] + 2) {
    const Dim planes = s.images * s.groups;
    together_ = clamp(32768 / s.in_size(), 1, ceil_div(planes, 16));
    tasks_ = ceil_div(planes, together_);
    scratch_ = space_.scratch<T>(bordered_.size(), tasks_);
  }
  Dim bytes() const override { return space_.bytes(); }

  void run(Call& call, Span<const T> dy, Span<const T> w, Span<T> dx) override {
    space_.open();
    call.parallel_for(tasks_, [&](Dim task) {
      const auto memory = space_.borrow(scratch_);
      std::fill(memory.data(), memory.data() + bordered_.size(), T(0));
      const Dim last = smaller((task + 1) * together_, s_.images * s_.groups);
      for (Dim plane = task * together_; plane < last; ++plane) {
        bordered_.fill(dy.data() + plane * s_.out_size(), s_.out[0], s_.out[1], 2 - s_.pad[0], 2 - s_.pad[1], memory.data());
        set_plane(memory.data(), w.data() + plane % s_.groups * 9, dx.data() + plane * s_.in_size());
      }
    });
  }

 private:
  void set_plane(const T* p, const T* w, T* dx) const {
    Vec<T> factor[3][3];
#pragma GCC unroll 4
    for (int i = 0; i < 3; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < 3; ++j) factor[i][j] = splat<T>(w[8 - 3 * i - j]);
    const Dim height = s_.in[0], width = s_.in[1];
    for (Dim x = 0; x < width; x += lanes<T>) {
      const Dim count = smaller(lanes<T>, width - x);
      Vec<T> above{}, here{};  // what rows 0 … of P have given to the row above and to this one
      for (Dim y = 0; y < height + 2; ++y) {
        const T* row = p + y * bordered_.pitch + x;
        const Vec<T> a = load<T>(row), b = load<T>(row + 1), c = load<T>(row + 2);
        const Vec<T> done = fma(a, factor[2][0], fma(b, factor[2][1], fma(c, factor[2][2], above)));
        above = fma(a, factor[1][0], fma(b, factor[1][1], fma(c, factor[1][2], here)));
        here = fma(a, factor[0][0], fma(b, factor[0][1], c * factor[0][2]));
        if (y >= 2) store_some<T>(dx + (y - 2) * width + x, done, count);
      }
    }
  }

  const ConvShape& s_;
  BorderedPlane<T> bordered_;
  Dim together_, tasks_;
  Workspace space_;
  Workspace::Scratch<T> scratch_{};
};

// dW[f][tap] = Σ dY[f][o] · X[o·stride + tap·dilation − pad], any stride, dilation and number of filters per channel.
// The columns of X are sorted by their residue modulo the stride, so that a register of outputs reads neighbours.
template <class T> class DepthwiseDw : public FilterGradient<T> {
 public:
  explicit DepthwiseDw(const ConvShape& s) : s_(s), g_(s) {
    for (int a = 0; a < 3; ++a) size_[a] = (g_.out[a] - 1) * g_.stride[a] + (g_.kernel[a] - 1) * g_.dilation[a] + 1;
    residue_ = ceil_div(size_[2], g_.stride[2]) + 2 * lanes<T>;
    row_ = residue_ * g_.stride[2];
    is_3x3_ = s.taps() == 9 && g_.kernel[1] == 3 && g_.kernel[2] == 3 && g_.stride[1] == 1 && g_.stride[2] == 1 &&
              g_.dilation[1] == 1 && g_.dilation[2] == 1;
    filters_ = s.groups * s.filters;
    parts_ = clamp(ceil_div(16, filters_), 1, s.images);
    partial_ = space_.shared<double>(parts_ * filters_ * s.taps());
    partial_dbias_ = space_.shared<double>(parts_ * filters_);
    scratch_ = space_.scratch<T>(size_[0] * size_[1] * row_, parts_ * s.groups);
    offsets_.resize(std::size_t(s.taps()));
    for (Dim tap = 0; tap < s.taps(); ++tap) {
      const Dim w = tap % g_.kernel[2] * g_.dilation[2], h = tap / g_.kernel[2] % g_.kernel[1] * g_.dilation[1];
      const Dim d = tap / g_.kernel[2] / g_.kernel[1] * g_.dilation[0];
      offsets_[std::size_t(tap)] = (d * size_[1] + h) * row_ + w % g_.stride[2] * residue_ + w / g_.stride[2];
    }
  }
  Dim bytes() const override { return space_.bytes(); }
  bool gives_dbias() const override { return true; }

  void run(Call& call, Span<const T> dy, Span<const T> x, Span<T> dw, Span<T> dbias) override {
    space_.open();
    call.parallel_for(parts_ * s_.groups, [&](Dim task) {
      const auto memory = space_.borrow(scratch_);
      std::fill(memory.data(), memory.data() + size_[0] * size_[1] * row_, T(0));
      const Dim group = task % s_.groups, part = task / s_.groups, taps = s_.taps();
      double* sums = space_[partial_].data() + (part * filters_ + group * s_.filters) * taps;
      double* dy_sums = space_[partial_dbias_].data() + part * filters_ + group * s_.filters;
      std::fill(sums, sums + s_.filters * taps, 0.0);
      std::fill(dy_sums, dy_sums + s_.filters, 0.0);
      for (Dim n = s_.images * part / parts_; n < s_.images * (part + 1) / parts_; ++n) {
        copy_x(x.data() + (n * s_.groups + group) * s_.in_size(), memory.data());
        for (Dim f = 0; f < s_.filters; ++f) {
          const T* plane = dy.data() + (n * filters_ + group * s_.filters + f) * s_.out_size();
          add_plane(plane, memory.data(), sums + f * taps);
          if (dbias) dy_sums[f] += plane_sum(plane, s_.out_size());
        }
      }
    });
    add_parts(call, space_[partial_].data(), parts_, dw);
    if (dbias) add_parts(call, space_[partial_dbias_].data(), parts_, dbias);
  }

 private:
  // Row (d, h) of the part of X that outputs read; column i goes to residue i % stride, place i / stride.
  void copy_x(const T* plane, T* to) const {
    const Dim stride = g_.stride[2], first = larger(g_.pad[2], 0), last = smaller(size_[2], g_.in[2] + g_.pad[2]);
    for (Dim d = 0; d < size_[0]; ++d)
      for (Dim h = 0; h < size_[1]; ++h, to += row_) {
        const Dim in_d = d - g_.pad[0], in_h = h - g_.pad[1];
        if (in_d < 0 || in_d >= g_.in[0] || in_h < 0 || in_h >= g_.in[1]) continue;
        const T* from = plane + (in_d * g_.in[1] + in_h) * g_.in[2] - g_.pad[2];
        if (stride > 1) {
          for (Dim i = first; i < last; ++i) to[i % stride * residue_ + i / stride] = from[i];
          continue;
        }
        Dim i = first;
        for (; i + lanes<T> <= last; i += lanes<T>) store<T>(to + i, load<T>(from + i));
        if (i < last) store_part<T>(to + i, load_part<T>(from + i, last - i), last - i);
      }
  }

  void add_plane(const T* dy, const T* x, double* sums) const {
    if (is_3x3_) return add_3x3(dy, x, sums);
    for (Dim tap = 0; tap < s_.taps(); tap += 6) switch (smaller(s_.taps() - tap, 6)) {
      case 1: add_taps<1>(dy, x, tap, sums); break;
      case 2: add_taps<2>(dy, x, tap, sums); break;
      case 3: add_taps<3>(dy, x, tap, sums); break;
      case 4: add_taps<4>(dy, x, tap, sums); break;
      case 5: add_taps<5>(dy, x, tap, sums); break;
      default: add_taps<6>(dy, x, tap, sums);
    }
  }

  // Taps [tap, tap + count): one register of running sums each.
  template <int count> void add_taps(const T* dy, const T* x, Dim tap, double* sums) const {
    Vec<T> sum[count] = {};
    const T* at[count];
    for (int k = 0; k < count; ++k) at[k] = x + offsets_[std::size_t(tap + k)];
    for (Dim d = 0; d < g_.out[0]; ++d)
      for (Dim h = 0; h < g_.out[1]; ++h, dy += g_.out[2]) {
        const Dim row = (d * g_.stride[0] * size_[1] + h * g_.stride[1]) * row_;
        for (Dim w = 0; w < g_.out[2]; w += lanes<T>) {
          const Vec<T> v = load_some<T>(dy + w, smaller(lanes<T>, g_.out[2] - w));
#pragma GCC unroll 8
          for (int k = 0; k < count; ++k) sum[k] = fma(v, load<T>(at[k] + row + w), sum[k]);
        }
      }
    for (int k = 0; k < count; ++k) sums[tap + k] += double(sum_lanes<T>(sum[k]));
  }

  // 3×3, stride 1: each row of X is loaded once and meets the three rows of dY that read it.
  void add_3x3(const T* dy, const T* x, double* sums) const {
    const Dim height = g_.out[1], width = g_.out[2];
    Vec<T> sum[3][3] = {};
    for (Dim w = 0; w < width; w += lanes<T>) {
      const Dim count = smaller(lanes<T>, width - w);
      Vec<T> two_above{}, above{};  // rows h − 2 and h − 1 of dY
      for (Dim h = 0; h < height + 2; ++h) {
        const Vec<T> here = h < height ? load_some<T>(dy + h * width + w, count) : Vec<T>{};
        const T* row = x + h * row_ + w;
#pragma GCC unroll 4
        for (int j = 0; j < 3; ++j) {
          const Vec<T> v = load<T>(row + j);
          sum[0][j] = fma(here, v, sum[0][j]);
          sum[1][j] = fma(above, v, sum[1][j]);
          sum[2][j] = fma(two_above, v, sum[2][j]);
        }
        two_above = above, above = here;
      }
    }
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 3; ++j) sums[3 * i + j] += double(sum_lanes<T>(sum[i][j]));
  }

  const ConvShape& s_;
  Geometry g_;
  Dim size_[3], residue_, row_, filters_, parts_;  // the part of X that outputs read; elements per residue and row
  bool is_3x3_;
  std::vector<Dim> offsets_;
  Workspace space_;
  Workspace::Shared<double> partial_{}, partial_dbias_{};
  Workspace::Scratch<T> scratch_{};
};

}  // namespace onnxgrad::ONNXGRAD_ISA
