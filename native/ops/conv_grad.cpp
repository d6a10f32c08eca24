#include <memory>

#include "ops/conv_grad_depthwise.h"
#include "ops/conv_grad_direct_dw.h"
#include "ops/conv_grad_direct_dx.h"
#include "ops/conv_grad_few_channels_dx.h"
#include "ops/conv_grad_plain.h"
#include "ops/conv_grad_pointwise.h"
#include "ops/conv_grad_winograd_dw.h"
#include "ops/conv_grad_winograd_dx.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& conv_grad_contract() {
  static const Contract c =
      Contract("ConvGrad")
          .summary("Gradient of Conv, in any number of spatial dims.")
          .formula(
              "dX[n,c,i] = Σ dY[n,m,o]·W[m,c,k]; dW[m,c,k] = Σ dY[n,m,o]·X[n,c,i]; dBias[m] = Σ "
              "dY[n,m,o]; "
              "the sums over what i = o·stride + k·dilation − pad connects")
          .accuracy(Measure::rms, 1e-6, 1e-14)
          .attr("auto_pad", "NOTSET", {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"},
                "how pads follow from the shapes")
          .attr("dilations", Kind::integers,
                "distance between kernel elements; 1 along each spatial dim when absent")
          .attr("group", 1, "number of groups that channels and filters are divided into")
          .attr("kernel_shape", Kind::integers, "the kernel dims; taken from W when absent")
          .attr("pads", Kind::integers,
                "zeros before each spatial dim, then after each; none when absent")
          .attr("strides", Kind::integers, "step along each spatial dim; 1 when absent")
          .attr("winograd_tile", 2,
                "3x3 kernels: outputs per Winograd tile and side. 2; 4 is faster on some shapes at "
                "ten "
                "times the error; 0 avoids Winograd")
          .input("dY", "T[N, M, out...]", "cotangent of Y")
          .input("X", "T[N, C, in...]", "what went into Conv")
          .input("W", "T[M, Cg, kernel...]", "filters; Cg = C / group")
          .optional_output("dX", "T[N, C, in...]", "gradient of X")
          .optional_output("dW", "T[M, Cg, kernel...]", "gradient of W")
          .optional_output("dBias", "T[M]", "gradient of the bias");
  return c;
}

// ---- which algorithm; by the shape alone, so that every machine and number of threads does the
// same

namespace {

bool empty(const ConvShape& s) {
  return s.images == 0 || s.channels == 0 || s.filters == 0 || s.in_size() == 0 ||
         s.out_size() == 0;
}

bool is_3x3_stride_1(const ConvShape& s) {
  for (int a = 0; a < s.rank(); ++a)
    if (s.kernel[a] != 3 || s.stride[a] != 1 || s.dilation[a] != 1) return false;
  return s.rank() == 2;
}

// One group with enough channels to pay for the transforms, and not more than working memory holds.
bool suits_winograd(const ConvShape& s) {
  return is_3x3_stride_1(s) && s.groups == 1 && s.channels >= 16 && s.filters >= 16 &&
         s.channels * s.filters <= 512 * 512;
}

bool is_depthwise(const ConvShape& s, Dim most_filters) {
  return s.channels == 1 && s.filters <= most_filters;
}

// 1×1 and nothing else: the pixels of X and Y correspond.
bool is_pointwise(const ConvShape& s) {
  for (int a = 0; a < s.rank(); ++a)
    if (s.kernel[a] != 1 || s.stride[a] != 1 || s.pad[a] != 0 || s.in[a] != s.out[a]) return false;
  return true;
}

// Plans an algorithm; false when it needs more working memory than a call may take.
template <class A, class Base> bool plan(std::unique_ptr<Base>& chosen, const ConvShape& s) {
  chosen = std::make_unique<A>(s);
  return chosen->bytes() <= kWorkspaceBytes;
}

// The first that suits the shape and fits.
template <class T>
std::unique_ptr<InputGradient<T>> choose_dx(const ConvShape& s, std::int64_t winograd_tile) {
  std::unique_ptr<InputGradient<T>> chosen;
  const bool fast = s.rank() <= 3 && !empty(s);
  if (fast && is_pointwise(s) && plan<PointwiseDx<T>>(chosen, s)) return chosen;
  if (fast && suits_winograd(s) && winograd_tile == 4 && plan<WinogradDx<T, 4>>(chosen, s))
    return chosen;
  if (fast && suits_winograd(s) && winograd_tile != 0 && plan<WinogradDx<T, 2>>(chosen, s))
    return chosen;
  if (fast && is_3x3_stride_1(s) && is_depthwise(s, 1) && plan<DepthwiseDx<T>>(chosen, s))
    return chosen;
  if (fast && s.channels <= kFewChannels && plan<FewChannelsDx<T>>(chosen, s)) return chosen;
  if (fast && plan<DirectDx<T>>(chosen, s)) return chosen;
  return std::make_unique<PlainDx<T>>(s);
}

template <class T>
std::unique_ptr<FilterGradient<T>> choose_dw(const ConvShape& s, std::int64_t winograd_tile) {
  std::unique_ptr<FilterGradient<T>> chosen;
  const bool fast = s.rank() <= 3 && !empty(s);
  if (fast && is_pointwise(s) && plan<PointwiseDw<T>>(chosen, s)) return chosen;
  if (fast && suits_winograd(s) && winograd_tile == 4 && plan<WinogradDw<T, 4>>(chosen, s))
    return chosen;
  if (fast && suits_winograd(s) && winograd_tile != 0 && plan<WinogradDw<T, 2>>(chosen, s))
    return chosen;
  if (fast && is_depthwise(s, 4) && plan<DepthwiseDw<T>>(chosen, s)) return chosen;
  if (fast && plan<DirectDw<T>>(chosen, s)) return chosen;
  return std::make_unique<PlainDw<T>>(s);
}

}  // namespace

template <class T> void conv_grad(Call& call) {
  const ConvShape s = prepare_conv(call);
  const std::int64_t tile = call.integer("winograd_tile");
  const auto find_dx = call.wants("dX") ? choose_dx<T>(s, tile) : nullptr;
  const auto find_dw = call.wants("dW") ? choose_dw<T>(s, tile) : nullptr;
  Workspace::acquire(call, larger(find_dx ? find_dx->bytes() : 0, find_dw ? find_dw->bytes() : 0));

  const Span<const T> dy = call.input<T>("dY"), x = call.input<T>("X"), w = call.input<T>("W");
  const Span<T> dx = call.output<T>("dX"), dw = call.output<T>("dW"),
                dbias = call.output<T>("dBias");
  if (find_dx) find_dx->run(call, dy, w, dx);
  if (find_dw) find_dw->run(call, dy, x, dw, dbias);
  if (dbias && !(find_dw && find_dw->gives_dbias())) conv_dbias<T>(call, s, dy, dbias);
}
ONNXGRAD_FLOAT_AND_DOUBLE(conv_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
