#include "ops/conv/conv_grad_choose.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& conv_training_contract() {
  static const Contract c = with_conv_attributes(Contract("ConvTraining"))
                                .summary("Conv, fast for weights that change with every step.")
                                .formula(
                                    "Y[n,m,o] = B[m] + Σ X[n,c,i]·W[m,c,k], the sum over what i = "
                                    "o·stride + k·dilation − pad connects")
                                .accuracy(Measure::rms, 1e-6, 1e-14)
                                .input("X", "T[N, C, in...]", "images, or signals, or volumes")
                                .input("W", "T[M, Cg, kernel...]", "filters; Cg = C / group")
                                .optional("B", "T[M]", "what is added to each filter's result")
                                .output("Y", "T[N, M, out...]", "the convolution");
  return c;
}

namespace {

// See conv_forward.h.
ConvShape turned_around(const ConvShape& s) {
  ConvShape t = s;
  t.turned = true;
  t.channels = s.filters, t.filters = s.channels;
  t.in = s.out, t.out = s.in, t.step = s.stride;
  for (int a = 0; a < s.rank(); ++a) {
    t.pad[a] = (s.kernel[a] - 1) * s.dilation[a] - s.pad[a];
    t.stride[a] = 1;
  }
  return t;
}

}  // namespace

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
