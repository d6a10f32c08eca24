// dX = dY f(X + B) for the two gelus with a bias; B is added in registers, without a temporary.
#pragma once
#include "core/pointwise.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

inline Contract bias_gelu_contract(const char* name, const char* summary, const char* formula) {
  return Contract(name)
      .summary(summary)
      .formula(formula)
      .accuracy(Measure::ulp, 5, 1e-13)
      .input("dY", "T[outer..., C]", "cotangent of Y")
      .input("X", "T[outer..., C]", "what went in, before the bias")
      .input("B", "T[C]", "bias")
      .output("dX", "T[outer..., C]", "gradient of X")
      .inplace("dY", "dX");
}

// Pieces are whole rows of C, or blocks of one row when C is long.
template <class T, class F> void bias_pointwise(Call& call, F derivative) {
  const Span<const T> dy = call.input<T>("dY"), x = call.input<T>("X"), b = call.input<T>("B");
  const Span<T> dx = call.output<T>("dX");
  const Dim channels = b.size(), rows = channels ? dx.size() / channels : 0;
  const Dim width = channels < kPointwiseGrain ? channels : kPointwiseGrain;
  const Dim blocks = channels ? (channels + width - 1) / width : 0;
  const Dim group = width ? (kPointwiseGrain + width - 1) / width : 1;  // rows per piece
  const bool streamed = 3 * dx.size() * Dim(sizeof(T)) > kStreamBytes;
  call.parallel_for(blocks * ((rows + group - 1) / group), [&](Dim piece) {
    const Dim from = piece % blocks * width,
              count = from + width < channels ? width : channels - from;
    const Dim first = piece / blocks * group, last = first + group < rows ? first + group : rows;
    for (Dim row = first; row < last; ++row) {
      const T *dy_row = dy.data() + row * channels + from,
              *x_row = x.data() + row * channels + from;
      const T* b_row = b.data() + from;
      fill<T>(dx.part(row * channels + from, count), streamed, [&](Dim i, Dim n) ONNXGRAD_LAMBDA {
        return load_some<T>(dy_row + i, n) *
               derivative(load_some<T>(x_row + i, n) + load_some<T>(b_row + i, n));
      });
    }
    stream_done();
  });
}

}  // namespace onnxgrad::ONNXGRAD_ISA
