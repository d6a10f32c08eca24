// Which algorithm computes the gradients of a convolution.
// Decided by the shape alone, so that every machine and number of threads
// does the same. ConvTransposeGrad chooses its filter gradient here too.
#pragma once
#include <memory>

#include "ops/conv/conv_grad_depthwise.h"
#include "ops/conv/conv_grad_depthwise_strided.h"
#include "ops/conv/conv_grad_direct_dw.h"
#include "ops/conv/conv_grad_direct_dx.h"
#include "ops/conv/conv_grad_few_channels_dx.h"
#include "ops/conv/conv_grad_few_numbers.h"
#include "ops/conv/conv_grad_plain.h"
#include "ops/conv/conv_grad_pointwise.h"
#include "ops/conv/conv_grad_winograd_dw.h"
#include "ops/conv/conv_grad_winograd_dx.h"

namespace onnxgrad::ONNXGRAD_ISA {

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

// One filter per channel, and columns that fall into several residues, none of them empty.
template <class T> bool is_strided_depthwise(const ConvShape& s) {
  const Geometry g(s);
  return !s.turned && is_depthwise(s, 1) && g.stride[2] > 1 && g.stride[2] <= g.in[2] &&
         g.kernel[0] * g.kernel[1] <= DepthwiseStridedDx<T>::kMostRows;
}

// 1×1 and nothing else: the pixels of X and Y correspond.
inline bool is_pointwise(const ConvShape& s) {
  for (int a = 0; a < s.rank(); ++a)
    if (s.kernel[a] != 1 || s.stride[a] != 1 || s.pad[a] != 0 || s.in[a] != s.out[a]) return false;
  return true;
}

// Plans an algorithm; false when it needs more working memory than a call may take.
template <class A, class Base> bool plan(std::unique_ptr<Base>& chosen, const ConvShape& s) {
  chosen = std::make_unique<A>(s);
  return chosen->bytes() <= kWorkspaceBytes;
}

// The first that suits the shape and fits;
// null when none does. Also for a convolution turned around.
template <class T>
std::unique_ptr<InputGradient<T>> choose_fast_dx(const ConvShape& s, std::int64_t winograd_tile) {
  std::unique_ptr<InputGradient<T>> chosen;
  const bool fast = s.rank() <= 3 && !empty(s);
  if (fast && is_pointwise(s) && plan<PointwiseDx<T>>(chosen, s)) return chosen;
  if (fast && suits_winograd(s) && winograd_tile == 4 && plan<WinogradDx<T, 4>>(chosen, s))
    return chosen;
  if (fast && suits_winograd(s) && winograd_tile != 0 && plan<WinogradDx<T, 2>>(chosen, s))
    return chosen;
  if (fast && suits_quartered_winograd(s) && winograd_tile != 0 &&
      plan<QuarteredWinogradDx<T>>(chosen, s))
    return chosen;
  if (fast && is_3x3_stride_1(s) && is_depthwise(s, 1) && plan<DepthwiseDx<T>>(chosen, s))
    return chosen;
  if (fast && is_strided_depthwise<T>(s) && plan<DepthwiseStridedDx<T>>(chosen, s)) return chosen;
  if (fast && s.channels <= kFewChannels && plan<FewChannelsDx<T>>(chosen, s)) return chosen;
  if (fast && plan<DirectDx<T>>(chosen, s)) return chosen;
  return nullptr;
}

template <class T>
std::unique_ptr<InputGradient<T>> choose_dx(const ConvShape& s, std::int64_t winograd_tile) {
  auto chosen = choose_fast_dx<T>(s, winograd_tile);
  return chosen ? std::move(chosen) : std::make_unique<PlainDx<T>>(s);
}

// Whether the chosen dW also gives a dBias that is accurate enough.
template <class T> bool gives_dbias(const FilterGradient<T>* dw, const ConvShape& s) {
  return dw && dw->gives_dbias() && !dbias_has_few_numbers(s);
}

template <class T>
std::unique_ptr<FilterGradient<T>> choose_dw(const ConvShape& s, std::int64_t winograd_tile) {
  std::unique_ptr<FilterGradient<T>> chosen;
  const bool fast = s.rank() <= 3 && !empty(s);
  if (fast && dw_has_few_numbers(s) && plan<FewNumbersDw<T>>(chosen, s)) return chosen;
  if (fast && is_pointwise(s) && plan<PointwiseDw<T>>(chosen, s)) return chosen;
  if (fast && suits_winograd(s) && winograd_tile == 4 && plan<WinogradDw<T, 4>>(chosen, s))
    return chosen;
  if (fast && suits_winograd(s) && winograd_tile != 0 && plan<WinogradDw<T, 2>>(chosen, s))
    return chosen;
  if (fast && suits_strided_winograd(s) && winograd_tile != 0 &&
      plan<WinogradDw<T, 2, 2>>(chosen, s))
    return chosen;
  if (fast && is_depthwise(s, 4) && plan<DepthwiseDw<T>>(chosen, s)) return chosen;
  if (fast && plan<DirectDw<T>>(chosen, s)) return chosen;
  return std::make_unique<PlainDw<T>>(s);
}

}  // namespace onnxgrad::ONNXGRAD_ISA
