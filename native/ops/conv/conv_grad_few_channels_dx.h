// dX for up to four channels per group (a first layer, a depthwise convolution): registers hold
// neighbouring pixels, because there are not enough channels to fill one.
//
//   dX[c][pixel] = Σ_k A[c][k] · B[k][pixel],   k = (m, tap)
//   B[(m, tap)][pixel] = dY[m][pixel + shift(tap)]
//
// residue by residue (conv_grad_residues.h). B is read in place from a copy of dY with zero
// borders. A register may run over the end of a row into the border: those sums are computed and
// thrown away.
#pragma once
#include "ops/conv/conv_grad_residues.h"

namespace onnxgrad::ONNXGRAD_ISA {

constexpr Dim kFewChannels = 4;

// C[R][V registers] (+)= A · B,  A[i][k] = a[k·R + i],  B[k][j] = b[offsets[k] + j].
template <int R, int V, class T> void add_gathered(const T* a, const std::int32_t* offsets,
                                                   Dim depth, const T* b, T* c, Dim c_pitch) {
  Vec<T> sum[R][V];
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sum[i][v] = load<T>(c + i * c_pitch + v * lanes<T>);
  for (Dim k = 0; k < depth; ++k, a += R) {
    const T* row = b + offsets[k];
    Vec<T> factor[R];
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) factor[i] = splat<T>(a[i]);
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      const Vec<T> pixels = load<T>(row + v * lanes<T>);
#pragma GCC unroll 8
      for (int i = 0; i < R; ++i) sum[i][v] = fma(factor[i], pixels, sum[i][v]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) store<T>(c + i * c_pitch + v * lanes<T>, sum[i][v]);
}

struct FewChannelsWork {
  const Residue& residue;
  PixelBlocks blocks;
  Dim together, first_task;  // (image, group) pairs of a task
};

template <class T> class FewChannelsDx : public ResidueDx<T, FewChannelsWork> {
  using Base = ResidueDx<T, FewChannelsWork>;
  using Base::dx_, Base::dy_, Base::g_, Base::group_weights_, Base::residues_, Base::s_,
      Base::space_, Base::tasks_, Base::w_, Base::weights_, Base::works_;

 public:
  explicit FewChannelsDx(const ConvShape& s) : Base(s, s.channels) {
    Dim scratch = 0;
    for (const Residue& residue : residues_) {
      const PixelBlocks blocks(1, residue.count, kMostPixels);
      const Dim pixels = larger_of(blocks.largest().pixels(), 1);
      const Dim together = clamp(kMostPixels / pixels, 1,
                                 divide_up(s.images * s.groups, 16));  // small planes: several
      works_.push_back({residue, blocks, together, tasks_});
      tasks_ += blocks.count() * divide_up(s.images * s.groups, together);
      Carver counter(nullptr);
      FewChannelsTask(*this, works_.back(), counter);
      scratch = larger_of(scratch, counter.bytes());
    }
    Base::plan_memory(s.groups * group_weights_, scratch);
  }

  void run(Call& call, Span<const T> dy, Span<const T> w, Span<T> dx) override {
    Base::open(dy, w, dx);
    call.parallel_ranges(s_.groups, 4096 / (group_weights_ + 1) + 1, [&](Dim begin, Dim end) {
      for (Dim group = begin; group < end; ++group)
        for (const Residue& residue : residues_) pack_weights(residue, group);
    });
    Base::run_tasks(call, [&](const FewChannelsWork& work, Dim index, Carver& carver) {
      FewChannelsTask task(*this, work, carver);
      const Dim first = index / work.blocks.count() * work.together, all = s_.images * s_.groups;
      for (Dim i = first; i < smaller_of(first + work.together, all); ++i)
        task.run(i / s_.groups, i % s_.groups, work.blocks[index % work.blocks.count()]);
    });
  }

 private:
  static constexpr Dim kMostPixels = 2048;
  static constexpr int kRegisters = 4;  // of pixels, for each channel

  // A[k][c] = W[m][c][tap],  k = (m, tap)
  void pack_weights(const Residue& residue, Dim group) {
    T* to = space_[weights_].data() + group * group_weights_ + residue.weights_at;
    for (Dim m = 0; m < s_.filters; ++m)
      for (const Residue::ShiftedTap& tap : residue.taps)
        for (Dim c = 0; c < s_.channels; ++c) *to++ = w_[s_.taps_at(group, m, c) + tap.index];
  }

  class FewChannelsTask {
   public:
    FewChannelsTask(FewChannelsDx& all, const FewChannelsWork& work, Carver& carver)
        : all_(all), residue_(work.residue) {
      const PixelBlock most = work.blocks.largest();
      Dim size[3];
      for (int a = 0; a < 3; ++a) size[a] = most.size[a] + residue_.span[a];
      box_ = Box::of<T>(size);
      const Dim taps = larger_of(Dim(residue_.taps.size()), 1);
      const Dim fitting = (Dim(512) << 10) / (box_.plane * Dim(sizeof(T)));
      filters_ =
          even_piece(all.s_.filters, larger_of(smaller_of(kDepthBlock<T> / taps, fitting), 1));
      const Dim slack = kRegisters * lanes<T>;
      pitch_ = most.size[0] * box_.slab + slack;
      offsets_ = carver.take<std::int32_t>(filters_ * taps);
      sums_ = carver.take<T>(all.s_.channels * pitch_);
      dy_ = carver.take<T>(filters_ * box_.plane + slack);
      set_offsets();
    }

    void run(Dim image, Dim group, const PixelBlock& b) {
      const Dim taps = Dim(residue_.taps.size());
      for (Dim c = 0; c < all_.s_.channels; ++c)
        std::fill(sums_ + c * pitch_, sums_ + (c + 1) * pitch_,
                  all_.bias(group * all_.s_.channels + c));
      const T* weights =
          all_.space_[all_.weights_].data() + group * all_.group_weights_ + residue_.weights_at;
      for (Dim m = 0; m < all_.s_.filters && taps > 0; m += filters_) {
        const Dim count = smaller_of(filters_, all_.s_.filters - m);
        copy_dy(image, group, b, m, count);
        const Dim last = ((b.size[0] - 1) * box_.slab + (b.size[1] - 1) * box_.row + b.size[2]);
        for (Dim at = 0; at < last; at += kRegisters * lanes<T>)
          multiply(weights + m * taps * all_.s_.channels, count * taps, at, last - at);
      }
      store(image, group, b);
    }

   private:
    void set_offsets() {
      if (!offsets_) return;
      std::int32_t* to = offsets_;
      for (Dim m = 0; m < filters_; ++m)
        for (const Residue::ShiftedTap& t : residue_.taps)
          *to++ = std::int32_t(m * box_.plane + t.shift[0] * box_.slab + t.shift[1] * box_.row +
                               t.shift[2]);
    }

    void copy_dy(Dim image, Dim group, const PixelBlock& b, Dim m, Dim count) {
      Dim origin[3], size[3];
      for (int a = 0; a < 3; ++a)
        origin[a] = b.at[a] + residue_.low[a], size[a] = b.size[a] + residue_.span[a];
      const Dim first = (image * all_.s_.groups + group) * all_.s_.filters + m;
      for (Dim j = 0; j < count; ++j)
        copy_box(all_.dy_.data() + (first + j) * all_.s_.out_size(), all_.g_.out, origin, size,
                 box_, dy_ + j * box_.plane);
    }

    // Pixels [at, at + left) of the box, as many as kRegisters hold.
    void multiply(const T* weights, Dim depth, Dim at, Dim left) {
      const auto call = [&](auto rows) {
        constexpr int R = decltype(rows)::value;
        if (left > 2 * lanes<T>)
          add_gathered<R, 4>(weights, offsets_, depth, dy_ + at, sums_ + at, pitch_);
        else if (left > lanes<T>)
          add_gathered<R, 2>(weights, offsets_, depth, dy_ + at, sums_ + at, pitch_);
        else
          add_gathered<R, 1>(weights, offsets_, depth, dy_ + at, sums_ + at, pitch_);
      };
      switch (all_.s_.channels) {
        case 1: return call(std::integral_constant<int, 1>());
        case 2: return call(std::integral_constant<int, 2>());
        case 3: return call(std::integral_constant<int, 3>());
        default: return call(std::integral_constant<int, 4>());
      }
    }

    void store(Dim image, Dim group, const PixelBlock& b) {
      const Geometry& g = all_.g_;
      const Dim plane = all_.s_.in_size(),
                channel = (image * all_.s_.groups + group) * all_.s_.channels;
      for (Dim c = 0; c < all_.s_.channels; ++c)
        for (Dim d = 0; d < b.size[0]; ++d)
          for (Dim h = 0; h < b.size[1]; ++h) {
            const Dim in_d = residue_.first[0] + (b.at[0] + d) * g.stride[0],
                      in_h = residue_.first[1] + (b.at[1] + h) * g.stride[1];
            T* to = all_.dx_.data() + (channel + c) * plane + (in_d * g.in[1] + in_h) * g.in[2] +
                    residue_.first[2] + b.at[2] * g.stride[2];
            const T* from = sums_ + c * pitch_ + d * box_.slab + h * box_.row;
            if (g.stride[2] == 1)
              std::copy(from, from + b.size[2], to);
            else
              for (Dim w = 0; w < b.size[2]; ++w) to[w * g.stride[2]] = from[w];
          }
    }

    FewChannelsDx& all_;
    const Residue& residue_;
    Box box_;
    Dim filters_, pitch_;
    std::int32_t* offsets_;
    T *sums_, *dy_;
  };
};

}  // namespace onnxgrad::ONNXGRAD_ISA
