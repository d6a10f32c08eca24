// The algorithms for dX, which are those for Y too, and the choice among them.
#include "ops/conv/conv_forward.h"
#include "ops/conv/conv_grad_depthwise.h"
#include "ops/conv/conv_grad_depthwise_lanes.h"
#include "ops/conv/conv_grad_depthwise_strided.h"
#include "ops/conv/conv_grad_direct_dx.h"
#include "ops/conv/conv_grad_few_channels_dx.h"
#include "ops/conv/conv_grad_plain.h"
#include "ops/conv/conv_grad_pointwise.h"
#include "ops/conv/conv_grad_winograd_dx.h"

namespace onnxgrad::ONNXGRAD_ISA {
namespace {

// One filter per channel, and columns that fall into several residues, none of them empty.
template <class T> bool is_strided_depthwise(const ConvShape& s) {
  const Geometry g(s);
  return !s.turned && is_depthwise(s, 1) && g.stride[2] > 1 && g.stride[2] <= g.in[2] &&
         g.kernel[0] * g.kernel[1] <= DepthwiseStridedDx<T>::kMostRows;
}

// The first that suits the shape and fits;
// null when none does. Also for a convolution turned around.
template <class T>
std::unique_ptr<InputGradient<T>> choose_fast_dx(const ConvShape& s, std::int64_t winograd_tile) {
  std::unique_ptr<InputGradient<T>> chosen;
  const bool fast = s.rank() <= 3 && !empty(s);
  if (fast && is_pointwise(s) && plan<PointwiseDx<T>>(chosen, s)) return chosen;
  if constexpr (kTuned<T>) {
    const bool may = fast && winograd_tile != 0;
    if (may && suits_winograd(s) && winograd_tile == 4 && plan<WinogradDx<T, 4>>(chosen, s))
      return chosen;
    if (may && suits_winograd(s) && plan<WinogradDx<T, 2>>(chosen, s)) return chosen;
    if (may && suits_quartered_winograd(s) && plan<QuarteredWinogradDx<T>>(chosen, s))
      return chosen;
  }
  if (fast && is_3x3_stride_1(s) && is_depthwise(s, 1) && plan<DepthwiseDx<T>>(chosen, s))
    return chosen;
  if (fast && DepthwiseLanesDx<T>::suits(s) && plan<DepthwiseLanesDx<T>>(chosen, s)) return chosen;
  if (fast && is_strided_depthwise<T>(s) && plan<DepthwiseStridedDx<T>>(chosen, s)) return chosen;
  if (fast && s.channels <= kFewChannels && plan<FewChannelsDx<T>>(chosen, s)) return chosen;
  if (fast && plan<DirectDx<T>>(chosen, s)) return chosen;
  return nullptr;
}

}  // namespace

template <class T>
std::unique_ptr<InputGradient<T>> choose_dx(const ConvShape& s, std::int64_t winograd_tile) {
  auto chosen = choose_fast_dx<T>(s, winograd_tile);
  return chosen ? std::move(chosen) : std::make_unique<PlainDx<T>>(s);
}

template <class T> std::unique_ptr<InputGradient<T>> choose_forward(const ConvShape& s,
                                                                    const ConvShape& turned,
                                                                    std::int64_t winograd_tile) {
  std::unique_ptr<InputGradient<T>> chosen;
  const bool fast = s.rank() <= 3 && !empty(s);
  const bool strided = is_strided(turned);
  const bool own_3x3 = is_3x3_stride_1(s) && s.filters == 1;  // DepthwiseDx needs no copy of X
  const bool by_lanes = fast && DepthwiseLanesDx<T>::suits(turned);
  if (by_lanes && plan<DepthwiseLanesDx<T>>(chosen, turned)) return chosen;
  if (fast && is_depthwise(s, 4) && !own_3x3 && plan<DepthwiseForward<T>>(chosen, s)) return chosen;
  if (fast && strided && plan<DirectDx<T>>(chosen, turned)) return chosen;
  if (!strided) chosen = choose_fast_dx<T>(turned, winograd_tile);
  return chosen ? std::move(chosen) : std::make_unique<PlainForward<T>>(s);
}

template std::unique_ptr<InputGradient<float>> choose_dx(const ConvShape&, std::int64_t);
template std::unique_ptr<InputGradient<double>> choose_dx(const ConvShape&, std::int64_t);
template std::unique_ptr<InputGradient<float>> choose_forward(const ConvShape&, const ConvShape&,
                                                              std::int64_t);
template std::unique_ptr<InputGradient<double>> choose_forward(const ConvShape&, const ConvShape&,
                                                               std::int64_t);

}  // namespace onnxgrad::ONNXGRAD_ISA
