#include "ops/conv/conv_grad_choose.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& conv_grad_contract() {
  static const Contract c =
      with_conv_attributes(Contract("ConvGrad"))
          .summary("Gradient of Conv, in any number of spatial dims.")
          .formula(
              "dX[n,c,i] = Σ dY[n,m,o]·W[m,c,k]; dW[m,c,k] = Σ dY[n,m,o]·X[n,c,i]; dBias[m] = Σ "
              "dY[n,m,o]; "
              "the sums over what i = o·stride + k·dilation − pad connects")
          .accuracy(Measure::rms, 1e-6, 1e-14)
          .input("dY", "T[N, M, out...]", "cotangent of Y")
          .input("X", "T[N, C, in...]", "what went into Conv")
          .input("W", "T[M, Cg, kernel...]", "filters; Cg = C / group")
          .optional_output("dX", "T[N, C, in...]", "gradient of X")
          .optional_output("dW", "T[M, Cg, kernel...]", "gradient of W")
          .optional_output("dBias", "T[M]", "gradient of the bias");
  return c;
}

// Working memory of dX and dW at once: where they need more, they run long enough to run alone.
constexpr Dim kTogetherBytes = Dim(24) << 20;

template <class T> void conv_grad(Call& call) {
  const ConvShape s = prepare_conv(call);
  const std::int64_t tile = call.integer("winograd_tile");
  const auto find_dx = call.wants("dX") ? choose_dx<T>(s, tile) : nullptr;
  const auto find_dw = call.wants("dW") ? choose_dw<T>(s, tile) : nullptr;
  const Dim dx_bytes = find_dx ? find_dx->bytes() : 0, dw_bytes = find_dw ? find_dw->bytes() : 0;
  const bool together = find_dx && find_dw && find_dx->stages() && find_dw->stages() &&
                        dx_bytes + dw_bytes <= kTogetherBytes;
  Workspace::acquire(call, together ? dx_bytes + dw_bytes : larger_of(dx_bytes, dw_bytes));

  const Span<const T> dy = call.input<T>("dY"), x = call.input<T>("X"), w = call.input<T>("W");
  const Span<T> dx = call.optional_output<T>("dX"), dw = call.optional_output<T>("dW"),
                dbias = call.optional_output<T>("dBias");
  const bool sums_dy = gives_dbias(find_dw.get(), s);
  const Span<T> dw_dbias = sums_dy ? dbias : Span<T>(), other_dbias = sums_dy ? Span<T>() : dbias;
  BiasGradient<T> find_dbias(s, dy, other_dbias);
  if (together) {
    find_dw->begin(dy, x, dw, dw_dbias, 0);
    find_dx->begin(dy, w, dx, dw_bytes);
    return run_stages(call, {find_dw.get(), &find_dbias, find_dx.get()});
  }
  if (find_dx) find_dx->run(call, dy, w, dx);
  if (find_dw) find_dw->run(call, dy, x, dw, dw_dbias);
  run_stages(call, {&find_dbias});
}
ONNXGRAD_FLOAT_AND_DOUBLE(conv_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
