// dW as an implicit matrix product over pixels:
//
//   dW[m][(c, tap)] = Σ_pixel A[(c, tap)][pixel] · B[pixel][m]
//   A[(c, tap)][pixel] = X[c][pixel·stride + tap·dilation − pad],   B = dYᵀ
//
// A is read in place from a copy of X with zero borders. The sum over pixels is cut into parts by
// the shape alone; their results are added in order. dBias sums the packed dY.
#pragma once
#include <vector>

#include "ops/conv/conv_grad_blocks.h"

namespace onnxgrad::ONNXGRAD_ISA {

template <class T> class DirectDw : public FilterGradient<T> {
 public:
  explicit DirectDw(const ConvShape& s)
      : s_(s),
        g_(s),
        rows_(s.channels * s.taps()),
        row_piece_(finer_piece(rows_, kLeastRows, kMostRows, pieces_wanted(s))),
        row_groups_(rows_ ? divide_up(rows_, row_piece_) : 0),
        panels_(panel_count<T>(s.filters)),
        panel_piece_(finer_piece(panels_, kLeastPanels, kMostPanels,
                                 pieces_wanted(s) / larger_of(row_groups_, 1))),
        panel_groups_(panels_ ? divide_up(panels_, panel_piece_) : 0),
        blocks_(cut()) {
    const Dim size = s.groups * s.filters * rows_, others = s.groups * row_groups_ * panel_groups_;
    const Dim fitting = kPartialBytes / larger_of(size * Dim(sizeof(T)), 1);
    parts_ = clamp(divide_up(kTasks, larger_of(others, 1)), 1,
                   larger_of(smaller_of(blocks_.count() / 2, fitting), 1));
    partial_ = space_.shared<T>(parts_ > 1 ? parts_ * size : 0);
    partial_dbias_ = space_.shared<double>(parts_ * s.groups * s.filters);
    Carver counter(nullptr);
    DirectDwTask(*this, counter);
    scratch_ = space_.scratch<char>(counter.bytes(), others * parts_);
  }
  Dim bytes() const override { return space_.bytes(); }
  bool gives_dbias() const override { return true; }

  void begin(Span<const T> dy, Span<const T> x, Span<T> dw, Span<T> dbias, Dim at) override {
    space_.open(at);
    dy_ = dy, x_ = x, dw_ = dw, dbias_ = dbias, wants_dbias_ = bool(dbias);
  }
  Dim stages() const override { return 2; }
  Dim pieces(Dim stage) const override {
    return stage == 0 ? s_.groups * row_groups_ * panel_groups_ * parts_
                      : sum_pieces(parts_, dw_, dbias_);
  }
  void run_piece(Dim stage, Dim index) override {
    if (stage > 0)
      return add_parts(index, parts_, space_[partial_].data(), dw_, space_[partial_dbias_].data(),
                       dbias_);
    const auto memory = space_.borrow(scratch_);
    Carver carver(memory.data());
    DirectDwTask task(*this, carver);
    const Dim rows = index % row_groups_, panels = index / row_groups_ % panel_groups_;
    const Dim rest = index / row_groups_ / panel_groups_;
    task.run(rest / parts_, rest % parts_, rows * row_piece_, panels * panel_piece_);
  }

 private:
  static constexpr Dim kMostRows =
      256;  // (c, tap) rows of a task: their sums stay in the second-level cache
  static constexpr Dim kLeastRows = 128, kLeastPanels = 4, kMostPanels = 8;
  static constexpr Dim kMostPixels = kDepthBlock<T>;
  static constexpr Dim kTasks = 16;  // enough for balance on many threads
  static constexpr Dim kPartialBytes = Dim(16) << 20;
  static constexpr Dim kCopyBytes = Dim(4) << 20;

  // Pieces of rows and panels, beside groups and parts of the sum over pixels.
  static Dim pieces_wanted(const ConvShape& s) {
    const Dim parts = clamp(s.images * s.out_size() / kMostPixels / 2, 1, kTasks);
    return divide_up(2 * kTasks, larger_of(parts * s.groups, 1));
  }

  // The part of X that a block of outputs reads.
  Box box_of(const PixelBlock& block) const {
    Dim size[3];
    for (int a = 0; a < 3; ++a)
      size[a] = (block.size[a] - 1) * g_.stride[a] + (g_.kernel[a] - 1) * g_.dilation[a] + 1;
    return Box::of<T>(size);
  }
  Dim most_channels() const { return smaller_of(s_.channels, (row_piece_ - 1) / s_.taps() + 2); }

  // One block of depth at a time; fewer pixels where they lie far apart in X.
  PixelBlocks cut() const {
    for (Dim most = kMostPixels;; most /= 2) {
      const PixelBlocks blocks(s_.images, g_.out, most);
      const PixelBlock b = blocks.largest();
      if (most <= 8 || b.images * most_channels() * box_of(b).plane * Dim(sizeof(T)) <= kCopyBytes)
        return blocks;
    }
  }

  class DirectDwTask {
   public:
    DirectDwTask(DirectDw& all, Carver& carver) : all_(all) {
      const PixelBlock most = all.blocks_.largest();
      box_ = all.box_of(most);
      most_channels_ = all.most_channels();
      pitch_ = all.panel_piece_ * kPanel<T> + lanes<T>;
      rows_ = carver.take<const T*>(all.row_piece_);
      offsets_ = carver.take<std::int32_t>(most.pixels());
      sums_ = carver.take<T>(all.row_piece_ * pitch_);
      x_ = carver.take<T>(most.images * most_channels_ * box_.plane);
      dy_ = carver.take<T>(most.pixels() * all.panel_piece_ * kPanel<T>);
    }

    // One part of the pixels, for row_piece_ rows from
    // `row` and panel_piece_ panels of filters from `panel`.
    void run(Dim group, Dim part, Dim row, Dim panel) {
      const Dim rows = smaller_of(all_.row_piece_, all_.rows_ - row),
                panels = smaller_of(all_.panel_piece_, all_.panels_ - panel);
      const Dim filters = smaller_of(panels * kPanel<T>, all_.s_.filters - panel * kPanel<T>);
      const Dim begin = all_.blocks_.count() * part / all_.parts_,
                end = all_.blocks_.count() * (part + 1) / all_.parts_;
      double* dbias = all_.space_[all_.partial_dbias_].data() +
                      (part * all_.s_.groups + group) * all_.s_.filters + panel * kPanel<T>;
      const bool sums_dy = all_.wants_dbias_ && row == 0;
      if (sums_dy) std::fill(dbias, dbias + filters, 0.0);
      if (begin == end) std::fill(sums_, sums_ + rows * pitch_, T(0));
      set_rows(row, rows);
      for (Dim b = begin; b < end; ++b) {
        const PixelBlock block = all_.blocks_[b];
        set_offsets(block);
        copy_x(group, block, row, rows);
        pack_dy(group, block, panel, filters);
        if (sums_dy) add_column_sums(dy_, block.pixels(), filters, dbias);
        const Part all_of_it{0, rows, 0, panels};
        const Gathered<T> a{rows_, offsets_};
        if (b == begin)
          set_product(all_of_it, a, block.pixels(), dy_, filters, sums_, pitch_);
        else
          add_product(all_of_it, a, block.pixels(), dy_, filters, sums_, pitch_);
      }
      const Dim size = all_.s_.groups * all_.s_.filters * all_.rows_;
      T* to = all_.parts_ > 1 ? all_.space_[all_.partial_].data() + part * size : all_.dw_.data();
      transpose(sums_, pitch_, rows, filters,
                to + (group * all_.s_.filters + panel * kPanel<T>)*all_.rows_ + row, all_.rows_);
    }

   private:
    Dim first_channel(Dim row) const { return row / all_.s_.taps(); }

    // Where row (c, tap) begins in the copy of X, and how far from there each pixel is.
    void set_rows(Dim row, Dim count) {
      const Geometry& g = all_.g_;
      for (Dim i = 0; i < count; ++i) {
        const Dim c = first_channel(row + i) - first_channel(row), tap = (row + i) % all_.s_.taps();
        const Dim w = tap % g.kernel[2], h = tap / g.kernel[2] % g.kernel[1],
                  d = tap / g.kernel[2] / g.kernel[1];
        rows_[i] = x_ + c * box_.plane + d * g.dilation[0] * box_.slab +
                   h * g.dilation[1] * box_.row + w * g.dilation[2];
      }
    }
    void set_offsets(const PixelBlock& b) {
      const Geometry& g = all_.g_;
      std::int32_t* to = offsets_;
      for (Dim n = 0; n < b.images; ++n)
        for (Dim d = 0; d < b.size[0]; ++d)
          for (Dim h = 0; h < b.size[1]; ++h) {
            const Dim row = n * most_channels_ * box_.plane + d * g.stride[0] * box_.slab +
                            h * g.stride[1] * box_.row;
            for (Dim w = 0; w < b.size[2]; ++w) *to++ = std::int32_t(row + w * g.stride[2]);
          }
    }

    void copy_x(Dim group, const PixelBlock& b, Dim row, Dim rows) {
      const Geometry& g = all_.g_;
      Dim origin[3], size[3];
      for (int a = 0; a < 3; ++a) {
        origin[a] = b.at[a] * g.stride[a] - g.pad[a];
        size[a] = (b.size[a] - 1) * g.stride[a] + (g.kernel[a] - 1) * g.dilation[a] + 1;
      }
      const Dim plane = g.in[0] * g.in[1] * g.in[2], c = first_channel(row),
                count = first_channel(row + rows - 1) + 1 - c;
      for (Dim n = 0; n < b.images; ++n)
        for (Dim j = 0; j < count; ++j) {
          const Dim channel = ((b.image + n) * all_.s_.groups + group) * all_.s_.channels + c + j;
          copy_box(all_.x_.data() + channel * plane, g.in, origin, size, box_,
                   x_ + (n * most_channels_ + j) * box_.plane);
        }
    }

    // dYᵀ in panels: [panel][pixel][filter]
    void pack_dy(Dim group, const PixelBlock& b, Dim panel, Dim filters) {
      const Geometry& g = all_.g_;
      const Dim plane = g.out[0] * g.out[1] * g.out[2], pixels = b.pixels();
      for (Dim first = 0; first < filters; first += kPanel<T>) {
        const Dim width = smaller_of(filters - first, kPanel<T>);
        T* to = dy_ + first * pixels;
        for_runs(b, g.out, [&](Dim i, Dim length, Dim n, Dim d, Dim h, Dim w) {
          const Dim filter =
              (n * all_.s_.groups + group) * all_.s_.filters + panel * kPanel<T> + first;
          pack_transposed(all_.dy_.data() + filter * plane + (d * g.out[1] + h) * g.out[2] + w,
                          plane, length, width, to + i * kPanel<T>);
        });
      }
    }

    DirectDw& all_;
    Box box_;
    Dim most_channels_, pitch_;
    const T** rows_;
    std::int32_t* offsets_;
    T *sums_, *x_, *dy_;
  };

  const ConvShape& s_;
  Geometry g_;
  Dim rows_, row_piece_, row_groups_, panels_, panel_piece_, panel_groups_, parts_ = 1;
  PixelBlocks blocks_;
  Workspace space_;
  Workspace::Shared<T> partial_{};
  Workspace::Shared<double> partial_dbias_{};
  Workspace::Scratch<char> scratch_{};
  Span<const T> dy_, x_;
  Span<T> dw_, dbias_;
  bool wants_dbias_ = false;
};

}  // namespace onnxgrad::ONNXGRAD_ISA
