// dW of a 3×3 convolution with stride 1 by Winograd:  dW[f][c] = Gᵀ [Σ_tiles (A dY Aᵀ) ⊙ (Bᵀ X B)]
// G,
//
// the sum as (m + 2)² products  P[ξ][f][c] += Y[ξ][tile][f]ᵀ · X[ξ][tile][c]  over the tiles. The
// tiles go by in rounds: transform some, then multiply them, each of the products a piece of work
// of its own.
#pragma once
#include "ops/conv_grad_winograd.h"

namespace onnxgrad::ONNXGRAD_ISA {

template <class T, int m> class WinogradDw : public FilterGradient<T> {
 public:
  explicit WinogradDw(const ConvShape& s)
      : s_(s),
        panels_(panel_count<T>(s.channels)),
        dy_pitch_(whole_registers<T>(s.filters) + lanes<T>),
        product_pitch_(panels_ * kPanel<T>),
        grid_(s.out[0], s.out[1]),
        blocks_(grid_.blocks(s.images, kBlockTiles)) {
    const Block most = blocks_.largest();
    const Dim per_tile = kPoints * (dy_pitch_ + product_pitch_) * Dim(sizeof(T));
    blocks_together_ = clamp(kRoundBytes / per_tile, 256, 2048) / larger(most.pixels(), 1);
    blocks_together_ = even_piece(blocks_.count(), larger(blocks_together_, 1));
    round_tiles_ = blocks_together_ * most.pixels();
    dy_tiles_ = space_.shared<T>(kPoints * round_tiles_ * dy_pitch_);
    x_tiles_ = space_.shared<T>(kPoints * round_tiles_ * product_pitch_);
    products_ = space_.shared<T>(kPoints * s.filters * product_pitch_);
    strip_ = space_.scratch<T>(
        larger(strip_size<m, m, T>(most, s.filters), strip_size<m, kSide, T>(most, s.channels)),
        blocks_together_);
  }
  Dim bytes() const override { return space_.bytes(); }

  void run(Call& call, Span<const T> dy, Span<const T> x, Span<T> dw, Span<T>) override {
    space_.open();
    dy_ = dy, x_ = x, dw_ = dw;
    for (Dim first = 0; first < blocks_.count(); first += blocks_together_) {
      const Dim last = smaller(first + blocks_together_, blocks_.count());
      const Dim tiles = tile_of(first, last);
      call.parallel_for(2 * (last - first), [&](Dim i) {
        const auto strip = space_.borrow(strip_);
        const Block b = blocks_[first + i / 2];
        const Dim tile = tile_of(first, first + i / 2);
        i % 2 ? transform_x(b, tile, tiles, strip.data()) : transform_dy(b, tile, strip.data());
      });
      multiply(call, tiles, first > 0);
    }
    const Dim pieces = s_.filters * panels_;
    call.parallel_ranges(pieces, larger(ceil_div(pieces, 64), 16), [&](Dim begin, Dim end) {
      for (Dim i = begin; i < end; ++i) store_filter(i / panels_, i % panels_);
    });
  }

 private:
  static constexpr int kSide = m + 2, kPoints = kSide * kSide;
  static constexpr Dim kBlockTiles = 64;
  static constexpr Dim kRoundBytes =
      Dim(6) << 20;  // of transformed tiles: a share of the last-level cache

  // Number of tiles in blocks [first, last): where block `last` begins in the round.
  Dim tile_of(Dim first, Dim last) const {
    Dim tiles = 0;
    for (Dim b = first; b < last; ++b) tiles += blocks_[b].pixels();
    return tiles;
  }

  // Y[ξ][tile][f] = A dY Aᵀ
  void transform_dy(const Block& b, Dim first_tile, T* strip) {
    T* const tiles = space_[dy_tiles_].data() + first_tile * dy_pitch_;
    const Dim point = round_tiles_ * dy_pitch_;
    for_tiles<m, m>(b, dy_.data(), s_.filters * s_.out_size(), s_.filters, s_.out[0], s_.out[1], 0,
                    0, strip, [&](Dim tile, Dim c, const auto& patch) ONNXGRAD_LAMBDA {
                      Vec<T> v[kSide][kSide];
                      both_ways(patch, v, [](const auto& in, auto& out) ONNXGRAD_LAMBDA {
                        Winograd<m>::output_grad(in, out);
                      });
                      T* to = tiles + tile * dy_pitch_ + c;
#pragma GCC unroll 8
                      for (int i = 0; i < kSide; ++i)
#pragma GCC unroll 8
                        for (int j = 0; j < kSide; ++j)
                          store<T>(to + (i * kSide + j) * point, v[i][j]);
                    });
  }

  // X[ξ], packed for the product with `depth` tiles: [panel][tile][c] = Bᵀ X B
  void transform_x(const Block& b, Dim first_tile, Dim depth, T* strip) {
    T* const tiles = space_[x_tiles_].data() + first_tile * kPanel<T>;
    const Dim point = round_tiles_ * product_pitch_;
    for_tiles<m, kSide>(
        b, x_.data(), s_.channels * s_.in_size(), s_.channels, s_.in[0], s_.in[1], -s_.pad[0],
        -s_.pad[1], strip, [&](Dim tile, Dim c, const auto& patch) ONNXGRAD_LAMBDA {
          Vec<T> v[kSide][kSide];
          both_ways(patch, v,
                    [](const auto& in, auto& out) ONNXGRAD_LAMBDA { Winograd<m>::input(in, out); });
          T* to = tiles + c / kPanel<T> * depth * kPanel<T> + tile * kPanel<T> + c % kPanel<T>;
#pragma GCC unroll 8
          for (int i = 0; i < kSide; ++i)
#pragma GCC unroll 8
            for (int j = 0; j < kSide; ++j) store<T>(to + (i * kSide + j) * point, v[i][j]);
        });
  }

  // P[ξ] (+)= Yᵀ X for the tiles of a round.
  void multiply(Call& call, Dim tiles, bool add) {
    const Dim row_piece = even_piece(s_.filters, kRowBlock),
              row_pieces = ceil_div(s_.filters, row_piece);
    const Dim panel_piece = even_piece(panels_, 4), panel_pieces = ceil_div(panels_, panel_piece);
    call.parallel_for(kPoints * row_pieces * panel_pieces, [&](Dim i) {
      const Dim point = i / panel_pieces / row_pieces,
                row = i / panel_pieces % row_pieces * row_piece;
      const Dim panel = i % panel_pieces * panel_piece;
      const Part part{row, smaller(row + row_piece, s_.filters), panel,
                      smaller(panel + panel_piece, panels_)};
      const Columns<T> y{space_[dy_tiles_].data() + point * round_tiles_ * dy_pitch_, dy_pitch_};
      const T* x = space_[x_tiles_].data() + point * round_tiles_ * product_pitch_;
      T* p = space_[products_].data() + point * s_.filters * product_pitch_;
      add ? add_product(part, y, tiles, x, whole_registers<T>(s_.channels), p, product_pitch_)
          : set_product(part, y, tiles, x, whole_registers<T>(s_.channels), p, product_pitch_);
    });
  }

  // dW[f][c] = Gᵀ P G for the channels of one panel.
  void store_filter(Dim filter, Dim panel) {
    const T* from = space_[products_].data() + filter * product_pitch_ + panel * kPanel<T>;
    const Dim width = smaller(s_.channels - panel * kPanel<T>, kPanel<T>),
              point = s_.filters * product_pitch_;
    T taps[9 * kPanel<T>];
    for (Dim c = 0; c < width; c += lanes<T>) {
      Vec<T> p[kSide][kSide], g[3][3];
#pragma GCC unroll 8
      for (int i = 0; i < kSide; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < kSide; ++j) p[i][j] = load<T>(from + (i * kSide + j) * point + c);
      both_ways(p, g, [](const auto& in, auto& out) ONNXGRAD_LAMBDA {
        Winograd<m>::filter_grad(in, out);
      });
#pragma GCC unroll 4
      for (int i = 0; i < 3; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < 3; ++j) store<T>(taps + (3 * i + j) * kPanel<T> + c, g[i][j]);
    }
    transpose(taps, kPanel<T>, 9, width, dw_.data() + (filter * s_.channels + panel * kPanel<T>)*9,
              9);
  }

  const ConvShape& s_;
  Dim panels_, dy_pitch_, product_pitch_, blocks_together_ = 1, round_tiles_ = 0;
  TileGrid<m> grid_;
  Blocks blocks_;
  Workspace space_;
  Workspace::Shared<T> dy_tiles_{}, x_tiles_{}, products_{};
  Workspace::Scratch<T> strip_{};
  Span<const T> dy_, x_;
  Span<T> dw_;
};

}  // namespace onnxgrad::ONNXGRAD_ISA
