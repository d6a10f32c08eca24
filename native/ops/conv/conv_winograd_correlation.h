// A correlation by Winograd, which is what dX of a convolution is
// (of dY with the mirrored filters) and dX of a transposed one:
//
//   Y[n][o][q] = Σ_{i, k} X[n][i][q·step + first + k] · g[o][i][k],   q = (slab, row, column)
//
// as (m + r − 1)² products, V from X and U from g,
//
//   P[ξ][tile][o] = V[ξ][tile][(slab tap, residue, i)] · U[ξ][(slab tap, residue, i)][o]
//
// A tile's slabs lie side by side in V, so the slabs that an output reads are one row of the
// product, and each is transformed once.
#pragma once
#include "ops/conv/conv_grad_winograd.h"

namespace onnxgrad::ONNXGRAD_ISA {

struct CorrelationShape {
  Dim images, inputs, outputs;  // channels
  Dim in[3], out[3];            // slabs, rows, columns
  Dim first[3];                 // where output 0 begins to read; may lie outside
  Dim slab_taps = 1, step = 1;  // the step is that of rows and columns, which have r·step taps
  bool mirrored = false;  // along rows and columns the taps are given from the last to the first
  // A kernel of up to (2·r)² taps as four of r²:
  // their patches begin r pixels apart, and take the place of slabs.
  bool quartered = false;
  Dim residues() const { return step * step; }
  Dim in_size() const { return in[0] * in[1] * in[2]; }
  Dim out_size() const { return out[0] * out[1] * out[2]; }
};

template <class T, int m, int r> class WinogradCorrelation {
 public:
  explicit WinogradCorrelation(const CorrelationShape& s)
      : s_(s),
        panels_(panel_count<T>(s.outputs)),
        slab_pitch_(s.residues() * whole_registers<T>(s.inputs)),
        depth_(s.slab_taps * s.residues() == 1 ? s.inputs : s.slab_taps * slab_pitch_),
        slab_piece_(even_piece(s.out[0], most_slabs())),
        slab_pieces_(divide_up(s.out[0], slab_piece_)),
        x_pitch_((slab_piece_ + s.slab_taps - 1) * slab_pitch_ + lanes<T>),
        y_pitch_(panels_ * kPanel<T> + lanes<T>),
        grid_(s.out[1], s.out[2]),
        blocks_(grid_.blocks(s.images, most_tiles())) {
    filters_ = space_.shared<T>(kPoints * filter_pitch());
    apart_ = suits_apart();
    round_blocks_ = even_piece(blocks_.count(), round_bytes() / block_bytes());
    round_tiles_ = round_blocks_ * blocks_.largest().pixels();
    all_x_ = space_.shared<T>(apart_ ? kPoints * round_tiles_ * x_pitch_ : 0);
    all_products_ = space_.shared<T>(apart_ ? kPoints * s.out[0] * round_tiles_ * y_pitch_ : 0);
    Carver counter(nullptr);
    CorrelationTask(*this, counter);
    scratch_ =
        space_.scratch<char>(counter.bytes(), apart_ ? kMostCores : blocks_.count() * slab_pieces_);
  }
  Dim bytes() const { return space_.bytes(); }
  void begin_with(Span<const T> bias) { bias_ = bias; }  // one per output; empty for none

  // Two stages (conv_grad_stages.h), the filters and the tiles; not where these go in rounds.
  void begin(const T* x, T* y, Dim at) {
    space_.open(at);
    x_ = x, y_ = y;
  }
  Dim stages() const { return apart_ ? 0 : 2; }
  Dim pieces(Dim stage) const {
    return stage > 0 ? blocks_.count() * slab_pieces_
                     : divide_up(panels_ * depth_, filters_together());
  }
  // load_taps(i, slab tap, residue, panel, taps) gives taps[r·r][kPanel]: those of input i to the
  // outputs of one panel, and 0 where it has fewer.
  template <class F> void run_piece(Dim stage, Dim piece, const F& load_taps) {
    if (stage == 0) return transform_some_filters(piece, load_taps);
    const auto memory = space_.borrow(scratch_);
    Carver carver(memory.data());
    const Dim slab = piece % slab_pieces_ * slab_piece_;
    CorrelationTask(*this, carver)
        .run(blocks_[piece / slab_pieces_], slab, smaller_of(slab_piece_, s_.out[0] - slab));
  }
  template <class F> void run(Call& call, const T* x, T* y, const F& load_taps) {
    begin(x, y, 0);
    call.parallel_for(pieces(0), [&](Dim piece) { transform_some_filters(piece, load_taps); });
    for (Dim first = 0; apart_ && first < blocks_.count(); first += round_blocks_)
      run_round(call, first, smaller_of(first + round_blocks_, blocks_.count()));
    if (!apart_) call.parallel_for(pieces(1), [&](Dim piece) { run_piece(1, piece, load_taps); });
  }

 private:
  static constexpr int kSide = m + r - 1, kPoints = kSide * kSide;
  static constexpr Dim kLeastTiles = 30, kFewTiles = 18, kEnoughPieces = 48, kMostCores = 64;
  static constexpr Dim kChannelsTogether = 2 * kPanel<T>;  // of a piece of a transform
  static constexpr Dim kTaskBytes = Dim(768)
                                    << 10;  // of V and P: a share of the second-level cache
  static constexpr Dim kFewBlocks = 12;

  Vec<T> bias(Dim output) const {
    return bias_ ? load_some<T>(bias_.data() + output, smaller_of(lanes<T>, s_.outputs - output))
                 : Vec<T>{};
  }
  Dim filter_pitch() const { return packed_size<T>(depth_, s_.outputs); }

  // More slabs share the ones that they all read, as long as enough tiles fit beside them, and as
  // there are pieces enough.
  Dim most_slabs() const {
    const Dim fitting = kTaskBytes / (kLeastTiles * kPoints * slab_pitch_ * Dim(sizeof(T)));
    const TileGrid<m> grid(s_.out[1], s_.out[2]);
    const Dim blocks = divide_up(s_.images * grid.rows * grid.columns, kFewTiles);
    const Dim few = divide_up(s_.out[0], divide_up(kEnoughPieces, larger_of(blocks, 1)));
    return larger_of(smaller_of(fitting - s_.slab_taps, few), 1);
  }
  // V and P of a block should stay in the second-level cache; but each block reads all of U, which
  // pays for enough tiles only. Small inputs are cut further, for several threads.
  Dim most_tiles() const {
    const Dim per_tile = kPoints * (x_pitch_ + y_pitch_) * Dim(sizeof(T));
    const Dim total = s_.images * grid_.rows * grid_.columns * slab_pieces_;
    return larger_of(
        smaller_of(clamp(kTaskBytes / per_tile, kLeastTiles, 120), total / kEnoughPieces),
        s_.slab_taps > 1  ? kFewTiles
        : !filters_stay() ? 20
        : total <= 96     ? 8
                          : 16);
  }
  // Whether U stays in the second-level cache from block to block.
  bool filters_stay() const {
    return kPoints * filter_pitch() * Dim(sizeof(T)) <= kTaskBytes * 2 / 3;
  }

  // Few tiles and many channels: each block would read all of U for a few rows of a product, and
  // there are too few blocks for many threads. So blocks are transformed, then multiplied, then
  // transformed back, some of them together: a round.
  bool suits_apart() const {
    return !filters_stay() && !s_.quartered && s_.residues() == 1 && slab_pieces_ == 1 &&
           blocks_.count() < kFewBlocks && block_bytes() <= round_bytes();
  }
  // V and P of a round. Every round reads all of U: a large U is worth leaving the cache for.
  Dim round_bytes() const {
    return clamp(kPoints * filter_pitch() * Dim(sizeof(T)) / 4, kTaskBytes * 7 / 4, kTaskBytes * 4);
  }
  Dim block_bytes() const {
    const Dim tiles = larger_of(blocks_.largest().pixels(), 1);
    return kPoints * tiles * (x_pitch_ + s_.out[0] * y_pitch_) * Dim(sizeof(T));
  }
  void run_round(Call& call, Dim first, Dim last) {
    const Dim ins = divide_up(s_.inputs, kChannelsTogether),
              outs = divide_up(s_.outputs, kChannelsTogether), slabs = s_.out[0];
    T *const all_x = space_[all_x_].data(), *const all_products = space_[all_products_].data();
    Dim tiles = 0;
    for (Dim b = first; b < last; ++b) tiles += blocks_[b].pixels();
    // body(task, block, slab, first channel) for each of them
    const auto each = [&](Dim slab_count, Dim groups, auto&& body) {
      call.parallel_for((last - first) * slab_count * groups, [&](Dim index) {
        const auto memory = space_.borrow(scratch_);
        Carver carver(memory.data());
        CorrelationTask task(*this, carver);
        const Dim block = first + index / groups / slab_count, slab = index / groups % slab_count;
        Dim before = 0;
        for (Dim b = first; b < block; ++b) before += blocks_[b].pixels();
        task.take_tiles(all_x + before * x_pitch_,
                        all_products + (smaller_of(slab, slabs - 1) * tiles + before) * y_pitch_,
                        tiles, slabs * tiles);
        body(task, blocks_[block], slab, index % groups * kChannelsTogether);
      });
    };
    each(slabs + s_.slab_taps - 1, ins,
         [&](CorrelationTask& task, const PixelBlock& b, Dim slab, Dim channel) {
           task.transform_x(b, slab + s_.first[0], slab, 0, 0, channel,
                            smaller_of(kChannelsTogether, s_.inputs - channel));
         });
    const Dim panels = even_piece(panels_, larger_of(panels_ / 4, 1)),
              pieces = divide_up(panels_, panels);
    call.parallel_for(kPoints * slabs * pieces, [&](Dim index) {
      const Dim point = index / pieces / slabs, slab = index / pieces % slabs,
                panel = index % pieces * panels;
      set_product(Part{0, tiles, panel, smaller_of(panel + panels, panels_)},
                  Rows<T>{all_x + point * tiles * x_pitch_ + slab * slab_pitch_, x_pitch_}, depth_,
                  space_[filters_].data() + point * filter_pitch(), whole_registers<T>(s_.outputs),
                  all_products + (point * slabs + slab) * tiles * y_pitch_, y_pitch_);
    });
    each(slabs, outs, [&](CorrelationTask& task, const PixelBlock& b, Dim slab, Dim channel) {
      for (Dim n = 0; n < b.images; ++n)
        task.store_image(b, n, slab, channel, smaller_of(kChannelsTogether, s_.outputs - channel));
    });
  }

  Dim filters_together() const { return larger_of(divide_up(panels_ * depth_, 64), 4); }
  template <class F> void transform_some_filters(Dim piece, const F& load_taps) {
    const Dim begin = piece * filters_together(),
              end = smaller_of(begin + filters_together(), panels_ * depth_);
    for (Dim i = begin; i < end; ++i) transform_filters(i / depth_, i % depth_, load_taps);
  }

  // U[ξ][panel][k][o] = G g Gᵀ,  k = (slab tap, residue, input)
  template <class F> void transform_filters(Dim panel, Dim k, const F& load_taps) {
    const Dim pitch = filter_pitch(), channels = slab_pitch_ / s_.residues();
    T taps[r * r * kPanel<T>];
    if (depth_ == s_.inputs)
      load_taps(k, Dim(0), Dim(0), panel, taps);
    else if (k % channels < s_.inputs)
      load_taps(k % channels, k / slab_pitch_, k % slab_pitch_ / channels, panel, taps);
    else
      std::fill(taps, taps + r * r * kPanel<T>, T(0));
    const T* first = s_.mirrored ? taps + (r * r - 1) * kPanel<T> : taps;
    const Dim step = s_.mirrored ? -kPanel<T> : kPanel<T>;
    T* to = space_[filters_].data() + (panel * depth_ + k) * kPanel<T>;
    for (Dim c = 0; c < kPanel<T>; c += lanes<T>) {
      Vec<T> g[r][r], u[kSide][kSide];
#pragma GCC unroll 4
      for (int i = 0; i < r; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < r; ++j) g[i][j] = load<T>(first + (r * i + j) * step + c);
      both_ways(g, u,
                [](const auto& in, auto& out) ONNXGRAD_LAMBDA { Winograd<m, r>::filter(in, out); });
#pragma GCC unroll 8
      for (int i = 0; i < kSide; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < kSide; ++j) store<T>(to + (i * kSide + j) * pitch + c, u[i][j]);
    }
  }

  class CorrelationTask {
   public:
    CorrelationTask(WinogradCorrelation& all, Carver& carver) : all_(all) {
      const PixelBlock most = all.blocks_.largest();
      const Dim strip = strip_size<m, kSide, T>(most, all.s_.inputs, all.s_.step);
      const Dim result = most.size[1] * m * most.size[2] * m * whole_registers<T>(all.s_.outputs);
      strip_ = carver.take<T>(larger_of(strip, result));
      if (all.apart_) return;
      x_ = carver.take<T>(kPoints * most.pixels() * all.x_pitch_);
      products_ = carver.take<T>(kPoints * most.pixels() * all.y_pitch_);
    }
    // Where V and P of the block's tiles lie, and how many rows lie between two points of each.
    void take_tiles(T* x, T* products, Dim x_rows, Dim product_rows) {
      x_ = x, products_ = products, x_rows_ = x_rows, product_rows_ = product_rows;
    }

    // The tiles of one block in slabs [slab, slab + slabs).
    void run(const PixelBlock& b, Dim slab, Dim slabs) {
      const CorrelationShape& s = all_.s_;
      const Dim tiles = b.pixels(), pitch = all_.filter_pitch();
      take_tiles(x_, products_, tiles, tiles);
      for (Dim i = 0; i < slabs + s.slab_taps - 1; ++i)
        s.quartered ? transform_x(b, 0, i, i / 2 * r, i % 2 * r, 0, s.inputs)
                    : transform_x(b, slab + i + s.first[0], i, 0, 0, 0, s.inputs);
      for (Dim d = 0; d < slabs; ++d) {
        for (Dim point = 0; point < kPoints; ++point)
          set_product(
              Part{0, tiles, 0, all_.panels_},
              Rows<T>{x_ + point * tiles * all_.x_pitch_ + d * all_.slab_pitch_, all_.x_pitch_},
              all_.depth_, all_.space_[all_.filters_].data() + point * pitch,
              whole_registers<T>(s.outputs), products_ + point * tiles * all_.y_pitch_,
              all_.y_pitch_);
        for (Dim n = 0; n < b.images; ++n) store_image(b, n, slab + d, 0, s.outputs);
      }
    }

    // V[ξ][tile][(place, residue, i)] = Bᵀ X B for one slab of X, which may lie outside, and inputs
    // [channel, channel + count); patches begin (down, right) later.
    void transform_x(const PixelBlock& b, Dim slab, Dim place, Dim down, Dim right, Dim channel,
                     Dim count) {
      const CorrelationShape& s = all_.s_;
      const Dim point = x_rows_ * all_.x_pitch_, plane = s.in[1] * s.in[2];
      const bool outside = slab < 0 || slab >= s.in[0];
      const SlabPlanes<T> planes{all_.x_ + channel * s.in_size() + (outside ? 0 : slab * plane),
                                 s.inputs * s.in_size(),
                                 s.in_size(),
                                 count,
                                 outside ? 0 : s.in[1],
                                 s.in[2]};
      T* const v = x_ + place * all_.slab_pitch_ + channel;
      for_tiles<m, kSide>(b, planes, PatchGrid{s.first[1] + down, s.first[2] + right, s.step},
                          strip_, [&](Dim tile, Dim c, const auto& patch) ONNXGRAD_LAMBDA {
                            Vec<T> transformed[kSide][kSide];
                            both_ways(patch, transformed,
                                      [](const auto& in, auto& out)
                                          ONNXGRAD_LAMBDA { Winograd<m, r>::input(in, out); });
                            T* to = v + tile * all_.x_pitch_ + c;
#pragma GCC unroll 8
                            for (int i = 0; i < kSide; ++i)
#pragma GCC unroll 8
                              for (int j = 0; j < kSide; ++j)
                                store<T>(to + (i * kSide + j) * point, transformed[i][j]);
                          });
    }

    // Y = Aᵀ P A for the tiles of image n of the block, in one slab, and outputs
    // [channel, channel + count).
    void store_image(const PixelBlock& b, Dim n, Dim slab, Dim channel, Dim count) {
      const CorrelationShape& s = all_.s_;
      const Dim width = b.size[2] * m, pitch = whole_registers<T>(count),
                point = product_rows_ * all_.y_pitch_;
      for (Dim ty = 0; ty < b.size[1]; ++ty)
        for (Dim tx = 0; tx < b.size[2]; ++tx) {
          const T* from =
              products_ + ((n * b.size[1] + ty) * b.size[2] + tx) * all_.y_pitch_ + channel;
          T* to = strip_ + (ty * m * width + tx * m) * pitch;
          for (Dim c = 0; c < pitch; c += lanes<T>) {
            Vec<T> p[kSide][kSide], y[m][m];
#pragma GCC unroll 8
            for (int i = 0; i < kSide; ++i)
#pragma GCC unroll 8
              for (int j = 0; j < kSide; ++j) p[i][j] = load<T>(from + (i * kSide + j) * point + c);
            both_ways(p, y, [](const auto& in, auto& out) ONNXGRAD_LAMBDA {
              Winograd<m, r>::output(in, out);
            });
            const Vec<T> bias = all_.bias(channel + c);
#pragma GCC unroll 8
            for (int i = 0; i < m; ++i)
#pragma GCC unroll 8
              for (int j = 0; j < m; ++j)
                store<T>(to + (i * width + j) * pitch + c, y[i][j] + bias);
          }
        }
      const Dim top = b.at[1] * m, left = b.at[2] * m,
                rows = smaller_of(b.size[1] * m, s.out[1] - top);
      const Dim columns = smaller_of(width, s.out[2] - left);
      T* const image = all_.y_ + ((b.image + n) * s.outputs + channel) * s.out_size() + left;
      for (Dim y = 0; y < rows; ++y)
        transpose(strip_ + y * width * pitch, pitch, columns, count,
                  image + (slab * s.out[1] + top + y) * s.out[2], s.out_size());
    }

   private:
    WinogradCorrelation& all_;
    T *strip_, *x_ = nullptr, *products_ = nullptr;
    Dim x_rows_ = 0, product_rows_ = 0;
  };

  const CorrelationShape s_;
  Dim panels_, slab_pitch_, depth_, slab_piece_, slab_pieces_, x_pitch_, y_pitch_;
  TileGrid<m> grid_;
  PixelBlocks blocks_;
  bool apart_ = false;  // in rounds of transforms, products and transforms back
  Dim round_blocks_ = 1, round_tiles_ = 0;
  Workspace space_;
  Workspace::Shared<T> filters_{}, all_x_{}, all_products_{};
  Workspace::Scratch<char> scratch_{};
  Span<const T> bias_;
  const T* x_ = nullptr;
  T* y_ = nullptr;
};

}  // namespace onnxgrad::ONNXGRAD_ISA
