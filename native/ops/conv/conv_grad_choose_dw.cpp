// The algorithms for dW, and the choice among them; dBias by itself.
#include "ops/conv/conv_grad_depthwise.h"
#include "ops/conv/conv_grad_depthwise_lanes.h"
#include "ops/conv/conv_grad_direct_dw.h"
#include "ops/conv/conv_grad_few_numbers.h"
#include "ops/conv/conv_grad_plain.h"
#include "ops/conv/conv_grad_pointwise.h"
#include "ops/conv/conv_grad_winograd_dw.h"

namespace onnxgrad::ONNXGRAD_ISA {

template <class T>
std::unique_ptr<FilterGradient<T>> choose_dw(const ConvShape& s, std::int64_t winograd_tile) {
  std::unique_ptr<FilterGradient<T>> chosen;
  const bool fast = s.rank() <= 3 && !empty(s);
  if (fast && dw_has_few_numbers(s) && plan<FewNumbersDw<T>>(chosen, s)) return chosen;
  if (fast && is_pointwise(s) && plan<PointwiseDw<T>>(chosen, s)) return chosen;
  if constexpr (kTuned<T>) {
    const bool may = fast && winograd_tile != 0;
    if (may && suits_winograd(s) && winograd_tile == 4 && plan<WinogradDw<T, 4>>(chosen, s))
      return chosen;
    if (may && suits_winograd(s) && plan<WinogradDw<T, 2>>(chosen, s)) return chosen;
    if (may && suits_strided_winograd(s) && plan<WinogradDw<T, 2, 2>>(chosen, s)) return chosen;
  }
  if (fast && DepthwiseLanesDw<T>::suits(s) && plan<DepthwiseLanesDw<T>>(chosen, s)) return chosen;
  if (fast && is_depthwise(s, 4) && plan<DepthwiseDw<T>>(chosen, s)) return chosen;
  if (fast && plan<DirectDw<T>>(chosen, s)) return chosen;
  return std::make_unique<PlainDw<T>>(s);
}

template <class T> void BiasGradient<T>::set(Dim filter) {
  const Dim filters = s_.groups * s_.filters, out = s_.out_size();
  WideSum<T, double> sum;
  for (Dim n = 0; n < s_.images; ++n) {
    const T* plane = dy_.data() + (n * filters + filter) * out;
    if (dbias_has_few_numbers(s_))
      sum.add(wide_sum(plane, out));
    else
      sum.high += plane_sum(plane, out);
  }
  dbias_[filter] = T(sum.value());
}

template std::unique_ptr<FilterGradient<float>> choose_dw(const ConvShape&, std::int64_t);
template std::unique_ptr<FilterGradient<double>> choose_dw(const ConvShape&, std::int64_t);
template class BiasGradient<float>;
template class BiasGradient<double>;

}  // namespace onnxgrad::ONNXGRAD_ISA
