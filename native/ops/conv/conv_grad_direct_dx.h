// dX as an implicit matrix product: nothing is unrolled into memory.
//
//   dX[pixel][c] = Σ_k A[pixel][k] · B[k][c],   k = (m, tap)
//   A[pixel][(m, tap)] = dY[m][pixel + shift(tap)]
//
// residue by residue, each a convolution with stride 1 (conv_grad_residues.h).
#pragma once
#include "ops/conv/conv_grad_residues.h"

namespace onnxgrad::ONNXGRAD_ISA {

struct DirectWork {
  const Residue& residue;
  PixelBlocks blocks;
  Dim first_task;
};

template <class T> class DirectDx : public ResidueDx<T, DirectWork> {
  using Base = ResidueDx<T, DirectWork>;
  using Base::dx_, Base::dy_, Base::g_, Base::group_weights_, Base::residues_, Base::s_,
      Base::space_, Base::tasks_, Base::w_, Base::weights_, Base::works_;

 public:
  explicit DirectDx(const ConvShape& s)
      : Base(s, panel_count<T>(s.channels) * kPanel<T>), panels_(panel_count<T>(s.channels)) {
    panel_groups_ = divide_up(panels_, kPanelsPerTask);
    shared_weights_ = s.groups * group_weights_ * Dim(sizeof(T)) <= kWorkspaceBytes / 2;
    Dim scratch = 0;
    for (const Residue& residue : residues_) {
      const Dim whole = s.images * residue.count[0] * residue.count[1] * residue.count[2] *
                        s.groups * panel_groups_;
      works_.push_back(
          {residue,
           PixelBlocks(s.images, residue.count, clamp(whole / 16, kLeastPixels, most_pixels())),
           tasks_});
      tasks_ += s.groups * panel_groups_ * works_.back().blocks.count();
      Carver counter(nullptr);
      DirectDxTask(*this, works_.back(), counter);
      scratch = larger_of(scratch, counter.bytes());
    }
    Base::plan_memory(shared_weights_ ? s.groups * group_weights_ : 0, scratch);
  }

  void begin(Span<const T> dy, Span<const T> w, Span<T> dx, Dim at) override {
    Base::open(dy, w, dx, at);
  }
  Dim stages() const override { return 2; }
  Dim pieces(Dim stage) const override {
    return stage > 0 ? tasks_ : shared_weights_ ? divide_up(weight_panels(), panels_together()) : 0;
  }
  void run_piece(Dim stage, Dim number) override {
    if (stage == 0) return pack_some_weights(number);
    Base::run_task(number, [&](const DirectWork& work, Dim index, Carver& carver) {
      DirectDxTask task(*this, work, carver);
      task.run(index / panel_groups_ / work.blocks.count(),
               work.blocks[index / panel_groups_ % work.blocks.count()],
               index % panel_groups_ * kPanelsPerTask);
    });
  }

 private:
  static constexpr Dim kPanelsPerTask = 4;
  static constexpr Dim kLeastPixels = 60;
  static constexpr Dim kSumBytes = Dim(256)
                                   << 10;  // the sums of a task stay in the second-level cache

  Dim sums_pitch() const {
    return smaller_of(divide_up(s_.channels, lanes<T>) * lanes<T>, kPanelsPerTask * kPanel<T>) +
           lanes<T>;
  }
  // Few channels leave room for more pixels, which then share their borders.
  Dim most_pixels() const { return clamp(kSumBytes / (sums_pitch() * Dim(sizeof(T))), 480, 2048); }

  // Filters whose taps make up one block of depth,
  // and whose copies (`bytes` each) stay in the cache.
  static Dim filters_together(const ConvShape& s, const Residue& residue, Dim bytes) {
    const Dim taps = Dim(residue.taps.size());
    return taps
               ? even_piece(s.filters,
                            larger_of(smaller_of(kDepthBlock<T> / taps, (Dim(2) << 20) / bytes), 1))
               : 1;
  }

  // The working memory of one task, and the task itself.
  class DirectDxTask {
   public:
    DirectDxTask(DirectDx& all, const DirectWork& work, Carver& carver)
        : all_(all), residue_(work.residue) {
      const PixelBlock most = work.blocks.largest();
      Dim size[3];
      for (int a = 0; a < 3; ++a) size[a] = residue_.reach(a, most.size[a]);
      box_ = Box::of<T>(size);
      together_ = filters_together(all.s_, residue_, most.images * box_.plane * Dim(sizeof(T)));
      pitch_ = all.sums_pitch();
      rows_ = carver.take<const T*>(most.pixels());
      offsets_ = carver.take<std::int32_t>(together_ * Dim(residue_.taps.size()));
      sums_ = carver.take<T>(most.pixels() * pitch_);
      dy_ = carver.take<T>(most.images * together_ * box_.plane);
      run_ = carver.take<T>(most.size[2] * pitch_);
      packed_ = carver.take<T>(all.shared_weights_ ? 0
                                                   : together_ * Dim(residue_.taps.size()) *
                                                         kPanel<T> * kPanelsPerTask);
    }

    // Channels of panels [panel, panel + kPanelsPerTask) of one group, at the pixels of one block.
    void run(Dim group, const PixelBlock& block, Dim panel) {
      set_addresses(block);
      const Dim taps = Dim(residue_.taps.size()),
                panel_end = smaller_of(panel + kPanelsPerTask, all_.panels_);
      const Dim filters = all_.s_.filters;
      if (taps == 0 || filters == 0) std::fill(sums_, sums_ + block.pixels() * pitch_, T(0));
      if (all_.has_bias()) begin_with_bias(group, block, panel);
      for (Dim m = 0; m < filters && taps > 0; m += together_) {
        const Dim count = smaller_of(together_, filters - m);
        copy_dy(group, block, m, count);
        for (Dim p = panel; p < panel_end; ++p) {
          const T* weights = packed_panel(group, p, m, count);
          const Dim columns = smaller_of(all_.s_.channels - p * kPanel<T>, kPanel<T>);
          for_row_tiles<Gathered<T>::max_rows>(0, block.pixels(), [&](Dim row, Dim rows) {
            const Gathered<T> a{rows_ + row, offsets_};
            T* to = sums_ + row * pitch_ + (p - panel) * kPanel<T>;
            panel_tile(m > 0 || all_.has_bias(), a, rows, count * taps, weights, to, pitch_,
                       columns);
          });
        }
      }
      store(group, block, panel);
    }

   private:
    void begin_with_bias(Dim group, const PixelBlock& block, Dim panel) {
      const Dim channels = all_.s_.channels, first = panel * kPanel<T>;
      for (Dim c = 0; c < smaller_of(channels - first, kPanelsPerTask * kPanel<T>); c += lanes<T>) {
        const Vec<T> bias = all_.bias(group * channels + first + c, channels - first - c);
        for (Dim i = 0; i < block.pixels(); ++i)
          onnxgrad::ONNXGRAD_ISA::store<T>(sums_ + i * pitch_ + c, bias);
      }
    }

    // Where each pixel begins in the copy of dY, and how far from there each (m, tap) is.
    void set_addresses(const PixelBlock& b) {
      Dim i = 0;
      for (Dim n = 0; n < b.images; ++n)
        for (Dim d = 0; d < b.size[0]; ++d)
          for (Dim h = 0; h < b.size[1]; ++h)
            for (Dim w = 0; w < b.size[2]; ++w)
              rows_[i++] = dy_ + n * together_ * box_.plane + d * residue_.step[0] * box_.slab +
                           h * residue_.step[1] * box_.row + w * residue_.step[2];
      i = 0;
      for (Dim m = 0; m < together_; ++m)
        for (const Residue::ShiftedTap& t : residue_.taps)
          offsets_[i++] = std::int32_t(m * box_.plane + t.shift[0] * box_.slab +
                                       t.shift[1] * box_.row + t.shift[2]);
    }

    void copy_dy(Dim group, const PixelBlock& b, Dim m, Dim count) {
      Dim origin[3], size[3];
      for (int a = 0; a < 3; ++a)
        origin[a] = b.at[a] * residue_.step[a] + residue_.low[a],
        size[a] = residue_.reach(a, b.size[a]);
      const Dim plane = all_.g_.out[0] * all_.g_.out[1] * all_.g_.out[2];
      for (Dim n = 0; n < b.images; ++n)
        for (Dim j = 0; j < count; ++j) {
          const Dim filter = ((b.image + n) * all_.s_.groups + group) * all_.s_.filters + m + j;
          copy_box(all_.dy_.data() + filter * plane, all_.g_.out, origin, size, box_,
                   dy_ + (n * together_ + j) * box_.plane);
        }
    }

    const T* packed_panel(Dim group, Dim panel, Dim m, Dim count) {
      if (all_.shared_weights_)
        return all_.packed_panel(residue_, group, panel) +
               m * Dim(residue_.taps.size()) * kPanel<T>;
      all_.pack_weights(residue_, group, panel, m, count, packed_);
      return packed_;
    }

    // sums[pixel][channel] → dX[channel][pixel]
    void store(Dim group, const PixelBlock& b, Dim panel) {
      const Geometry& g = all_.g_;
      const Dim plane = g.in[0] * g.in[1] * g.in[2], first = panel * kPanel<T>;
      const Dim channels = smaller_of(all_.s_.channels - first, kPanelsPerTask * kPanel<T>);
      const auto address = [&](Dim n, Dim d, Dim h, Dim w) {
        const Dim row =
            (residue_.first[0] + d * g.stride[0]) * g.in[1] + residue_.first[1] + h * g.stride[1];
        return all_.dx_.data() + ((n * all_.s_.groups + group) * all_.s_.channels + first) * plane +
               row * g.in[2] + residue_.first[2] + w * g.stride[2];
      };
      if (g.stride[0] == 1 && g.stride[1] == 1 && g.stride[2] == 1)
        return for_runs(b, g.in, [&](Dim i, Dim length, Dim n, Dim d, Dim h, Dim w) {
          transpose(sums_ + i * pitch_, pitch_, length, channels, address(n, d, h, w), plane);
        });
      Dim i = 0;
      for (Dim n = 0; n < b.images; ++n)
        for (Dim d = 0; d < b.size[0]; ++d)
          for (Dim h = 0; h < b.size[1]; ++h, i += b.size[2]) {
            transpose(sums_ + i * pitch_, pitch_, b.size[2], channels, run_, b.size[2]);
            T* row = address(b.image + n, b.at[0] + d, b.at[1] + h, b.at[2]);
            for (Dim c = 0; c < channels; ++c)
              for (Dim w = 0; w < b.size[2]; ++w)
                row[c * plane + w * g.stride[2]] = run_[c * b.size[2] + w];
          }
    }

    DirectDx& all_;
    const Residue& residue_;
    Dim together_, pitch_;
    Box box_;
    const T** rows_;
    std::int32_t* offsets_;
    T *sums_, *dy_, *run_, *packed_;
  };

  const T* packed_panel(const Residue& residue, Dim group, Dim panel) const {
    return space_[weights_].data() + group * group_weights_ + residue.weights_at +
           panel * s_.filters * Dim(residue.taps.size()) * kPanel<T>;
  }

  // B[(m, tap)][c] = W[m][c][tap] for filters [m, m + count) and the channels of one panel.
  void pack_weights(const Residue& residue, Dim group, Dim panel, Dim m, Dim count, T* out) const {
    const Dim all_taps = s_.taps(), taps = Dim(residue.taps.size()), first = panel * kPanel<T>;
    const Dim width = smaller_of(s_.channels - first, kPanel<T>);
    for (Dim i = 0; i < count; ++i, out += taps * kPanel<T>) {
      const T* from = w_.data() + s_.taps_at(group, m + i, first);
      const Dim pitch = s_.channel_pitch();
      if (taps == all_taps) {
        pack_transposed(from, pitch, taps, width, out);
        continue;
      }
      for (Dim t = 0; t < taps; ++t)
        for (Dim j = 0; j < kPanel<T>; ++j)
          out[t * kPanel<T> + j] =
              j < width ? from[j * pitch + residue.taps[std::size_t(t)].index] : T(0);
    }
  }

  Dim weight_panels() const { return s_.groups * panels_ * Dim(residues_.size()); }
  Dim panels_together() const {
    return divide_up(larger_of(weight_panels(), 1), 64);
  }  // of a piece
  void pack_some_weights(Dim piece) {
    const Dim residues = Dim(residues_.size()), begin = piece * panels_together(),
              end = smaller_of(begin + panels_together(), weight_panels());
    for (Dim i = begin; i < end; ++i) {
      const Residue& residue = residues_[std::size_t(i % residues)];
      const Dim group = i / residues / panels_, panel = i / residues % panels_;
      pack_weights(residue, group, panel, 0, s_.filters,
                   const_cast<T*>(packed_panel(residue, group, panel)));
    }
  }

  const Dim panels_;
  Dim panel_groups_ = 0;
  bool shared_weights_ = true;
};

}  // namespace onnxgrad::ONNXGRAD_ISA
