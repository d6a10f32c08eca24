// dX and dW of a transposed convolution from one copy of dY,
// a block of pixels at a time: both read dY at (pixel, tap),
//
//   dX[pixel][c] = Σ_k A[pixel][k] · W[c][k]              k = (m, tap)
//   dW[c][k]     = Σ_pixel A[pixel][k] · X[c][pixel]
//   A[pixel][(m, tap)] = dY[m][pixel·stride + tap·dilation − pad]
//
// A is read in place, by rows for dX and by columns for dW.
// All that a block needs stays in the second-level cache.
#pragma once
#include "core/pointwise.h"
#include "ops/conv/conv_grad_plain.h"

namespace onnxgrad::ONNXGRAD_ISA {

template <class T> class TransposeTogether {
 public:
  // s is the convolution from Y to X: its `in` is Y's size,
  // its channels are those of dY, its filters those of X.
  explicit TransposeTogether(const ConvShape& s)
      : s_(s),
        g_(s),
        depth_(s.channels * s.taps()),
        blocks_(s.images, g_.out, kPixels),
        box_(box_of(blocks_.largest())) {
    const Dim size = depth_ * s.filters;
    parts_ = clamp(blocks_.count(), 1, kParts);
    filters_ = space_.shared<T>(packed_size<T>(depth_, s.filters));
    partial_ = space_.shared<T>(parts_ > 1 ? parts_ * size : 0);
    partial_dbias_ = space_.shared<double>(parts_ * s.channels);
    Carver counter(nullptr);
    TogetherTask(*this, counter);
    scratch_ = space_.scratch<char>(counter.bytes(), parts_);
  }

  // One group, and a copy of dY and a dW that fit the second-level cache beside the rest.
  static bool suits(const ConvShape& s) {
    if (s.groups != 1 || s.rank() > 3 || s.channels < 16 || s.filters < 16) return false;
    const TransposeTogether planned(s);
    const Dim copy =
        planned.blocks_.largest().images * s.channels * planned.box_.plane * Dim(sizeof(T));
    return planned.depth_ * s.filters * Dim(sizeof(T)) <= kCacheBytes && copy <= kCacheBytes;
  }
  Dim bytes() const { return space_.bytes(); }

  // dBias is summed on the way where a block's rows are not shared with other blocks.
  bool gives_dbias() const { return s_.rank() == 2; }

  // Any of the results may be absent.
  void run(Call& call, Span<const T> dy, Span<const T> x, Span<const T> w, Span<T> dx, Span<T> dw,
           Span<T> dbias) {
    space_.open();
    dy_ = dy, x_ = x, dx_ = dx, dw_ = dw, wants_dbias_ = bool(dbias);
    streams_ = (dy.size() + 2 * dx.size()) * Dim(sizeof(T)) > kStreamBytes;
    if (dx)
      call.parallel_for(panel_count<T>(s_.filters), [&](Dim panel) {
        pack_transposed_panels(w.data(), depth_, depth_, s_.filters, space_[filters_].data(), panel,
                               panel + 1);
      });
    call.parallel_for(parts_, [&](Dim part) {
      const auto memory = space_.borrow(scratch_);
      Carver carver(memory.data());
      TogetherTask(*this, carver).run(part);
    });
    if (dw && parts_ > 1) add_parts(call, space_[partial_].data(), parts_, dw);
    if (dbias) add_parts(call, space_[partial_dbias_].data(), parts_, dbias);
  }

 private:
  static constexpr Dim kPixels = kDepthBlock<T>, kParts = 16;
  static constexpr Dim kCacheBytes = Dim(320) << 10;  // of the copy of dY, and of dW

  Box box_of(const PixelBlock& block) const {
    Dim size[3];
    for (int a = 0; a < 3; ++a) size[a] = read_by(a, block.size[a]);
    return Box::of<T>(size);
  }
  // Elements of dY that `count` neighbouring pixels of dX read along axis a.
  Dim read_by(int a, Dim count) const {
    return (count - 1) * g_.stride[a] + (g_.kernel[a] - 1) * g_.dilation[a] + 1;
  }

  class TogetherTask {
   public:
    TogetherTask(TransposeTogether& all, Carver& carver)
        : all_(all),
          s_(all.s_),
          g_(all.g_),
          pitch_(panel_count<T>(all.s_.filters) * kPanel<T> + lanes<T>) {
      const PixelBlock most = all.blocks_.largest();
      addresses_ = carver.take<const T*>(larger_of(most.pixels(), all.depth_));
      pixels_ = carver.take<std::int32_t>(most.pixels());
      taps_ = carver.take<std::int32_t>(all.depth_);
      dy_ = carver.take<T>(most.images * s_.channels * all.box_.plane);
      x_ = carver.take<T>(packed_size<T>(most.pixels(), s_.filters));
      dx_ = carver.take<T>(most.pixels() * pitch_);
      dw_ = carver.take<T>(all.depth_ * pitch_);
    }

    void run(Dim part) {
      const Dim begin = all_.blocks_.count() * part / all_.parts_,
                end = all_.blocks_.count() * (part + 1) / all_.parts_;
      double* dbias = all_.space_[all_.partial_dbias_].data() + part * s_.channels;
      if (all_.wants_dbias_) std::fill(dbias, dbias + s_.channels, 0.0);
      set_taps();
      for (Dim b = begin; b < end; ++b) {
        const PixelBlock block = all_.blocks_[b];
        set_pixels(block);
        copy_dy(block);
        if (all_.wants_dbias_) add_dbias(block, dbias);
        fetch_ = b + 1 < end ? Fetch(*this, all_.blocks_[b + 1]) : Fetch();
        if (all_.dx_) set_dx(block);
        if (all_.dw_) add_dw(block, b > begin);
      }
      stream_done();
      if (!all_.dw_) return;
      T* to = all_.parts_ > 1 ? all_.space_[all_.partial_].data() + part * all_.depth_ * s_.filters
                              : all_.dw_.data();
      transpose(dw_, pitch_, all_.depth_, s_.filters, to, all_.depth_);
    }

   private:
    // How far each (m, tap) is from the first, and each pixel.
    void set_taps() {
      std::int32_t* to = taps_;
      for (Dim m = 0; m < s_.channels; ++m)
        for (Dim d = 0; d < g_.kernel[0]; ++d)
          for (Dim h = 0; h < g_.kernel[1]; ++h)
            for (Dim w = 0; w < g_.kernel[2]; ++w)
              *to++ = std::int32_t(m * all_.box_.plane + d * g_.dilation[0] * all_.box_.slab +
                                   h * g_.dilation[1] * all_.box_.row + w * g_.dilation[2]);
    }
    void set_pixels(const PixelBlock& b) {
      std::int32_t* to = pixels_;
      for (Dim n = 0; n < b.images; ++n)
        for (Dim d = 0; d < b.size[0]; ++d)
          for (Dim h = 0; h < b.size[1]; ++h)
            for (Dim w = 0; w < b.size[2]; ++w)
              *to++ = std::int32_t(n * s_.channels * all_.box_.plane +
                                   d * g_.stride[0] * all_.box_.slab +
                                   h * g_.stride[1] * all_.box_.row + w * g_.stride[2]);
    }

    void copy_dy(const PixelBlock& b) {
      Dim origin[3], size[3];
      for (int a = 0; a < 3; ++a)
        origin[a] = b.at[a] * g_.stride[a] - g_.pad[a], size[a] = all_.read_by(a, b.size[a]);
      for (Dim i = 0; i < b.images * s_.channels; ++i)
        copy_box(all_.dy_.data() + (b.image * s_.channels + i) * s_.in_size(), g_.in, origin, size,
                 all_.box_, dy_ + i * all_.box_.plane);
    }

    void set_dx(const PixelBlock& b) {
      for (Dim i = 0; i < b.pixels(); ++i) addresses_[i] = dy_ + pixels_[i];
      multiply(Gathered<T>{addresses_, taps_}, b.pixels(), all_.depth_,
               all_.space_[all_.filters_].data(), dx_, false);
      each_run(b, [&](Dim first, Dim length, Dim at) {
        store_run(dx_ + first * pitch_, length, all_.dx_.data() + at);
      });
    }
    // sums[pixel][filter] → dX[filter][pixel];
    // past the caches where these hold too little to find it again.
    void store_run(const T* sums, Dim length, T* to) const {
      constexpr Dim n = lanes<T>;
      const bool whole_lines = kVectorBytes == 64 &&
                               reinterpret_cast<std::uintptr_t>(to) % 64 == 0 &&
                               s_.out_size() % n == 0 && length % n == 0 && s_.filters % n == 0;
      if (!all_.streams_ || !whole_lines)
        return transpose(sums, pitch_, length, s_.filters, to, s_.out_size());
      for (Dim c = 0; c < s_.filters; c += n)
        for (Dim i = 0; i < length; i += n) {
          Vec<T> square[n];
#pragma GCC unroll 16
          for (int k = 0; k < int(n); ++k) square[k] = load<T>(sums + (i + k) * pitch_ + c);
          transpose_square<T>(square);
#pragma GCC unroll 16
          for (int k = 0; k < int(n); ++k) stream<T>(to + (c + k) * s_.out_size() + i, square[k]);
        }
    }

    // The rows of dY from the first that the block reads
    // to the first of the next one, while they are in the cache.
    void add_dbias(const PixelBlock& b, double* dbias) const {
      const auto row = [&](Dim y) {
        return y == 0           ? 0
               : y == g_.out[1] ? g_.in[1]
                                : clamp(y * g_.stride[1] - g_.pad[1], 0, g_.in[1]);
      };
      const Dim first = row(b.at[1]),
                count = b.at[2] == 0 ? (row(b.at[1] + b.size[1]) - first) * g_.in[2] : 0;
      for (Dim n = b.image; n < b.image + b.images; ++n)
        for (Dim m = 0; m < s_.channels; ++m)
          dbias[m] += plane_sum(
              all_.dy_.data() + (n * s_.channels + m) * s_.in_size() + first * g_.in[2], count);
    }

    void add_dw(const PixelBlock& b, bool add) {
      for (Dim panel = 0; panel < panel_count<T>(s_.filters); ++panel)
        each_run(b, [&](Dim first, Dim length, Dim at) {
          pack_transposed(all_.x_.data() + at + panel * kPanel<T> * s_.out_size(), s_.out_size(),
                          length, smaller_of(s_.filters - panel * kPanel<T>, kPanel<T>),
                          x_ + (panel * b.pixels() + first) * kPanel<T>);
        });
      for (Dim k = 0; k < all_.depth_; ++k) addresses_[k] = dy_ + taps_[k];
      multiply(Gathered<T>{addresses_, pixels_}, all_.depth_, b.pixels(), x_, dw_, add);
    }

    // C[rows][filters] (+)= A · B, and after each tile a few lines of the next block's dY.
    void multiply(Gathered<T> a, Dim rows, Dim depth, const T* packed, T* c, bool add) {
      for (Dim k = 0; k < depth; k += kDepthBlock<T>)
        for (Dim panel = 0; panel < panel_count<T>(s_.filters); ++panel) {
          const T* b = packed + (panel * depth + k) * kPanel<T>;
          const Dim count = smaller_of(depth - k, kDepthBlock<T>),
                    columns = smaller_of(s_.filters - panel * kPanel<T>, kPanel<T>);
          for_row_tiles<Gathered<T>::max_rows>(0, rows, [&](Dim row, Dim height) {
            T* to = c + row * pitch_ + panel * kPanel<T>;
            panel_tile(add || k > 0, a.tile(row, k), height, count, b, to, pitch_, columns);
            fetch_.some();
          });
        }
    }

    // Brings the dY of the next block into the second-level cache, a few lines at a time while this
    // one is computed: pieces of many planes, too short for the processor to see them coming.
    class Fetch {
     public:
      Fetch() = default;
      Fetch(const TogetherTask& task, const PixelBlock& b)
          : planes_(task.s_.channels), pitch_(task.s_.in_size()) {
        const Geometry& g = task.g_;
        const Dim slab = clamp(b.at[0] * g.stride[0] - g.pad[0], 0, g.in[0] - 1);
        const Dim row = clamp(b.at[1] * g.stride[1] - g.pad[1], 0, g.in[1] - 1);
        at_ = task.all_.dy_.data() + b.image * planes_ * pitch_ + (slab * g.in[1] + row) * g.in[2];
        lines_ =
            divide_up(smaller_of(task.all_.read_by(1, b.size[1]), g.in[1] - row) * g.in[2], kLine);
      }
      ONNXGRAD_INLINE void some() {
        for (int i = 0; i < kTogether && plane_ < planes_; ++i) {
          __builtin_prefetch(at_ + plane_ * pitch_ + line_ * kLine, 0, 2);
          if (++line_ == lines_) line_ = 0, ++plane_;
        }
      }

     private:
      static constexpr Dim kLine = 64 / Dim(sizeof(T));
      static constexpr int kTogether = 20;
      const T* at_ = nullptr;
      Dim line_ = 0, lines_ = 0, plane_ = 0, planes_ = 0, pitch_ = 0;
    };

    // body(first pixel of the block, how many, where they are in the first filter's plane)
    template <class F> void each_run(const PixelBlock& b, F&& body) const {
      for_runs(b, g_.out, [&](Dim first, Dim length, Dim n, Dim d, Dim h, Dim w) {
        body(first, length, n * s_.filters * s_.out_size() + (d * g_.out[1] + h) * g_.out[2] + w);
      });
    }

    TransposeTogether& all_;
    const ConvShape& s_;
    const Geometry& g_;
    Dim pitch_;
    const T** addresses_;
    std::int32_t *pixels_, *taps_;
    T *dy_, *x_, *dx_, *dw_;
    Fetch fetch_;
  };

  const ConvShape& s_;
  Geometry g_;
  Dim depth_, parts_ = 1;
  PixelBlocks blocks_;
  Box box_;
  Workspace space_;
  Workspace::Shared<T> filters_{}, partial_{};
  Workspace::Shared<double> partial_dbias_{};
  Workspace::Scratch<char> scratch_{};
  Span<const T> dy_, x_;
  Span<T> dx_, dw_;
  bool wants_dbias_ = false, streams_ = false;
};

}  // namespace onnxgrad::ONNXGRAD_ISA
