#include "ops/conv_forward.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& conv_training_contract() {
  static const Contract c =
      Contract("ConvTraining")
          .summary("Conv, fast for weights that change with every step.")
          .formula("Y[n,m,o] = B[m] + Σ X[n,c,i]·W[m,c,k], the sum over what i = o·stride + k·dilation − pad connects")
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
                "ten times the error; 0 avoids Winograd")
          .input("X", "T[N, C, in...]", "images, or signals, or volumes")
          .input("W", "T[M, Cg, kernel...]", "filters; Cg = C / group")
          .optional("B", "T[M]", "what is added to each filter's result")
          .output("Y", "T[N, M, out...]", "the convolution");
  return c;
}

template <class T> void conv_training(Call& call) {
  const ConvShape s = described_conv(call), turned = turned_around(s);
  const auto algorithm = choose_forward<T>(s, turned, call.integer("winograd_tile"));
  Workspace::acquire(call, algorithm->bytes());
  call.set_dims("out...", s.out);
  const Span<const T> x = call.input<T>("X"), w = call.input<T>("W"), bias = call.input<T>("B");
  const Span<T> y = call.output<T>("Y");
  algorithm->begin_with(bias);
  algorithm->run(call, x, w, y);
}
ONNXGRAD_FLOAT_AND_DOUBLE(conv_training)

}  // namespace onnxgrad::ONNXGRAD_ISA
