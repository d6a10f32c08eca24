// dW of a 3×3 (or d×3×3) convolution with stride 1, or a 4×4 one with stride 2, by Winograd:
//
//   dW[f][(k, residue, c)] = Gᵀ [Σ_tiles (A dY Aᵀ) ⊙ (Bᵀ X B)] G      k: tap along the slabs
//
// the sum as (m + r − 1)² products over the tiles,
//
//   P[ξ][k][f][(residue, c)] += Y[ξ][tile][f]ᵀ · X[ξ][tile + k slabs][(residue, c)]
//
// The tiles go by in rounds: transform some, then multiply them,
// each of the products a piece of work of its own.
#pragma once
#include "ops/conv/conv_grad_winograd.h"

namespace onnxgrad::ONNXGRAD_ISA {

template <class T, int m, int r = 3> class WinogradDw : public FilterGradient<T> {
 public:
  explicit WinogradDw(const ConvShape& s)
      : s_(s),
        g_(s),
        residues_(g_.stride[2] * g_.stride[2]),
        columns_(residues_ == 1 ? s.channels : residues_ * whole_registers<T>(s.channels)),
        panels_(panel_count<T>(columns_)),
        dy_pitch_(whole_registers<T>(s.filters) + lanes<T>),
        product_pitch_(panels_ * kPanel<T>),
        slab_piece_(even_piece(g_.out[0], most_slabs())),
        slab_pieces_(divide_up(g_.out[0], slab_piece_)),
        grid_(g_.out[1], g_.out[2]),
        blocks_(
            grid_.blocks(s.images, clamp(s.images * grid_.rows * grid_.columns * slab_pieces_ / 8,
                                         kLeastTiles, kBlockTiles))) {
    const PixelBlock most = blocks_.largest();
    blocks_together_ =
        clamp(kRoundBytes / tile_bytes(), 256, 2048) / larger_of(slab_piece_ * most.pixels(), 1);
    blocks_together_ = even_piece(blocks_.count(), larger_of(blocks_together_, 1));
    round_dy_ = blocks_together_ * most.pixels() * slab_piece_;
    round_x_ = blocks_together_ * most.pixels() * (slab_piece_ + g_.kernel[0] - 1);
    dy_tiles_ = space_.shared<T>(kPoints * round_dy_ * dy_pitch_);
    x_tiles_ = space_.shared<T>(kPoints * round_x_ * product_pitch_);
    has_totals_ = rounds() > kRoundsTogether;
    const Dim products = kPoints * g_.kernel[0] * s.filters * product_pitch_;
    products_ = space_.shared<T>(products);
    totals_ = space_.shared<T>(has_totals_ ? products : 0);
    strip_ = space_.scratch<T>(larger_of(strip_size<m, m, T>(most, s.filters, 1),
                                         strip_size<m, kSide, T>(most, s.channels, g_.stride[2])),
                               kMostCores);
  }
  Dim bytes() const override { return space_.bytes(); }

  void begin(Span<const T> dy, Span<const T> x, Span<T> dw, Span<T>, Dim at) override {
    space_.open(at);
    dy_ = dy, x_ = x, dw_ = dw;
  }
  // Three of each round (the third one now and then), and one at the end.
  Dim stages() const override { return 3 * rounds() + 1; }
  Dim pieces(Dim stage) const override {
    const Dim i = stage / 3;
    if (i == rounds()) return divide_up(stored(), stored_together());
    if (stage % 3 == 0) return transform_pieces(round_of(i));
    if (stage % 3 == 1) return kPoints * g_.kernel[0] * row_pieces() * panel_pieces();
    const bool due =
        has_totals_ && (i % kRoundsTogether == kRoundsTogether - 1 || i == rounds() - 1);
    return due ? divide_up(totals_.size, kTotalsTogether) : 0;
  }
  void run_piece(Dim stage, Dim piece) override {
    const Dim i = stage / 3;
    if (i == rounds()) return store_filters(piece);
    if (stage % 3 == 0) return transform(round_of(i), piece);
    if (stage % 3 == 1) return multiply(round_of(i), piece, i % kRoundsTogether > 0);
    add_to_totals(piece, i >= kRoundsTogether);
  }

 private:
  static constexpr int kSide = m + r - 1, kPoints = kSide * kSide;
  static constexpr Dim kLeastTiles = 16, kBlockTiles = 64, kRoundsTogether = 8, kEnoughBlocks = 32,
                       kMostCores = 64, kFewRows = 48, kTotalsTogether = 16384;
  static constexpr Dim kRoundBytes =
      Dim(6) << 20;  // of transformed tiles: a share of the last-level cache

  Dim tile_bytes() const { return kPoints * (dy_pitch_ + product_pitch_) * Dim(sizeof(T)); }
  // Slabs share those of X that they all read, as far as a block of them fits into a round.
  Dim most_slabs() const { return clamp(kRoundBytes / (kBlockTiles * tile_bytes()), 2, 16); }

  // Blocks [first, last) of tiles in slabs [slab, slab + slabs) of dY, and in the slabs of X that
  // these read: one more for each further tap along the slabs.
  struct Round {
    Dim first, last, slab, slabs;
  };
  Dim x_slabs(const Round& round) const { return round.slabs + g_.kernel[0] - 1; }
  Dim rounds() const { return divide_up(blocks_.count(), blocks_together_) * slab_pieces_; }
  Round round_of(Dim i) const {
    const Dim first = i / slab_pieces_ * blocks_together_, slab = i % slab_pieces_ * slab_piece_;
    return {first, smaller_of(first + blocks_together_, blocks_.count()), slab,
            smaller_of(slab_piece_, g_.out[0] - slab)};
  }
  // Tiles of one slab in the blocks of a round before block `last`.
  Dim tiles_before(const Round& round, Dim last) const {
    Dim tiles = 0;
    for (Dim b = round.first; b < last; ++b) tiles += blocks_[b].pixels();
    return tiles;
  }

  // Tiles lie in the order [block][image][slab][tile]: a slab further is a fixed distance away.
  Dim transform_pieces(const Round& round) const {
    return (round.slabs + x_slabs(round)) * (round.last - round.first) *
           divide_up(most_channels(), channels_together());
  }
  void transform(const Round& round, Dim i) {
    const Dim slabs = round.slabs + x_slabs(round), group = channels_together(),
              groups = divide_up(most_channels(), group);
    const auto strip = space_.borrow(strip_);
    const Dim block = round.first + i / groups / slabs, slab = i / groups % slabs - round.slabs,
              first = i % groups * group;
    if (slab < 0 && first < s_.filters)
      transform_dy(round, block, slab + round.slabs, first, smaller_of(group, s_.filters - first),
                   strip.data());
    if (slab >= 0 && first < s_.channels)
      transform_x(round, block, slab, first, smaller_of(group, s_.channels - first), strip.data());
  }
  Dim most_channels() const { return larger_of(s_.filters, s_.channels); }

  // Channels of a piece of a transform: all, where a round has blocks enough for many threads.
  Dim channels_together() const {
    return residues_ == 1 && blocks_together_ < kEnoughBlocks ? kPanel<T>
                                                              : larger_of(most_channels(), 1);
  }

  // Y[ξ][tile][f] = A dY Aᵀ for filters [first, first + count)
  void transform_dy(const Round& round, Dim block, Dim slab, Dim first, Dim count, T* strip) {
    const PixelBlock b = blocks_[block];
    const Dim plane = g_.out[1] * g_.out[2], each = b.size[1] * b.size[2];
    const SlabPlanes<T> planes{dy_.data() + first * s_.out_size() + (round.slab + slab) * plane,
                               s_.filters * s_.out_size(),
                               s_.out_size(),
                               count,
                               g_.out[1],
                               g_.out[2]};
    T* const tiles = space_[dy_tiles_].data() +
                     (tiles_before(round, block) * round.slabs + slab * each) * dy_pitch_ + first;
    const Dim point = round_dy_ * dy_pitch_, image = each * (round.slabs - 1);
    for_tiles<m, m>(b, planes, PatchGrid{0, 0, 1}, strip,
                    [&](Dim tile, Dim c, const auto& patch) ONNXGRAD_LAMBDA {
                      Vec<T> v[kSide][kSide];
                      both_ways(patch, v, [](const auto& in, auto& out) ONNXGRAD_LAMBDA {
                        Winograd<m, r>::output_grad(in, out);
                      });
                      T* to = tiles + (tile + (image ? tile / each * image : 0)) * dy_pitch_ + c;
#pragma GCC unroll 8
                      for (int i = 0; i < kSide; ++i)
#pragma GCC unroll 8
                        for (int j = 0; j < kSide; ++j)
                          store<T>(to + (i * kSide + j) * point, v[i][j]);
                    });
  }

  // X[ξ] in panels: [panel][tile][(residue, c)] = Bᵀ X B for one slab, which may lie outside, and
  // channels [first, first + count), first a multiple of a panel.
  void transform_x(const Round& round, Dim block, Dim slab, Dim first, Dim count, T* strip) {
    const PixelBlock b = blocks_[block];
    const Dim plane = g_.in[1] * g_.in[2], each = b.size[1] * b.size[2],
              in_slab = round.slab + slab - g_.pad[0];
    const bool outside = in_slab < 0 || in_slab >= g_.in[0];
    const SlabPlanes<T> planes{x_.data() + first * s_.in_size() + (outside ? 0 : in_slab * plane),
                               s_.channels * s_.in_size(),
                               s_.in_size(),
                               count,
                               outside ? 0 : g_.in[1],
                               g_.in[2]};
    T* const tiles = space_[x_tiles_].data() +
                     (first * round_x_ +
                      (tiles_before(round, block) * x_slabs(round) + slab * each) * kPanel<T>);
    const Dim point = round_x_ * product_pitch_, image = each * (x_slabs(round) - 1);
    for_tiles<m, kSide>(b, planes, PatchGrid{-g_.pad[1], -g_.pad[2], g_.stride[2]}, strip,
                        [&](Dim tile, Dim c, const auto& patch) ONNXGRAD_LAMBDA {
                          Vec<T> v[kSide][kSide];
                          both_ways(patch, v, [](const auto& in, auto& out) ONNXGRAD_LAMBDA {
                            Winograd<m, r>::input(in, out);
                          });
                          T* to = tiles + (tile + (image ? tile / each * image : 0)) * kPanel<T> +
                                  c / kPanel<T> * round_x_ * kPanel<T> + c % kPanel<T>;
#pragma GCC unroll 8
                          for (int i = 0; i < kSide; ++i)
#pragma GCC unroll 8
                            for (int j = 0; j < kSide; ++j)
                              store<T>(to + (i * kSide + j) * point, v[i][j]);
                        });
  }

  // P[ξ][k] (+)= Yᵀ X for the tiles of a round.
  Dim row_piece() const { return even_piece(s_.filters, panels_ > 4 ? kRowBlock : kFewRows); }
  Dim row_pieces() const { return divide_up(s_.filters, row_piece()); }
  Dim panel_piece() const { return even_piece(panels_, 4); }
  Dim panel_pieces() const { return divide_up(panels_, panel_piece()); }
  void multiply(const Round& round, Dim i, bool add) {
    const Dim product = i / panel_pieces() / row_pieces(),
              row = i / panel_pieces() % row_pieces() * row_piece();
    const Dim panel = i % panel_pieces() * panel_piece();
    const Part part{row, smaller_of(row + row_piece(), s_.filters), panel,
                    smaller_of(panel + panel_piece(), panels_)};
    for_runs_of_tiles(round, [&](Dim dy_tile, Dim x_tile, Dim tiles, Dim each) {
      add_tiles(product / g_.kernel[0], product % g_.kernel[0], part, dy_tile,
                x_tile + product % g_.kernel[0] * each, tiles, add);
      add = true;
    });
  }

  // body(first tile of dY, first of X, how many, tiles per slab) for each run of tiles whose places
  // in dY and X correspond: one image's, or all where X has no further slabs.
  template <class F> void for_runs_of_tiles(const Round& round, F&& body) const {
    if (g_.kernel[0] == 1 && round.slabs == 1)
      return body(Dim(0), Dim(0), tiles_before(round, round.last), Dim(0));
    Dim dy = 0, x = 0;
    for (Dim block = round.first; block < round.last; ++block) {
      const PixelBlock b = blocks_[block];
      const Dim each = b.size[1] * b.size[2];
      for (Dim n = 0; n < b.images; ++n, dy += each * round.slabs, x += each * x_slabs(round))
        body(dy, x, each * round.slabs, each);
    }
  }

  // One block of depth after the other, in which
  // the tiles of dY stay in the cache from panel to panel.
  void add_tiles(Dim point, Dim k, const Part& part, Dim dy_tile, Dim x_tile, Dim tiles, bool add) {
    const T* y = space_[dy_tiles_].data() + (point * round_dy_ + dy_tile) * dy_pitch_;
    const T* x = space_[x_tiles_].data() + point * round_x_ * product_pitch_ + x_tile * kPanel<T>;
    T* p = space_[products_].data() + (point * g_.kernel[0] + k) * s_.filters * product_pitch_;
    for (Dim tile = 0; tile < tiles; tile += kDepthBlock<T>)
      for (Dim panel = part.panel; panel < part.panel_end; ++panel) {
        const Part one{part.row, part.row_end, 0, 1};
        const Columns<T> rows{y + tile * dy_pitch_, dy_pitch_};
        const T* packed = x + (panel * round_x_ + tile) * kPanel<T>;
        const Dim depth = smaller_of(tiles - tile, kDepthBlock<T>),
                  width = smaller_of(whole_registers<T>(columns_) - panel * kPanel<T>, kPanel<T>);
        T* to = p + panel * kPanel<T>;
        add || tile > 0 ? add_product(one, rows, depth, packed, width, to, product_pitch_)
                        : set_product(one, rows, depth, packed, width, to, product_pitch_);
      }
  }

  // Sums of sums: the error of a long sum grows with the root of a few rounds, not of all.
  void add_to_totals(Dim piece, bool add) {
    const T* from = space_[products_].data();
    const Span<T> totals = space_[totals_];
    const Dim begin = piece * kTotalsTogether,
              end = smaller_of(begin + kTotalsTogether, totals.size());
    for (Dim i = begin; i < end; ++i) totals[i] = add ? totals[i] + from[i] : from[i];
  }

  Dim stored() const { return s_.filters * panels_ * g_.kernel[0]; }
  Dim stored_together() const { return larger_of(divide_up(stored(), 64), 4); }
  void store_filters(Dim piece) {
    const Dim begin = piece * stored_together(),
              end = smaller_of(begin + stored_together(), stored());
    for (Dim i = begin; i < end; ++i)
      store_filter(i / panels_ / g_.kernel[0], i / panels_ % g_.kernel[0], i % panels_);
  }

  // dW[f][(k, residue, c)] = Gᵀ P G for the columns of one panel.
  void store_filter(Dim filter, Dim k, Dim panel) {
    const Dim point = g_.kernel[0] * s_.filters * product_pitch_, first = panel * kPanel<T>,
              width = smaller_of(columns_ - first, kPanel<T>);
    const T* from = space_[has_totals_ ? totals_ : products_].data() +
                    (k * s_.filters + filter) * product_pitch_ + first;
    T taps[r * r * kPanel<T>];
    for (Dim c = 0; c < width; c += lanes<T>) {
      Vec<T> p[kSide][kSide], g[r][r];
#pragma GCC unroll 8
      for (int i = 0; i < kSide; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < kSide; ++j) p[i][j] = load<T>(from + (i * kSide + j) * point + c);
      both_ways(p, g, [](const auto& in, auto& out) ONNXGRAD_LAMBDA {
        Winograd<m, r>::filter_grad(in, out);
      });
#pragma GCC unroll 4
      for (int i = 0; i < r; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < r; ++j) store<T>(taps + (r * i + j) * kPanel<T> + c, g[i][j]);
    }
    if (residues_ == 1 && g_.kernel[0] == 1)
      return transpose_rows<r * r>(taps, kPanel<T>, width,
                                   dw_.data() + (filter * s_.channels + first) * r * r);
    for (Dim c = 0; c < width; c += lanes<T>) store_apart(filter, k, first + c, taps + c);
  }

  // One register of columns (residue, channel), from column c on, whose taps are not all of the
  // kernel's: tap j of residue p is tap j·step + p.
  void store_apart(Dim filter, Dim k, Dim c, const T* taps) const {
    const Dim per_residue = columns_ / residues_, step = g_.stride[2], residue = c / per_residue;
    const Dim channel = c % per_residue, width = smaller_of(s_.channels - channel, lanes<T>);
    const Dim all = s_.taps(), slab = all / g_.kernel[0];
    T* to = dw_.data() + (filter * s_.channels + channel) * all + k * slab +
            residue / step * r * step + residue % step;
    for (Dim i = 0; i < width; ++i, to += all)
      for (Dim tap = 0; tap < r * r; ++tap)
        to[(tap / r * r * step + tap % r) * step] = taps[tap * kPanel<T> + i];
  }

  const ConvShape& s_;
  Geometry g_;
  Dim residues_, columns_, panels_, dy_pitch_, product_pitch_, slab_piece_, slab_pieces_;
  Dim blocks_together_ = 1, round_dy_ = 0, round_x_ = 0;  // of a round: blocks, tiles
  bool has_totals_ = false;
  TileGrid<m> grid_;
  PixelBlocks blocks_;
  Workspace space_;
  Workspace::Shared<T> dy_tiles_{}, x_tiles_{}, products_{}, totals_{};
  Workspace::Scratch<T> strip_{};
  Span<const T> dy_, x_;
  Span<T> dw_;
};

}  // namespace onnxgrad::ONNXGRAD_ISA
