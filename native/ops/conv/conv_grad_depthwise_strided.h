// dX of a convolution with a stride and one filter per channel. The columns
// x = r (mod stride) of a row meet the same taps, and dY at x / stride plus a shift that
// depends on the tap alone: each residue is a row of its own, and the rows are merged.
#pragma once
#include "core/residues.h"
#include "ops/conv/conv_grad_blocks.h"

namespace onnxgrad::ONNXGRAD_ISA {

template <class T> class DepthwiseStridedDx : public InputGradient<T> {
 public:
  static constexpr Dim kMostRows = 64;  // of taps: kernel rows and slabs

  explicit DepthwiseStridedDx(const ConvShape& s) : s_(s), g_(s) {
    for (int a = 0; a < 3; ++a) {
      low_[a] =
          smaller_of(floor_div(g_.pad[a] - (g_.kernel[a] - 1) * g_.dilation[a], g_.stride[a]), 0);
      size_[a] = (g_.in[a] - 1 + g_.pad[a]) / g_.stride[a] - low_[a] + 1;
    }
    pitch_ = divide_up(size_[2], lanes<T>) * lanes<T> + 2 * lanes<T>;
    residue_ = divide_up(divide_up(g_.in[2], g_.stride[2]), lanes<T>) * lanes<T> + lanes<T>;
    for (Dim r = 0; r < g_.stride[2]; ++r) {
      first_tap_.push_back(taps_.size());
      for (Dim k = 0; k < g_.kernel[2]; ++k) {
        const Dim at = r + g_.pad[2] - k * g_.dilation[2];
        if (at % g_.stride[2] == 0) taps_.push_back({k, at / g_.stride[2] - low_[2]});
      }
    }
    first_tap_.push_back(taps_.size());
    together_ = clamp(16384 / s.in_size(), 1, divide_up(s.images * s.groups, 16));
    scratch_ = space_.template scratch<T>(plane_size() + g_.stride[2] * residue_,
                                          divide_up(s.images * s.groups, together_));
  }
  Dim bytes() const override { return space_.bytes(); }

  void run(Call& call, Span<const T> dy, Span<const T> w, Span<T> dx) override {
    space_.open();
    call.parallel_ranges(s_.images * s_.groups, together_, [&](Dim begin, Dim end) {
      const auto memory = space_.borrow(scratch_);
      std::fill(memory.data(), memory.data() + plane_size() + g_.stride[2] * residue_, T(0));
      for (Dim p = begin; p < end; ++p) {
        copy_plane(dy.data() + p * s_.out_size(), memory.data());
        set_plane(memory.data(), w.data() + p % s_.groups * s_.taps(), memory.data() + plane_size(),
                  dx.data() + p * s_.in_size());
      }
    });
  }

 private:
  struct RowTap {
    Dim index, shift;  // in a row of W; in a row of the copy, from the column's quotient
  };
  struct Row {
    const T *dy, *w;
  };

  static Dim floor_div(Dim a, Dim b) { return a >= 0 ? a / b : -divide_up(-a, b); }
  Dim plane_size() const { return size_[0] * size_[1] * pitch_; }

  // dY with zeros around it, which are there already.
  void copy_plane(const T* dy, T* to) const {
    for (Dim d = 0; d < g_.out[0]; ++d)
      for (Dim h = 0; h < g_.out[1]; ++h) {
        const Dim at_d = d - low_[0], at_h = h - low_[1];
        if (at_d >= size_[0] || at_h >= size_[1]) continue;  // no element of X reaches so far
        const Dim count = smaller_of(g_.out[2], size_[2] + low_[2]);
        T* row = to + (at_d * size_[1] + at_h) * pitch_ - low_[2];
        sort_columns(dy + (d * g_.out[1] + h) * g_.out[2], Dim(0), count, Dim(1), Dim(0), row);
      }
  }

  void set_plane(const T* dy, const T* w, T* residues, T* dx) const {
    for (Dim d = 0; d < g_.in[0]; ++d)
      for (Dim h = 0; h < g_.in[1]; ++h, dx += g_.in[2]) {
        Row rows[kMostRows];
        const Dim count = find_rows(dy, w, d, h, rows);
        for (Dim r = 0; r < g_.stride[2]; ++r) set_residue(rows, count, r, residues + r * residue_);
        merge_columns(residues, g_.in[2], g_.stride[2], residue_, dx);
      }
  }

  // The rows of dY that row (d, h) of dX meets, each with the taps that lead to it.
  Dim find_rows(const T* dy, const T* w, Dim d, Dim h, Row* rows) const {
    Dim count = 0;
    for (Dim i = 0; i < g_.kernel[0]; ++i)
      for (Dim j = 0; j < g_.kernel[1]; ++j) {
        const Dim at_d = d + g_.pad[0] - i * g_.dilation[0],
                  at_h = h + g_.pad[1] - j * g_.dilation[1];
        if (at_d % g_.stride[0] != 0 || at_h % g_.stride[1] != 0) continue;
        const Dim row = (at_d / g_.stride[0] - low_[0]) * size_[1] + at_h / g_.stride[1] - low_[1];
        rows[count++] = {dy + row * pitch_, w + (i * g_.kernel[1] + j) * g_.kernel[2]};
      }
    return count;
  }

  void set_residue(const Row* rows, Dim count, Dim r, T* to) const {
    const RowTap *first = taps_.data() + first_tap_[std::size_t(r)],
                 *last = taps_.data() + first_tap_[std::size_t(r) + 1];
    for (Dim q = 0; q * g_.stride[2] + r < g_.in[2]; q += lanes<T>) {
      Vec<T> sum{};
      for (Dim i = 0; i < count; ++i)
        for (const RowTap* tap = first; tap < last; ++tap)
          sum = fma(splat<T>(rows[i].w[tap->index]), load<T>(rows[i].dy + tap->shift + q), sum);
      store<T>(to + q, sum);
    }
  }

  const ConvShape& s_;
  Geometry g_;
  Dim low_[3], size_[3];  // of the copied plane: its first output, and how many
  Dim pitch_, residue_, together_;
  std::vector<RowTap> taps_;  // of residue 0, of residue 1, …
  std::vector<std::size_t> first_tap_;
  Workspace space_;
  Workspace::Scratch<T> scratch_{};
};

}  // namespace onnxgrad::ONNXGRAD_ISA
