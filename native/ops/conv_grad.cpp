#include <optional>

#include "ops/conv_grad_direct_dw.h"
#include "ops/conv_grad_direct_dx.h"
#include "ops/conv_grad_plain.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& conv_grad_contract() {
  static const Contract c = Contract("ConvGrad")
      .summary("Gradient of Conv, in any number of spatial dims.")
      .formula("dX[n,c,i] = Σ dY[n,m,o]·W[m,c,k]; dW[m,c,k] = Σ dY[n,m,o]·X[n,c,i]; dBias[m] = Σ dY[n,m,o]; "
               "the sums over what i = o·stride + k·dilation − pad connects")
      .accuracy(Measure::rms, 1e-6, 1e-14)
      .attr("auto_pad", "NOTSET", {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"}, "how pads follow from the shapes")
      .attr("dilations", Kind::integers, "distance between kernel elements; 1 along each spatial dim when absent")
      .attr("group", 1, "number of groups that channels and filters are divided into")
      .attr("kernel_shape", Kind::integers, "the kernel dims; taken from W when absent")
      .attr("pads", Kind::integers, "zeros before each spatial dim, then after each; none when absent")
      .attr("strides", Kind::integers, "step along each spatial dim; 1 when absent")
      .attr("winograd_tile", 2, "3x3 kernels: outputs per Winograd tile and side. 2; 4 is faster on some shapes at ten "
                                "times the error; 0 avoids Winograd")
      .input("dY", "T[N, M, out...]", "cotangent of Y")
      .input("X", "T[N, C, in...]", "what went into Conv")
      .input("W", "T[M, Cg, kernel...]", "filters; Cg = C / group")
      .optional_output("dX", "T[N, C, in...]", "gradient of X")
      .optional_output("dW", "T[M, Cg, kernel...]", "gradient of W")
      .optional_output("dBias", "T[M]", "gradient of the bias");
  return c;
}

template <class T> void conv_grad(Call& call) {
  const ConvShape s = prepare_conv(call);
  const Span<const T> dy = call.input<T>("dY"), x = call.input<T>("X"), w = call.input<T>("W");
  std::optional<DirectDx<T>> direct_dx;
  std::optional<DirectDw<T>> direct_dw;
  if (s.rank() <= 3) {
    direct_dx.emplace(s), direct_dw.emplace(s);
    Workspace::acquire(call, larger(direct_dx->bytes(), direct_dw->bytes()));
  }
  const Span<T> dx = call.output<T>("dX"), dw = call.output<T>("dW"), dbias = call.output<T>("dBias");
  if (call.wants("dX")) direct_dx ? direct_dx->run(call, dy, w, dx) : plain_dx<T>(call, s, dy, w, dx);
  if (call.wants("dW")) direct_dw ? direct_dw->run(call, dy, x, dw) : plain_dw<T>(call, s, dy, x, dw);
  if (call.wants("dBias")) conv_dbias<T>(call, s, dy, dbias);
}
ONNXGRAD_FLOAT_AND_DOUBLE(conv_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
