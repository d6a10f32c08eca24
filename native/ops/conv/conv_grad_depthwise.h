// One input channel per group: each plane of dY meets
// one plane of X, and nothing is summed over channels.
#pragma once
#include "core/residues.h"
#include "ops/conv/conv_grad_blocks.h"
#include "ops/conv/conv_grad_plain.h"

namespace onnxgrad::ONNXGRAD_ISA {

// Whether three registers from column x on lie inside a row.
template <class T> bool three_inside(Dim x, Dim width) {
  return x >= 0 && x + 2 + lanes<T> <= width;
}

// 3×3 with stride 1, one filter per channel: dX[y][x] = Σ W[2 − i][2 − j] · dY[y + i + pad − 2][x +
// j + pad − 2]. Each row of dY is loaded once and serves the three rows of dX that need it.
template <class T> class DepthwiseDx : public InputGradient<T> {
 public:
  explicit DepthwiseDx(const ConvShape& s) : s_(s) {}
  Dim bytes() const override { return 0; }

  void run(Call& call, Span<const T> dy, Span<const T> w, Span<T> dx) override {
    call.parallel_ranges(s_.images * s_.groups, 16384 / s_.in_size() + 1, [&](Dim begin, Dim end) {
      for (Dim plane = begin; plane < end; ++plane)
        set_plane(dy.data() + plane * s_.out_size(), w.data() + plane % s_.groups * 9,
                  splat<T>(this->bias(plane % s_.groups)), dx.data() + plane * s_.in_size());
    });
  }

 private:
  void set_plane(const T* dy, const T* w, Vec<T> bias, T* dx) const {
    Vec<T> factor[3][3];
#pragma GCC unroll 4
    for (int i = 0; i < 3; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < 3; ++j) factor[i][j] = splat<T>(w[s_.turned ? 3 * i + j : 8 - 3 * i - j]);
    const Dim width = s_.in[1];
    for (Dim x = 0; x < width; x += lanes<T>) {
      if (x > 0 && x + lanes<T> > width)
        x = width - lanes<T>;  // the last register overlaps the one before it
      const Dim first = x + s_.pad[1] - 2, count = smaller_of(lanes<T>, width - x);
      three_inside<T>(first, s_.out[1])
          ? set_columns<true>(factor, dy, first, bias, dx + x, count)
          : set_columns<false>(factor, dy, first, bias, dx + x, count);
    }
  }

  // A register of columns of dX, from top to bottom;
  // `first` is the leftmost column of dY that they read.
  template <bool inside> ONNXGRAD_INLINE void set_columns(const Vec<T> (&factor)[3][3], const T* dy,
                                                          Dim first, Vec<T> bias, T* dx,
                                                          Dim count) const {
    // What the rows so far have given to the row above this one, and to this one.
    Vec<T> above = bias, here = bias;
    for (Dim y = 0; y < s_.in[0] + 2; ++y) {
      const Dim row = y + s_.pad[0] - 2;
      Vec<T> done = above;
      above = here, here = bias;
      if (row >= 0 && row < s_.out[0]) {
        const T* from = dy + row * s_.out[1];
        const Vec<T> a = load_bordered<inside>(from, s_.out[1], first),
                     b = load_bordered<inside>(from, s_.out[1], first + 1);
        const Vec<T> c = load_bordered<inside>(from, s_.out[1], first + 2);
        done = fma(a, factor[2][0], fma(b, factor[2][1], fma(c, factor[2][2], done)));
        above = fma(a, factor[1][0], fma(b, factor[1][1], fma(c, factor[1][2], above)));
        here = fma(a, factor[0][0], fma(b, factor[0][1], fma(c, factor[0][2], here)));
      }
      if (y >= 2) store_some<T>(dx + (y - 2) * s_.in[1], done, count);
    }
  }

  const ConvShape& s_;
};

// The part of a plane of X that outputs read, with zeros around it. The columns are sorted by their
// residue modulo the stride, so that a register of outputs reads neighbours.
template <class T> class SortedPlane {
 public:
  explicit SortedPlane(const ConvShape& s) : g_(s) {
    for (int a = 0; a < 3; ++a)
      size_[a] = (g_.out[a] - 1) * g_.stride[a] + (g_.kernel[a] - 1) * g_.dilation[a] + 1;
    residue_ = divide_up(size_[2], g_.stride[2]) + 2 * lanes<T>;
    row_ = residue_ * g_.stride[2];
    for (Dim tap = 0; tap < s.taps(); ++tap) {
      const Dim w = tap % g_.kernel[2] * g_.dilation[2],
                h = tap / g_.kernel[2] % g_.kernel[1] * g_.dilation[1];
      const Dim d = tap / g_.kernel[2] / g_.kernel[1] * g_.dilation[0];
      offsets_.push_back((d * size_[1] + h) * row_ + w % g_.stride[2] * residue_ +
                         w / g_.stride[2]);
    }
  }
  Dim size() const { return size_[0] * size_[1] * row_; }
  // Where outputs (d, h, 0 …) begin to read, and how far from there a tap is.
  Dim row_of(Dim d, Dim h) const { return (d * g_.stride[0] * size_[1] + h * g_.stride[1]) * row_; }
  Dim offset(Dim tap) const { return offsets_[std::size_t(tap)]; }

  // Column i goes to residue i % stride, place i / stride. What lies outside X is left as it is: 0.
  void copy(const T* plane, T* to) const {
    const Dim stride = g_.stride[2], first = larger_of(g_.pad[2], 0),
              last = smaller_of(size_[2], g_.in[2] + g_.pad[2]);
    for (Dim d = 0; d < size_[0]; ++d)
      for (Dim h = 0; h < size_[1]; ++h, to += row_) {
        const Dim in_d = d - g_.pad[0], in_h = h - g_.pad[1];
        if (in_d < 0 || in_d >= g_.in[0] || in_h < 0 || in_h >= g_.in[1]) continue;
        const T* from = plane + (in_d * g_.in[1] + in_h) * g_.in[2] - g_.pad[2];
        sort_columns(from, first, last, stride, residue_, to);
      }
  }

 private:
  Geometry g_;
  Dim size_[3], residue_, row_;  // of the copied part; elements per residue and per row
  std::vector<Dim> offsets_;
};

// Planes of a few registers' width are traversed by columns of registers: each row is loaded
// once and serves three. Wider ones by rows, which memory delivers faster than anything else.
template <class T> bool is_wide(Dim width) {
  return width > 2 * lanes<T>;
}

// dW[f][tap] = Σ dY[f][o] · X[o·stride + tap·dilation − pad],
// any stride, dilation and number of filters per channel.
template <class T> class DepthwiseDw : public FilterGradient<T> {
 public:
  explicit DepthwiseDw(const ConvShape& s) : s_(s), g_(s), plane_(s) {
    is_3x3_ = s.taps() == 9 && g_.kernel[1] == 3 && g_.kernel[2] == 3 && g_.stride[1] == 1 &&
              g_.stride[2] == 1 && g_.dilation[1] == 1 && g_.dilation[2] == 1;
    filters_ = s.groups * s.filters;
    parts_ = clamp(divide_up(16, filters_), 1, s.images);
    partial_ = space_.shared<double>(parts_ * filters_ * s.taps());
    partial_dbias_ = space_.shared<double>(parts_ * filters_);
    scratch_ = space_.scratch<T>(is_3x3_ ? 0 : plane_.size(), parts_ * s.groups);
  }
  Dim bytes() const override { return space_.bytes(); }
  bool gives_dbias() const override { return true; }

  void run(Call& call, Span<const T> dy, Span<const T> x, Span<T> dw, Span<T> dbias) override {
    space_.open();
    call.parallel_for(parts_ * s_.groups, [&](Dim task) {
      const auto memory = space_.borrow(scratch_);
      if (!is_3x3_) std::fill(memory.data(), memory.data() + plane_.size(), T(0));
      const Dim group = task % s_.groups, part = task / s_.groups, taps = s_.taps();
      double* sums = space_[partial_].data() + (part * filters_ + group * s_.filters) * taps;
      double* dy_sums = space_[partial_dbias_].data() + part * filters_ + group * s_.filters;
      std::fill(sums, sums + s_.filters * taps, 0.0);
      std::fill(dy_sums, dy_sums + s_.filters, 0.0);
      for (Dim n = s_.images * part / parts_; n < s_.images * (part + 1) / parts_; ++n) {
        const T* x_plane = x.data() + (n * s_.groups + group) * s_.in_size();
        if (!is_3x3_) plane_.copy(x_plane, memory.data());
        for (Dim f = 0; f < s_.filters; ++f) {
          const T* plane = dy.data() + (n * filters_ + group * s_.filters + f) * s_.out_size();
          is_3x3_ ? add_3x3(plane, x_plane, sums + f * taps)
                  : add_plane(plane, memory.data(), sums + f * taps);
          if (dbias) dy_sums[f] += plane_sum(plane, s_.out_size());
        }
      }
    });
    add_parts(call, space_[partial_].data(), parts_, dw);
    if (dbias) add_parts(call, space_[partial_dbias_].data(), parts_, dbias);
  }

 private:
  void add_plane(const T* dy, const T* x, double* sums) const {
    for (Dim tap = 0; tap < s_.taps(); tap += 6) switch (smaller_of(s_.taps() - tap, 6)) {
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
#pragma GCC unroll 8
    for (int k = 0; k < count; ++k) at[k] = x + plane_.offset(tap + k);
    for (Dim d = 0; d < g_.out[0]; ++d)
      for (Dim h = 0; h < g_.out[1]; ++h, dy += g_.out[2]) {
        const Dim row = plane_.row_of(d, h);
        for (Dim w = 0; w < g_.out[2]; w += lanes<T>) {
          const Vec<T> v = load_some<T>(dy + w, smaller_of(lanes<T>, g_.out[2] - w));
#pragma GCC unroll 8
          for (int k = 0; k < count; ++k) sum[k] = fma(v, load<T>(at[k] + row + w), sum[k]);
        }
      }
// With an index known at run time only, the sums would be kept in memory, in the loop above too.
#pragma GCC unroll 8
    for (int k = 0; k < count; ++k) sums[tap + k] += double(sum_lanes<T>(sum[k]));
  }

  // 3×3, stride 1: each row of X is loaded once and meets
  // the three rows of dY that read it. No copy of X is needed.
  void add_3x3(const T* dy, const T* x, double* sums) const {
    Vec<T> sum[3][3] = {};
    for (Dim row = 0; row < g_.in[1] && is_wide<T>(g_.out[2]); ++row) add_row(dy, x, row, sum);
    for (Dim w = 0; w < g_.out[2] && !is_wide<T>(g_.out[2]); w += lanes<T>) {
      const Dim first = w - g_.pad[2], count = smaller_of(lanes<T>, g_.out[2] - w);
      count == lanes<T>&& three_inside<T>(first, g_.in[2])
          ? add_columns<true>(dy + w, x, first, count, sum)
          : add_columns<false>(dy + w, x, first, count, sum);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 3; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < 3; ++j) sums[3 * i + j] += double(sum_lanes<T>(sum[i][j]));
  }

  // A row of X and the three rows of dY that read it: through tap row i, row + pad − i.
  // Inlined, so that the sums have no address: clang would write them to memory in every step.
  ONNXGRAD_INLINE void add_row(const T* dy, const T* x, Dim row, Vec<T> (&sum)[3][3]) const {
    for (Dim w = 0; w < g_.out[2]; w += lanes<T>) {
      const Dim first = w - g_.pad[2], count = smaller_of(lanes<T>, g_.out[2] - w);
      count == lanes<T>&& three_inside<T>(first, g_.in[2])
          ? add_pixels<true>(dy + w, x, row, first, count, sum)
          : add_pixels<false>(dy + w, x, row, first, count, sum);
    }
  }
  template <bool inside> ONNXGRAD_INLINE void add_pixels(const T* dy, const T* x, Dim row,
                                                         Dim first, Dim count,
                                                         Vec<T> (&sum)[3][3]) const {
    Vec<T> v[3];
#pragma GCC unroll 4
    for (int j = 0; j < 3; ++j)
      v[j] = load_bordered<inside>(x + row * g_.in[2], g_.in[2], first + j);
#pragma GCC unroll 4
    for (int i = 0; i < 3; ++i) {
      const Dim h = row + g_.pad[1] - i;
      if (h < 0 || h >= g_.out[1]) continue;
      const T* from = dy + h * g_.out[2];
      const Vec<T> d = inside ? load<T>(from) : load_between<T>(from, 0, count);
#pragma GCC unroll 4
      for (int j = 0; j < 3; ++j) sum[i][j] = fma(d, v[j], sum[i][j]);
    }
  }

  // A register of columns of dY, from top to bottom;
  // `first` is the leftmost column of X that they read.
  template <bool inside> ONNXGRAD_INLINE void add_columns(const T* dy, const T* x, Dim first,
                                                          Dim count, Vec<T> (&sum)[3][3]) const {
    Vec<T> two_above{}, above{};  // rows h − 2 and h − 1 of dY
    for (Dim h = 0; h < g_.out[1] + 2; ++h) {
      Vec<T> here{};
      if (h < g_.out[1])
        here = inside ? load<T>(dy + h * g_.out[2]) : load_between<T>(dy + h * g_.out[2], 0, count);
      const Dim row = h - g_.pad[1];
      if (row >= 0 && row < g_.in[1]) {
#pragma GCC unroll 4
        for (int j = 0; j < 3; ++j) {
          const Vec<T> v = load_bordered<inside>(x + row * g_.in[2], g_.in[2], first + j);
          sum[0][j] = fma(here, v, sum[0][j]);
          sum[1][j] = fma(above, v, sum[1][j]);
          sum[2][j] = fma(two_above, v, sum[2][j]);
        }
      }
      two_above = above, above = here;
    }
  }

  const ConvShape& s_;
  Geometry g_;
  SortedPlane<T> plane_;
  Dim filters_, parts_;
  bool is_3x3_;
  Workspace space_;
  Workspace::Shared<double> partial_{}, partial_dbias_{};
  Workspace::Scratch<T> scratch_{};
};

}  // namespace onnxgrad::ONNXGRAD_ISA
