// dX of a 3×3 convolution with stride 1 by Winograd: a correlation of dY with the mirrored filters,
//
//   dX[c][i] = Σ_{m, j} dY[m][i + j + pad − 2] · W[m][c][2 − j]
//
// as (m + 2)² products  P[ξ][tile][c] = V[ξ][tile][m] · U[ξ][m][c],  V from dY and U from W.
#pragma once
#include "ops/conv_grad_winograd.h"

namespace onnxgrad::ONNXGRAD_ISA {

template <class T, int m> class WinogradDx : public InputGradient<T> {
 public:
  explicit WinogradDx(const ConvShape& s)
      : s_(s),
        panels_(panel_count<T>(s.channels)),
        dy_pitch_(whole_registers<T>(s.filters) + lanes<T>),
        dx_pitch_(panels_ * kPanel<T> + lanes<T>),
        grid_(s.in[0], s.in[1]),
        blocks_(grid_.blocks(s.images, most_tiles())) {
    filters_ = space_.shared<T>(kPoints * packed_size<T>(s.filters, s.channels));
    Carver counter(nullptr);
    Task(*this, counter);
    scratch_ = space_.scratch<char>(counter.bytes(), blocks_.count());
  }
  Dim bytes() const override { return space_.bytes(); }

  void run(Call& call, Span<const T> dy, Span<const T> w, Span<T> dx) override {
    space_.open();
    dy_ = dy, w_ = w, dx_ = dx;
    const Dim pieces = panels_ * s_.filters;
    call.parallel_ranges(pieces, larger(ceil_div(pieces, 64), 16), [&](Dim begin, Dim end) {
      for (Dim i = begin; i < end; ++i) transform_filters(i / s_.filters, i % s_.filters);
    });
    call.parallel_for(blocks_.count(), [&](Dim index) {
      const auto memory = space_.borrow(scratch_);
      Carver carver(memory.data());
      Task(*this, carver).run(blocks_[index]);
    });
  }

 private:
  static constexpr int kSide = m + 2, kPoints = kSide * kSide;

  // V and P of a block should stay in the second-level cache; but each block reads all of U, which
  // pays for enough tiles only. Small inputs are cut further, for several threads.
  Dim most_tiles() const {
    const Dim per_tile = kPoints * (dy_pitch_ + dx_pitch_) * Dim(sizeof(T));
    const Dim total = s_.images * grid_.rows * grid_.columns;
    return larger(smaller(clamp((Dim(768) << 10) / per_tile, 30, 120), total / 8), 20);
  }

  // U[ξ][panel][filter][c] = G mirrored(W[filter][c]) Gᵀ; as it is when turned around
  void transform_filters(Dim panel, Dim filter) {
    T taps[9 * kPanel<T>];
    const Dim width = smaller(s_.channels - panel * kPanel<T>, kPanel<T>),
              pitch = packed_size<T>(s_.filters, s_.channels);
    pack_transposed(w_.data() + s_.taps_at(0, filter, panel * kPanel<T>), s_.channel_pitch(), 9,
                    width, taps);
    T* to = space_[filters_].data() + (panel * s_.filters + filter) * kPanel<T>;
    for (Dim c = 0; c < kPanel<T>; c += lanes<T>) {
      Vec<T> g[3][3], u[kSide][kSide];
#pragma GCC unroll 4
      for (int i = 0; i < 3; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < 3; ++j) {
          const int tap = s_.turned ? 3 * i + j : 8 - 3 * i - j;
          g[i][j] = load<T>(taps + tap * kPanel<T> + c);
        }
      both_ways(g, u,
                [](const auto& in, auto& out) ONNXGRAD_LAMBDA { Winograd<m>::filter(in, out); });
#pragma GCC unroll 8
      for (int i = 0; i < kSide; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < kSide; ++j) store<T>(to + (i * kSide + j) * pitch + c, u[i][j]);
    }
  }

  class Task {
   public:
    Task(WinogradDx& all, Carver& carver) : all_(all) {
      const Block most = all.blocks_.largest();
      const Dim strip = strip_size<m, kSide, T>(most, all.s_.filters);
      const Dim result = most.size[1] * m * most.size[2] * m * whole_registers<T>(all.s_.channels);
      strip_ = carver.take<T>(larger(strip, result));
      dy_ = carver.take<T>(kPoints * most.pixels() * all.dy_pitch_);
      products_ = carver.take<T>(kPoints * most.pixels() * all.dx_pitch_);
    }

    void run(const Block& b) {
      transform_dy(b);
      const ConvShape& s = all_.s_;
      const Dim tiles = b.pixels(), pitch = packed_size<T>(s.filters, s.channels);
      for (Dim point = 0; point < kPoints; ++point)
        set_product(Part{0, tiles, 0, all_.panels_},
                    Rows<T>{dy_ + point * tiles * all_.dy_pitch_, all_.dy_pitch_}, s.filters,
                    all_.space_[all_.filters_].data() + point * pitch,
                    whole_registers<T>(s.channels), products_ + point * tiles * all_.dx_pitch_,
                    all_.dx_pitch_);
      for (Dim n = 0; n < b.images; ++n) store_image(b, n);
    }

   private:
    // V[ξ][tile][filter] = Bᵀ dY B
    void transform_dy(const Block& b) {
      const ConvShape& s = all_.s_;
      const Dim point = b.pixels() * all_.dy_pitch_;
      for_tiles<m, kSide>(b, all_.dy_.data(), s.filters * s.out_size(), s.filters, s.out[0],
                          s.out[1], s.pad[0] - 2, s.pad[1] - 2, strip_,
                          [&](Dim tile, Dim c, const auto& patch) ONNXGRAD_LAMBDA {
                            Vec<T> v[kSide][kSide];
                            both_ways(patch, v, [](const auto& in, auto& out) ONNXGRAD_LAMBDA {
                              Winograd<m>::input(in, out);
                            });
                            T* to = dy_ + tile * all_.dy_pitch_ + c;
#pragma GCC unroll 8
                            for (int i = 0; i < kSide; ++i)
#pragma GCC unroll 8
                              for (int j = 0; j < kSide; ++j)
                                store<T>(to + (i * kSide + j) * point, v[i][j]);
                          });
    }

    // dX = Aᵀ P A for the tiles of image n of the block.
    void store_image(const Block& b, Dim n) {
      const ConvShape& s = all_.s_;
      const Dim width = b.size[2] * m, pitch = whole_registers<T>(s.channels),
                point = b.pixels() * all_.dx_pitch_;
      for (Dim ty = 0; ty < b.size[1]; ++ty)
        for (Dim tx = 0; tx < b.size[2]; ++tx) {
          const T* from = products_ + ((n * b.size[1] + ty) * b.size[2] + tx) * all_.dx_pitch_;
          T* to = strip_ + (ty * m * width + tx * m) * pitch;
          for (Dim c = 0; c < pitch; c += lanes<T>) {
            Vec<T> p[kSide][kSide], y[m][m];
#pragma GCC unroll 8
            for (int i = 0; i < kSide; ++i)
#pragma GCC unroll 8
              for (int j = 0; j < kSide; ++j) p[i][j] = load<T>(from + (i * kSide + j) * point + c);
            both_ways(p, y, [](const auto& in, auto& out) ONNXGRAD_LAMBDA {
              Winograd<m>::output(in, out);
            });
            const Vec<T> bias = all_.bias(c, s.channels - c);
#pragma GCC unroll 8
            for (int i = 0; i < m; ++i)
#pragma GCC unroll 8
              for (int j = 0; j < m; ++j) store<T>(to + (i * width + j) * pitch + c, y[i][j] + bias);
          }
        }
      const Dim top = b.at[1] * m, left = b.at[2] * m, rows = smaller(b.size[1] * m, s.in[0] - top);
      const Dim columns = smaller(width, s.in[1] - left);
      for (Dim y = 0; y < rows; ++y)
        transpose(
            strip_ + y * width * pitch, pitch, columns, s.channels,
            all_.dx_.data() + (b.image + n) * s.channels * s.in_size() + (top + y) * s.in[1] + left,
            s.in_size());
    }

    WinogradDx& all_;
    T *strip_, *dy_, *products_;
  };

  const ConvShape& s_;
  Dim panels_, dy_pitch_, dx_pitch_;
  TileGrid<m> grid_;
  Blocks blocks_;
  Workspace space_;
  Workspace::Shared<T> filters_{};
  Workspace::Scratch<char> scratch_{};
  Span<const T> dy_, w_;
  Span<T> dx_;
};

}  // namespace onnxgrad::ONNXGRAD_ISA
