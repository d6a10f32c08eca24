#include "ops/conv/conv_transpose_grad.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& conv_transpose_grad_contract() {
  static const Contract c =
      with_kernel_attributes(Contract("ConvTransposeGrad"))
          .summary("Gradient of ConvTranspose, in any number of spatial dims.")
          .formula(
              "dX[n,c,i] = Σ dY[n,m,o]·W[c,m,k]; dW[c,m,k] = Σ X[n,c,i]·dY[n,m,o]; dBias[m] = Σ "
              "dY[n,m,o]; "
              "the sums over what o = i·stride + k·dilation − pad connects")
          .accuracy(Measure::rms, 2e-6, 1e-13)
          .attr("output_padding", Kind::integers,
                "elements added after each spatial dim of Y; none when absent")
          .within(0)
          .attr("output_shape", Kind::integers, "the spatial dims of Y; pads follow from it")
          .within(0, kMaxElements)
          .attr(
              "pads", Kind::integers,
              "elements taken away before each spatial dim of Y, then after each; none when absent")
          .within(0)
          .attr("strides", Kind::integers, "step along each spatial dim; 1 when absent")
          .within(1)
          .input("dY", "T[N, M, out...]", "cotangent of Y")
          .input("X", "T[N, C, in...]", "what went into ConvTranspose")
          .input("W", "T[C, Mg, kernel...]", "filters; Mg = M / group")
          .optional_output("dX", "T[N, C, in...]", "gradient of X")
          .optional_output("dW", "T[C, Mg, kernel...]", "gradient of W")
          .optional_output("dBias", "T[M]", "gradient of the bias");
  return c;
}

namespace {

Dim check_transposed_groups(const Call& call) {
  const Dim group = call.integer("group"), channels = call.dim("C"), filters = call.dim("M"),
            per_group = call.dim("Mg");
  if (channels % group != 0)
    call.fail("group is " + std::to_string(group) +
              ", expected a divisor of C = " + std::to_string(channels) + " (from X)");
  if (per_group * group != filters)
    call.fail("input W has " + std::to_string(per_group) +
              " filters per group, expected M / group = " + std::to_string(filters) + " / " +
              std::to_string(group) + " (M from dY)");
  return group;
}

// Sets s.pad and returns the size that dY must have:
//   out = (in − 1)·stride + extent + output_padding − begin − end
// SAME_* and output_shape fix `out` and divide what is to be
// taken away; the odd one goes after (UPPER) or before.
Shape resolve_transposed_pads(const Call& call, ConvShape& s) {
  const std::string& mode = call.text("auto_pad");
  const Shape pads = detail::checked_list(call, "pads", 2, 0),
              extra = detail::checked_list(call, "output_padding", 1, 0);
  const Shape wanted = detail::checked_list(call, "output_shape", 1, 0);
  Shape size;
  for (int a = 0; a < s.rank(); ++a) {
    const Dim full = (s.out[a] - 1) * s.stride[a] + detail::extent(s, a) + extra[a];
    const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER",
               fixed = call.given("output_shape");
    if (!same && !fixed) {
      const Dim begin = mode == "VALID" ? 0 : pads[a],
                end = mode == "VALID" ? 0 : pads[a + s.rank()];
      s.pad.push_back(begin), size.push_back(full - begin - end);
      continue;
    }
    size.push_back(fixed ? wanted[a] : s.out[a] * s.stride[a]);
    const Dim total = larger_of(full - size[a], 0);
    s.pad.push_back(mode == "SAME_UPPER" ? total / 2 : total - total / 2);
  }
  return size;
}

// The convolution from Y to X: `in` is Y's size,
// `out` is X's, channels are M / group, filters C / group.
ConvShape prepare(const Call& call) {
  detail::check_ranks(call);
  detail::check_kernel(call);
  ConvShape s;
  s.images = call.dim("N"), s.groups = check_transposed_groups(call);
  s.channels = call.dim("Mg"), s.filters = call.dim("C") / s.groups;
  s.in = call.dims("out..."), s.out = call.dims("in..."), s.kernel = call.dims("kernel...");
  s.stride = detail::checked_list(call, "strides", 1, 1),
  s.dilation = detail::checked_list(call, "dilations", 1, 1);
  const Shape expected = resolve_transposed_pads(call, s);
  if (s.in != expected)
    call.fail("input dY has spatial dims " + to_string(s.in) + ", expected " + to_string(expected) +
              " (X " + to_string(s.out) + ", kernel " + to_string(s.kernel) + ", strides " +
              to_string(s.stride) + ", dilations " + to_string(s.dilation) + ", pads " +
              to_string(detail::checked_list(call, "pads", 2, 0)) + ", auto_pad " +
              call.text("auto_pad") + ")");
  return s;
}

// dBias: dY is the input of the convolution, so its planes are summed as those of a bias.
template <class T> void set_dbias(Call& call, const ConvShape& s, Span<const T> dy, Span<T> dbias) {
  ConvShape as_output = s;
  as_output.filters = s.channels, as_output.out = s.in;
  BiasGradient<T> find_dbias(as_output, dy, dbias);
  run_stages(call, {&find_dbias});
}

}  // namespace

template <class T> void conv_transpose_grad(Call& call) {
  const ConvShape s = prepare(call);
  if (s.channels * s.taps() > 0 && s.channels * s.in_size() > (Dim(1) << 29))
    call.fail("input dY has shape " + to_string(call.shape("dY")) +
              ", expected at most 2^29 elements per image and group");
  TransposeGradients<T> gradients(s, call.wants("dX"), call.wants("dW"));
  Workspace::acquire(call, gradients.bytes());
  const Span<const T> dy = call.input<T>("dY"), x = call.input<T>("X"), w = call.input<T>("W");
  const Span<T> dx = call.optional_output<T>("dX"), dw = call.optional_output<T>("dW"),
                dbias = call.optional_output<T>("dBias");
  gradients.run(call, dy, x, w, dx, dw, gradients.gives_dbias() ? dbias : Span<T>());
  if (dbias && !gradients.gives_dbias()) set_dbias<T>(call, s, dy, dbias);
}
ONNXGRAD_FLOAT_AND_DOUBLE(conv_transpose_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
