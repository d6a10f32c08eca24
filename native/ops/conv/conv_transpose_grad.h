// The gradients of ConvTranspose. It is the transpose of a convolution that leads from Y to X, so
//
//   dX[n, c, i] = Σ_{m, k} dY[n, m, i·stride + k·dilation − pad] · W[c, m, k]
//
// is that convolution of dY, and dW is that convolution's filter gradient,
// with X in the place of its output and dY in that of its input.
#pragma once
#include <vector>

#include "core/reduce.h"
#include "core/transpose.h"
#include "ops/conv/conv_grad_choose.h"
#include "ops/conv/conv_transpose_grad_together.h"
#include "ops/conv/conv_transpose_grad_winograd.h"

namespace onnxgrad::ONNXGRAD_ISA {

// dX as a product with addresses: a pixel of dX reads `taps` pixels of each
// channel of dY, which lies in memory with zeros around it, one image at a time
// (as it is, when it needs none and its planes are not a power of two apart).
template <class T> class TransposeDx : public InputGradient<T> {
 public:
  explicit TransposeDx(const ConvShape& s) : s_(s), depth_(s.channels * s.taps()) {
    for (int a = 0; a < s.rank(); ++a) {
      const Dim read = (s.out[a] - 1) * s.stride[a] + (s.kernel[a] - 1) * s.dilation[a] + 1;
      size_.push_back(larger_of(read, s.pad[a] + s.in[a]));
      padded_ = padded_ || size_[a] != s.in[a] || s.pad[a] != 0;
    }
    plane_ = size_.size();
    if (crowds_one_set(plane_)) plane_ += 64 / Dim(sizeof(T)), padded_ = true;
    packed_ = space_.shared<T>(s.groups * packed_size<T>(depth_, s.filters));
    image_ = space_.shared<T>(padded_ ? s.groups * s.channels * plane_ : 0);
    offsets_ = space_.shared<std::int32_t>(depth_);
    pixels_ = finer_piece(s.out_size(), kLeastPixels, kMostPixels,
                          divide_up(kTasks, larger_of(s.groups, 1)));
    blocks_ = divide_up(s.out_size(), pixels_);
    panel_piece_ = finer_piece(panel_count<T>(s.filters), 1, 1 << 20,
                               kTasks / larger_of(s.groups * blocks_, 1));
    panel_pieces_ = divide_up(panel_count<T>(s.filters), panel_piece_);
    scratch_ =
        space_.scratch<char>(pixels_ * Dim(sizeof(T*)) + pixels_ * pitch() * Dim(sizeof(T)) + 64,
                             s.groups * blocks_ * panel_pieces_);
  }
  Dim bytes() const override { return space_.bytes(); }

  void run(Call& call, Span<const T> dy, Span<const T> w, Span<T> dx) override {
    if (dx.size() == 0) return;
    space_.open();
    const Dim filters = s_.groups * s_.filters, channels = s_.groups * s_.channels;
    const Dim panels = panel_count<T>(s_.filters);
    call.parallel_for(s_.groups * panels, [&](Dim task) {
      const Dim g = task / panels, panel = task % panels;
      pack_transposed_panels<T>(w.data() + g * s_.filters * depth_, depth_, depth_, s_.filters,
                                weights(g), panel, panel + 1);
    });
    set_offsets();
    for (Dim n = 0; n < s_.images; ++n) {
      const T* image = dy.data() + n * channels * s_.in_size();
      if (padded_)
        call.parallel_for(channels, [&](Dim c) {
          pad_plane(image + c * s_.in_size(), space_[image_].data() + c * plane_);
        });
      const T* read = padded_ ? space_[image_].data() : image;
      call.parallel_for(s_.groups * blocks_ * panel_pieces_, [&](Dim task) {
        const Dim g = task / panel_pieces_ / blocks_,
                  first = task / panel_pieces_ % blocks_ * pixels_,
                  panel = task % panel_pieces_ * panel_piece_;
        set_pixels(g, first, smaller_of(first + pixels_, s_.out_size()), panel,
                   smaller_of(panel + panel_piece_, panels), read,
                   dx.data() + (n * filters + g * s_.filters) * s_.out_size());
      });
    }
  }

 private:
  // Pixels of a task: a block of rows of the product.
  static constexpr Dim kLeastPixels = 60, kMostPixels = 240, kTasks = 16;
  Dim pitch() const { return panel_piece_ * kPanel<T>; }
  T* weights(Dim g) { return space_[packed_].data() + g * packed_size<T>(depth_, s_.filters); }

  // A pixel reads one place of every channel: at a distance of pages,
  // these all compete for a few lines of the caches.
  static bool crowds_one_set(Dim plane) { return plane * Dim(sizeof(T)) % 4096 == 0; }

  // Where (channel, tap) stands, counted from the first tap of the first channel.
  void set_offsets() {
    std::int32_t* offset = space_[offsets_].data();
    for (Dim c = 0; c < s_.channels; ++c) {
      Shape k = detail::zero_index(s_.kernel);
      for (Dim t = 0; t < s_.taps(); ++t, detail::next_index(k, s_.kernel)) {
        Dim at = 0;
        for (int a = 0; a < s_.rank(); ++a) at = at * size_[a] + k[a] * s_.dilation[a];
        offset[c * s_.taps() + t] = std::int32_t(c * plane_ + at);
      }
    }
  }

  // One channel of dY with zeros around it, row by row.
  void pad_plane(const T* from, T* to) const {
    if (size_ == s_.in)
      return void(std::memcpy(static_cast<void*>(to), from,
                              static_cast<std::size_t>(s_.in_size()) * sizeof(T)));
    std::memset(static_cast<void*>(to), 0, static_cast<std::size_t>(size_.size()) * sizeof(T));
    const Dim row = s_.in[s_.rank() - 1];
    const Shape rows(s_.in.data(), s_.rank() - 1);
    Shape i = detail::zero_index(rows);
    for (Dim r = 0; r < rows.size(); ++r, detail::next_index(i, rows)) {
      Dim at = 0;
      for (int a = 0; a + 1 < s_.rank(); ++a) at = at * size_[a] + i[a] + s_.pad[a];
      at = at * size_[s_.rank() - 1] + s_.pad[s_.rank() - 1];
      std::memcpy(static_cast<void*>(to + at), from + r * row,
                  static_cast<std::size_t>(row) * sizeof(T));
    }
  }

  // Pixels [first, last) of the filters in panels [panel, panel_end) of one group;
  // dx is the group's part of the image.
  void set_pixels(Dim g, Dim first, Dim last, Dim panel, Dim panel_end, const T* image, T* dx) {
    const auto memory = space_.borrow(scratch_);
    Carver carver(memory.data());
    const T** rows = carver.take<const T*>(pixels_);
    T* sums = carver.take<T>(pixels_ * pitch());
    Shape o = s_.out;
    Dim rest = first;
    for (int a = s_.rank() - 1; a >= 0; --a) o[a] = rest % s_.out[a], rest /= s_.out[a];
    for (Dim p = first; p < last; ++p, detail::next_index(o, s_.out)) {
      Dim at = 0;
      for (int a = 0; a < s_.rank(); ++a) at = at * size_[a] + o[a] * s_.stride[a];
      rows[p - first] = image + g * s_.channels * plane_ + at;
    }
    const Gathered<T> a{rows, space_[offsets_].data()};
    const Dim filter = panel * kPanel<T>,
              filters = smaller_of(s_.filters, panel_end * kPanel<T>) - filter;
    set_product<T>({0, last - first, 0, panel_end - panel}, a, depth_, weights(g) + filter * depth_,
                   filters, sums, pitch());
    transpose<T>(sums, pitch(), last - first, filters, dx + filter * s_.out_size() + first,
                 s_.out_size());
  }

  ConvShape s_;
  Dim depth_, blocks_ = 0, pixels_ = 1, panel_piece_ = 1, panel_pieces_ = 1;
  Shape size_;     // of a channel of dY with its zeros
  Dim plane_ = 0;  // from one channel to the next
  bool padded_ = false;
  Workspace space_;
  Workspace::Shared<T> packed_{}, image_{};
  Workspace::Shared<std::int32_t> offsets_{};
  Workspace::Scratch<char> scratch_{};
};

// dX and dW, each by an algorithm of its own or both by one; planned for one shape.
template <class T> class TransposeGradients {
 public:
  TransposeGradients(const ConvShape& s, bool wants_dx, bool wants_dw) {
    const bool winograd = kTuned<T> && (suits_winograd(s) || suits_strided_winograd(s));
    if ((wants_dx || wants_dw) && !empty(s) && !winograd && !is_pointwise(s) &&
        TransposeTogether<T>::suits(s)) {
      together_ = std::make_unique<TransposeTogether<T>>(s);
      return;
    }
    if (wants_dw) dw_ = choose_dw<T>(s, 2);
    if (!wants_dx) return;
    if constexpr (kTuned<T>)
      if (!empty(s) && suits_strided_winograd(s) && plan<WinogradTransposeDx<T>>(dx_, s)) return;
    dx_ = std::make_unique<TransposeDx<T>>(s);
  }
  Dim bytes() const {
    if (together_) return together_->bytes();
    return larger_of(dx_ ? dx_->bytes() : 0, dw_ ? dw_->bytes() : 0);
  }
  bool gives_dbias() const { return together_ && together_->gives_dbias(); }
  void run(Call& call, Span<const T> dy, Span<const T> x, Span<const T> w, Span<T> dx, Span<T> dw,
           Span<T> dbias) {
    if (together_) together_->run(call, dy, x, w, dx, dw, dbias);
    if (dx_) dx_->run(call, dy, w, dx);
    if (dw_) dw_->run(call, x, dy, dw, Span<T>());
  }

 private:
  std::unique_ptr<TransposeTogether<T>> together_;
  std::unique_ptr<InputGradient<T>> dx_;
  std::unique_ptr<FilterGradient<T>> dw_;
};

}  // namespace onnxgrad::ONNXGRAD_ISA
