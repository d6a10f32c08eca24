// One filter per channel and stride 1, in registers of channels: lanes<T> planes lie side by side,
// pixel by pixel, and a tap is a register of their weights. A narrow plane fills its registers as
// well as a wide one, and as many sums as registers wait for nothing.
//
//   dX[y][x] = Σ_{i, j} W[mirrored (i, j)] · dY[y + i·dilation + first][x + j·dilation + first],
//   first = pad − (kernel − 1)·dilation;  not mirrored where the convolution is turned around
//   dW[i][j] = Σ_{y, x} dY[y][x] · X[y + i·dilation − pad][x + j·dilation − pad]
#pragma once
#include <utility>

#include "core/transpose.h"
#include "ops/conv/conv_grad_blocks.h"

namespace onnxgrad::ONNXGRAD_ISA {

// Two dims of a correlation with stride 1: `over` is gone through, and `from` read at
// over + tap·dilation + first. Rows of `over` are taken some at a time, with what they read in a
// box.
template <class T> struct LaneWindow {
  Dim from[2], over[2], first[2], halo[2];

  static constexpr Dim kBoxBytes = Dim(192) << 10;  // of the second-level cache

  Dim width() const { return over[1] + halo[1]; }
  Dim box_row() const { return width() * lanes<T>; }
  Dim box_size(Dim rows) const { return (rows + halo[0]) * box_row(); }
  // Pixels that `rows` of them go over, or read, whichever are more.
  Dim pixels(Dim rows) const {
    return larger_of(smaller_of(rows + halo[0], from[0]) * from[1], rows * over[1]);
  }
  Dim fitting_rows() const {
    return kBoxBytes / larger_of(box_row() * Dim(sizeof(T)), 1) - halo[0];
  }

  // What `rows` from `top` on read of `count` planes, pixel by pixel, with zeros around it.
  void load_box(const T* planes, Dim count, Dim top, Dim rows, T* pixels, T* box) const {
    const Dim begin = clamp(top + first[0], 0, from[0]),
              end = clamp(top + first[0] + rows + halo[0], begin, from[0]);
    transpose(planes + begin * from[1], from[0] * from[1], count, (end - begin) * from[1], pixels,
              lanes<T>);
    const Dim left = clamp(-first[1], 0, width()), right = clamp(from[1] - first[1], left, width());
    for (Dim i = 0; i < rows + halo[0]; ++i, box += box_row()) {
      const Dim row = top + first[0] + i;
      if (row < begin || row >= end || left == right) {
        std::fill_n(box, box_row(), T(0));
        continue;
      }
      const T* pixel = pixels + ((row - begin) * from[1] + left + first[1]) * lanes<T>;
      std::fill_n(box, left * lanes<T>, T(0));
      std::copy_n(pixel, (right - left) * lanes<T>, box + left * lanes<T>);
      std::fill_n(box + right * lanes<T>, (width() - right) * lanes<T>, T(0));
    }
  }

  // From so many taps on they pay for turning the planes of X, dY or dX.
  static constexpr Dim kLeastTaps = 16;
  // Whether planes in groups of one channel and one filter fill at least half of their registers.
  static bool suits(const ConvShape& s) {
    const Geometry g(s);
    for (int a = 0; a < 3; ++a)
      if (g.stride[a] != 1 || g.step[a] != 1) return false;
    return s.rank() <= 2 && is_depthwise(s, 1) && s.taps() >= kLeastTaps &&
           2 * s.groups >= divide_up(s.groups, lanes<T>) * lanes<T>;
  }
  bool fits() const { return fitting_rows() >= smaller_of(over[0], 8); }
};

template <class T> class DepthwiseLanesDx : public InputGradient<T> {
 public:
  explicit DepthwiseLanesDx(const ConvShape& s) : s_(s), g_(s), window_(window(s)) {
    blocks_ = divide_up(s.groups, lanes<T>);
    const Dim wanted = divide_up(kPieces, larger_of(1, s.images * blocks_));
    const Dim most = larger_of(kLeastRows, window_.fitting_rows());
    rows_ = finer_piece(g_.in[1], kLeastRows, most, wanted);
    cuts_ = divide_up(g_.in[1], rows_);
    Carver counter(nullptr);
    carve(counter);
    scratch_ = space_.template scratch<char>(counter.bytes(), pieces(0));
  }
  static bool suits(const ConvShape& s) { return LaneWindow<T>::suits(s) && window(s).fits(); }

  Dim bytes() const override { return space_.bytes(); }
  Dim stages() const override { return 1; }
  Dim pieces(Dim) const override { return s_.images * blocks_ * cuts_; }
  void begin(Span<const T> dy, Span<const T> w, Span<T> dx, Dim at) override {
    dy_ = dy, w_ = w, dx_ = dx;
    space_.open(at);
  }

  // Some rows of lanes<T> planes of an image.
  void run_piece(Dim, Dim piece) override {
    const auto memory = space_.borrow(scratch_);
    Carver carver(memory.data());
    const LanesDxMemory m = carve(carver);
    const Dim top = piece % cuts_ * rows_, rows = smaller_of(rows_, g_.in[1] - top);
    const Dim channel = piece / cuts_ % blocks_ * lanes<T>, image = piece / cuts_ / blocks_;
    const Dim count = smaller_of(lanes<T>, s_.groups - channel);
    const Dim plane = image * s_.groups + channel;
    if (count < lanes<T>) std::fill_n(m.pixels, window_.pixels(rows_) * lanes<T>, T(0));
    load_taps(channel, count, m.taps);
    window_.load_box(dy_.data() + plane * s_.out_size(), count, top, rows, m.pixels, m.box);
    set_rows(rows, this->bias(channel, count), m);
    transpose(m.pixels, lanes<T>, rows * g_.in[2], count,
              dx_.data() + plane * s_.in_size() + top * g_.in[2], s_.in_size());
  }

 private:
  static constexpr Dim kPieces = 32, kLeastRows = 16;
  static constexpr int kTile = 12;  // pixels whose sums are in registers

  static LaneWindow<T> window(const ConvShape& s) {
    const Geometry g(s);
    LaneWindow<T> w;
    for (int a = 0; a < 2; ++a) {
      w.halo[a] = (g.kernel[a + 1] - 1) * g.dilation[a + 1];
      w.from[a] = g.out[a + 1], w.over[a] = g.in[a + 1], w.first[a] = g.pad[a + 1] - w.halo[a];
    }
    return w;
  }

  struct LanesDxMemory {
    T *box, *pixels, *taps;
  };
  LanesDxMemory carve(Carver& carver) const {
    return {carver.take<T>(window_.box_size(rows_)),
            carver.take<T>(window_.pixels(rows_) * lanes<T>), carver.take<T>(s_.taps() * lanes<T>)};
  }

  // taps[tap][lane], in the order in which they are read.
  void load_taps(Dim channel, Dim count, T* taps) const {
    const Dim all = s_.taps();
    for (Dim t = 0; t < all; ++t)
      for (Dim c = 0; c < lanes<T>; ++c)
        taps[t * lanes<T> + c] =
            c < count ? w_[(channel + c) * all + (s_.turned ? t : all - 1 - t)] : T(0);
  }

  void set_rows(Dim rows, Vec<T> bias, const LanesDxMemory& m) const {
    const Dim taps = g_.dilation[2] == 1 ? g_.kernel[2] : 0;
    for (Dim y = 0; y < rows; ++y)
      for_row_tiles<kTile>(0, g_.in[2], [&](Dim x, Dim wide) {
        const auto tiles = std::make_integer_sequence<int, kTile>();
        const Tile tile = taps == 3   ? tile_of<3>(wide, tiles)
                          : taps == 5 ? tile_of<5>(wide, tiles)
                          : taps == 7 ? tile_of<7>(wide, tiles)
                                      : tile_of<0>(wide, tiles);
        tile(g_, m.box + y * window_.box_row() + x * lanes<T>, window_.box_row(), m.taps, bias,
             m.pixels + (y * g_.in[2] + x) * lanes<T>);
      });
  }

  // R neighbours of a row: sums[r] = bias + Σ_tap taps · box[r + tap]. K taps along a row,
  // neighbours: each pixel is loaded once for all of them; 0: any.
  template <int K, int R> static void set_pixels(const Geometry& g, const T* box, Dim box_row,
                                                 const T* taps, Vec<T> bias, T* out) {
    Vec<T> sum[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) sum[r] = bias;
    for (Dim i = 0; i < g.kernel[1]; ++i, taps += g.kernel[2] * lanes<T>)
      add_row<K>(g, box + i * g.dilation[1] * box_row, taps, sum);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) store<T>(out + r * lanes<T>, sum[r]);
  }
  template <int K, int R> ONNXGRAD_INLINE static void add_row(const Geometry& g, const T* from,
                                                              const T* taps, Vec<T> (&sum)[R]) {
    if constexpr (K == 0) {
      for (Dim j = 0; j < g.kernel[2]; ++j, from += g.dilation[2] * lanes<T>) {
        const Vec<T> factor = load<T>(taps + j * lanes<T>);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) sum[r] = fma(factor, load<T>(from + r * lanes<T>), sum[r]);
      }
    } else {
      Vec<T> factor[K];
#pragma GCC unroll 8
      for (int j = 0; j < K; ++j) factor[j] = load<T>(taps + j * lanes<T>);
#pragma GCC unroll 24
      for (int t = 0; t < R + K - 1; ++t) {
        const Vec<T> pixel = load<T>(from + t * lanes<T>);
#pragma GCC unroll 8
        for (int j = 0; j < K; ++j)
          if (t - j >= 0 && t - j < R) sum[t - j] = fma(factor[j], pixel, sum[t - j]);
      }
    }
  }
  using Tile = void (*)(const Geometry&, const T*, Dim, const T*, Vec<T>, T*);
  template <int K, int... R> static Tile tile_of(Dim wide, std::integer_sequence<int, R...>) {
    static constexpr Tile tiles[] = {&set_pixels<K, R + 1>...};
    return tiles[wide - 1];
  }

  const ConvShape& s_;
  Geometry g_;
  LaneWindow<T> window_;
  Dim blocks_, rows_, cuts_;
  Span<const T> dy_, w_;
  Span<T> dx_;
  Workspace space_;
  Workspace::Scratch<char> scratch_{};
};

// Kernels 3, 5 or 7 wide. The sums of a row of dY are added to those of the rows before it, which
// loses fewer digits than one long sum; those of an image are added up in double.
template <class T> class DepthwiseLanesDw : public FilterGradient<T> {
 public:
  explicit DepthwiseLanesDw(const ConvShape& s) : s_(s), g_(s), window_(window(s)) {
    blocks_ = divide_up(s.groups, lanes<T>);
    parts_ = clamp(divide_up(32, blocks_), 1, s.images);
    rows_ = even_piece(g_.out[1], larger_of(8, window_.fitting_rows()));
    partial_ = space_.template shared<double>(parts_ * s.groups * s.taps());
    partial_dbias_ = space_.template shared<double>(parts_ * s.groups);
    Carver counter(nullptr);
    carve(counter);
    scratch_ = space_.template scratch<char>(counter.bytes(), parts_ * blocks_);
  }
  static bool suits(const ConvShape& s) {
    const Geometry g(s);
    const Dim wide = g.kernel[2];
    return LaneWindow<T>::suits(s) && window(s).fits() && !s.turned && g.dilation[2] == 1 &&
           (wide == 3 || wide == 5 || wide == 7);
  }

  Dim bytes() const override { return space_.bytes(); }
  bool gives_dbias() const override { return true; }
  Dim stages() const override { return 2; }
  Dim pieces(Dim stage) const override {
    return stage == 0 ? parts_ * blocks_ : divide_up(dw_.size(), kAdded) + 1;
  }
  void begin(Span<const T> dy, Span<const T> x, Span<T> dw, Span<T> dbias, Dim at) override {
    dy_ = dy, x_ = x, dw_ = dw, dbias_ = dbias;
    space_.open(at);
  }

  void run_piece(Dim stage, Dim piece) override {
    if (stage == 0) return add_images(piece % blocks_ * lanes<T>, piece / blocks_);
    const Dim begin = piece * kAdded;
    if (begin < dw_.size())
      add_parts(space_[partial_].data(), parts_, dw_, begin,
                smaller_of(begin + kAdded, dw_.size()));
    else if (dbias_)
      add_parts(space_[partial_dbias_].data(), parts_, dbias_, 0, dbias_.size());
  }

 private:
  static constexpr Dim kAdded = 16384;
  static constexpr int kTile = 4;  // pixels that meet the taps of a row at once

  static LaneWindow<T> window(const ConvShape& s) {
    const Geometry g(s);
    LaneWindow<T> w;
    for (int a = 0; a < 2; ++a) {
      w.halo[a] = (g.kernel[a + 1] - 1) * g.dilation[a + 1];
      w.from[a] = g.in[a + 1], w.over[a] = g.out[a + 1], w.first[a] = -g.pad[a + 1];
    }
    return w;
  }

  struct LanesDwMemory {
    T *box, *pixels, *sums;
  };
  LanesDwMemory carve(Carver& carver) const {
    return {carver.take<T>(window_.box_size(rows_)),
            carver.take<T>(window_.pixels(rows_) * lanes<T>),
            carver.take<T>((s_.taps() + 1) * lanes<T>)};
  }

  // One part of the images, lanes<T> channels.
  void add_images(Dim channel, Dim part) {
    const auto memory = space_.borrow(scratch_);
    Carver carver(memory.data());
    const LanesDwMemory m = carve(carver);
    const Dim count = smaller_of(lanes<T>, s_.groups - channel), taps = s_.taps();
    double* sums = space_[partial_].data() + (part * s_.groups + channel) * taps;
    double* dy_sums = space_[partial_dbias_].data() + part * s_.groups + channel;
    std::fill_n(sums, count * taps, 0.0);
    std::fill_n(dy_sums, count, 0.0);
    if (count < lanes<T>) std::fill_n(m.pixels, window_.pixels(rows_) * lanes<T>, T(0));
    for (Dim n = s_.images * part / parts_; n < s_.images * (part + 1) / parts_; ++n) {
      std::fill_n(m.sums, (taps + 1) * lanes<T>, T(0));
      for (Dim top = 0; top < g_.out[1]; top += rows_)
        add_rows(n * s_.groups + channel, count, top, smaller_of(rows_, g_.out[1] - top), m);
      for (Dim c = 0; c < count; ++c) {
        for (Dim t = 0; t < taps; ++t) sums[c * taps + t] += double(m.sums[t * lanes<T> + c]);
        dy_sums[c] += double(m.sums[taps * lanes<T> + c]);
      }
    }
  }

  void add_rows(Dim plane, Dim count, Dim top, Dim rows, const LanesDwMemory& m) const {
    window_.load_box(x_.data() + plane * s_.in_size(), count, top, rows, m.pixels, m.box);
    transpose(dy_.data() + plane * s_.out_size() + top * g_.out[2], s_.out_size(), count,
              rows * g_.out[2], m.pixels, lanes<T>);
    for (Dim y = 0; y < rows; ++y) {
      const T* dy = m.pixels + y * g_.out[2] * lanes<T>;
      for (Dim i = 0; i < g_.kernel[1]; ++i) {
        const T* x = m.box + (y + i * g_.dilation[1]) * window_.box_row();
        T* sums = m.sums + i * g_.kernel[2] * lanes<T>;
        g_.kernel[2] == 3   ? add_row<3>(dy, x, sums)
        : g_.kernel[2] == 5 ? add_row<5>(dy, x, sums)
                            : add_row<7>(dy, x, sums);
      }
      Vec<T> sum{};
      for (Dim x = 0; x < g_.out[2]; ++x) sum += load<T>(dy + x * lanes<T>);
      T* total = m.sums + s_.taps() * lanes<T>;
      store<T>(total, load<T>(total) + sum);
    }
  }

  // sums[j] += Σ_x dY[x] · X[x + j]
  template <int K> void add_row(const T* dy, const T* x, T* sums) const {
    Vec<T> sum[K] = {};
    Dim at = 0;
    for (; at + kTile <= g_.out[2]; at += kTile, dy += kTile * lanes<T>, x += kTile * lanes<T>)
      add_pixels<K, kTile>(dy, x, sum);
    for (; at < g_.out[2]; ++at, dy += lanes<T>, x += lanes<T>) add_pixels<K, 1>(dy, x, sum);
#pragma GCC unroll 8
    for (int j = 0; j < K; ++j)
      store<T>(sums + j * lanes<T>, load<T>(sums + j * lanes<T>) + sum[j]);
  }
  template <int K, int R>
  ONNXGRAD_INLINE static void add_pixels(const T* dy, const T* x, Vec<T> (&sum)[K]) {
    Vec<T> cotangent[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) cotangent[r] = load<T>(dy + r * lanes<T>);
#pragma GCC unroll 16
    for (int t = 0; t < R + K - 1; ++t) {
      const Vec<T> pixel = load<T>(x + t * lanes<T>);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r)
        if (t - r >= 0 && t - r < K) sum[t - r] = fma(cotangent[r], pixel, sum[t - r]);
    }
  }

  const ConvShape& s_;
  Geometry g_;
  LaneWindow<T> window_;
  Dim blocks_, parts_, rows_;
  Span<const T> dy_, x_;
  Span<T> dw_, dbias_;
  Workspace space_;
  Workspace::Shared<double> partial_{}, partial_dbias_{};
  Workspace::Scratch<char> scratch_{};
};

}  // namespace onnxgrad::ONNXGRAD_ISA
