// Which algorithm computes a convolution or its gradients.
// Decided by the type and the shape alone, so that every number of threads does the same.
//
// The algorithms are compiled once, in conv_grad_choose_dx.cpp and conv_grad_choose_dw.cpp, for
// ConvGrad, ConvTraining and ConvTransposeGrad together.
#pragma once
#include <memory>

#include "core/dims.h"
#include "core/workspace.h"
#include "ops/conv/conv_grad_shape.h"
#include "ops/conv/conv_grad_stages.h"

namespace onnxgrad::ONNXGRAD_ISA {

// One algorithm for dX, planned for one shape.
// For Y (conv_forward.h) it begins its sums with a bias.
template <class T> class InputGradient : public ConvStages {
 public:
  virtual Dim bytes() const = 0;  // of working memory
  // Before the first stage. Its working memory begins `at` bytes into what was acquired.
  virtual void begin(Span<const T>, Span<const T>, Span<T>, Dim) {}
  virtual void run(Call& call, Span<const T> dy, Span<const T> w, Span<T> dx) {
    begin(dy, w, dx, 0);
    run_stages(call, {this});
  }
  void begin_with(Span<const T> bias) { bias_ = bias; }

 protected:
  bool has_bias() const { return bool(bias_); }
  Span<const T> bias_values() const { return bias_; }
  T bias(Dim channel) const { return bias_ ? bias_[channel] : T(0); }
  // A register of `count` channels from `channel` on; 0 without a bias.
  Vec<T> bias(Dim channel, Dim count) const {
    return bias_ && count > 0 ? load_some<T>(bias_.data() + channel, smaller_of(count, lanes<T>))
                              : Vec<T>{};
  }

 private:
  Span<const T> bias_;
};

// One algorithm for dW, planned for one shape.
// Some sum dY for dBias on the way, which saves reading it once more.
template <class T> class FilterGradient : public ConvStages {
 public:
  virtual Dim bytes() const = 0;
  virtual bool gives_dbias() const { return false; }
  virtual void begin(Span<const T>, Span<const T>, Span<T>, Span<T>, Dim) {}
  virtual void run(Call& call, Span<const T> dy, Span<const T> x, Span<T> dw, Span<T> dbias) {
    begin(dy, x, dw, dbias, 0);
    run_stages(call, {this});
  }
};

// ---- what suits a shape

inline bool empty(const ConvShape& s) {
  return s.images == 0 || s.channels == 0 || s.filters == 0 || s.in_size() == 0 ||
         s.out_size() == 0;
}

inline bool is_3x3_stride_1(const ConvShape& s) {
  for (int a = 0; a < s.rank(); ++a)
    if (s.kernel[a] != 3 || s.stride[a] != 1 || s.dilation[a] != 1) return false;
  return s.rank() == 2;
}

// One group with enough channels to pay for the transforms, and not more than working memory holds.
inline bool has_winograd_channels(const ConvShape& s) {
  return s.groups == 1 && s.channels >= 16 && s.filters >= 16 &&
         s.channels * s.filters <= 512 * 512;
}

// 3×3 or d×3×3, stride 1.
inline bool suits_winograd(const ConvShape& s) {
  for (int a = 0; a < s.rank(); ++a)
    if (s.stride[a] != 1 || s.dilation[a] != 1) return false;
  const int rank = s.rank();
  return (rank == 2 || rank == 3) && s.kernel[rank - 2] == 3 && s.kernel[rank - 1] == 3 &&
         has_winograd_channels(s);
}

// 5×5, stride 1.
inline bool suits_quartered_winograd(const ConvShape& s) {
  if (s.rank() != 2 || !has_winograd_channels(s)) return false;
  for (int a = 0; a < 2; ++a)
    if (s.kernel[a] != 5 || s.stride[a] != 1 || s.dilation[a] != 1) return false;
  return true;
}

// 4×4, stride 2: 2×2 taps for each of four residues.
// Where an odd size leaves half a tile it must be a small part.
inline bool suits_strided_winograd(const ConvShape& s) {
  if (s.rank() != 2 || !has_winograd_channels(s)) return false;
  for (int a = 0; a < 2; ++a)
    if (s.kernel[a] != 4 || s.stride[a] != 2 || s.dilation[a] != 1 || s.out[a] < 4) return false;
  return true;
}

inline bool is_depthwise(const ConvShape& s, Dim most_filters) {
  return s.channels == 1 && s.filters <= most_filters;
}

// 1×1 and nothing else: the pixels of X and Y correspond.
inline bool is_pointwise(const ConvShape& s) {
  for (int a = 0; a < s.rank(); ++a)
    if (s.kernel[a] != 1 || s.stride[a] != 1 || s.pad[a] != 0 || s.in[a] != s.out[a]) return false;
  return true;
}

// ---- the choice

// Plans an algorithm; false when it needs more working memory than a call may take.
template <class A, class Base> bool plan(std::unique_ptr<Base>& chosen, const ConvShape& s) {
  chosen = std::make_unique<A>(s);
  return chosen->bytes() <= kWorkspaceBytes;
}

template <class T>
std::unique_ptr<InputGradient<T>> choose_dx(const ConvShape& s, std::int64_t winograd_tile);

// Y: `s` is the convolution, `turned` the same turned around. Both outlive what is returned.
template <class T> std::unique_ptr<InputGradient<T>> choose_forward(const ConvShape& s,
                                                                    const ConvShape& turned,
                                                                    std::int64_t winograd_tile);

// Also for ConvTransposeGrad.
template <class T>
std::unique_ptr<FilterGradient<T>> choose_dw(const ConvShape& s, std::int64_t winograd_tile);

// ---- dBias

constexpr Dim kFewNumbers = 8;  // so few may all cancel: they are summed more exactly

inline bool dw_has_few_numbers(const ConvShape& s) {
  return s.groups * s.filters * s.channels * s.taps() <= kFewNumbers;
}
inline bool dbias_has_few_numbers(const ConvShape& s) {
  return s.groups * s.filters <= kFewNumbers;
}

// Whether the chosen dW also gives a dBias that is accurate enough.
template <class T> bool gives_dbias(const FilterGradient<T>* dw, const ConvShape& s) {
  return dw && dw->gives_dbias() && !dbias_has_few_numbers(s);
}

// dBias[m] = Σ_{n, o} dY[n, m, o]. A few numbers may all cancel, so their sum is the wide one.
template <class T> class BiasGradient : public ConvStages {
 public:
  BiasGradient(const ConvShape& s, Span<const T> dy, Span<T> dbias)
      : s_(s), dy_(dy), dbias_(dbias) {
    together_ = 32768 / (s.images * s.out_size() + 1) + 1;
  }
  Dim stages() const override { return 1; }
  Dim pieces(Dim) const override { return divide_up(dbias_.size(), together_); }
  void run_piece(Dim, Dim piece) override {
    const Dim last = smaller_of((piece + 1) * together_, dbias_.size());
    for (Dim m = piece * together_; m < last; ++m) set(m);
  }

 private:
  void set(Dim filter);

  const ConvShape& s_;
  Span<const T> dy_;
  Span<T> dbias_;
  Dim together_;  // filters of a piece
};

}  // namespace onnxgrad::ONNXGRAD_ISA
