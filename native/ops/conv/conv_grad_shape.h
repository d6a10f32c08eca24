// ConvShape: one convolution as its gradients see it, checked.
#pragma once
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

// Y[n, g·filters + m, o] =
//   Σ_{c, k} X[n, g·channels + c, o·stride + k·dilation − pad] · W[g·filters + m, c, k]
struct ConvShape {
  Dim images, groups;
  Dim channels, filters;  // per group
  Shape in, out, kernel, stride, dilation,
      pad;  // one entry per spatial dim; pad: before the first element
  int rank() const { return in.rank(); }
  // Turned around, for the algorithms of dX to compute
  // Y (conv_forward.h): W then lies as [channel][filter][tap].
  bool turned = false;
  Shape step;  // from one pixel to the next in what is read; empty for 1
  // Where the taps of a filter and channel begin in W, and how far those of the next channel are.
  Dim taps_at(Dim group, Dim filter, Dim channel) const {
    return (turned ? (group * channels + channel) * filters + filter
                   : (group * filters + filter) * channels + channel) *
           taps();
  }
  Dim channel_pitch() const { return turned ? filters * taps() : taps(); }
  Dim in_size() const { return in.size(); }
  Dim out_size() const { return out.size(); }
  Dim taps() const { return kernel.size(); }
};

// The attributes that Conv and ConvTranspose share.
inline Contract with_kernel_attributes(Contract contract) {
  return contract
      .attr("auto_pad", "NOTSET", {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"},
            "how pads follow from the shapes")
      .attr("dilations", Kind::integers,
            "distance between kernel elements; 1 along each spatial dim when absent")
      .within(1)
      .attr("group", 1, "number of groups that channels and filters are divided into")
      .within(1)
      .attr("kernel_shape", Kind::integers, "the kernel dims; taken from W when absent")
      .within(0, kMaxElements);
}

// What Conv has, and winograd_tile.
inline Contract with_conv_attributes(Contract contract) {
  return with_kernel_attributes(contract)
      .attr("pads", Kind::integers,
            "zeros before each spatial dim, then after each; none when absent")
      .within(0)
      .attr("strides", Kind::integers, "step along each spatial dim; 1 when absent")
      .within(1)
      .attr("winograd_tile", 2,
            "3x3 kernels, float: outputs per Winograd tile and side. 2; 4 is faster on some "
            "shapes at ten times the error; 0 avoids Winograd");
}

// Turned around, and reading pixels that are not neighbours.
inline bool is_strided(const ConvShape& s) {
  for (Dim step : s.step)
    if (step != 1) return true;
  return false;
}

namespace detail {

inline void check_rank(const Call& call, const char* input, const char* pack, const char* what) {
  const int rank = call.dims("in...").rank();
  if (call.dims(pack).rank() != rank)
    call.fail("input " + std::string(input) + " has shape " + to_string(call.shape(input)) +
              ", expected " + std::to_string(rank) + " " + what + " dims (X has shape " +
              to_string(call.shape("X")) + ")");
}
inline void check_ranks(const Call& call) {
  if (call.dims("in...").rank() == 0)
    call.fail("input X has shape " + to_string(call.shape("X")) +
              ", expected at least one spatial dim");
  if (call.contract().input_index("dY") >= 0) check_rank(call, "dY", "out...", "spatial");
  check_rank(call, "W", "kernel...", "kernel");
}

inline Dim check_groups(const Call& call) {
  const Dim group = call.integer("group"), channels = call.dim("C"), per_group = call.dim("Cg"),
            filters = call.dim("M");
  if (channels % group != 0 || channels / group != per_group)
    call.fail("input W has " + std::to_string(per_group) + " channels, expected C / group = " +
              std::to_string(channels) + " / " + std::to_string(group) + " (C from X)");
  if (filters % group != 0)
    call.fail("input W has " + std::to_string(filters) +
              " filters, expected a multiple of group = " + std::to_string(group));
  return group;
}

// A list attribute with one number per spatial dim, or `per_dim` of them; `initial` when absent.
inline Shape checked_list(const Call& call, const char* name, int per_dim, Dim initial) {
  return call.numbers(name, call.dims("in...").rank() * per_dim, initial, "X");
}

inline void check_kernel(const Call& call) {
  const Shape& kernel = call.dims("kernel...");
  for (Dim k : kernel)
    if (k < 1)
      call.fail("input W has shape " + to_string(call.shape("W")) +
                ", expected kernel dims of at least 1");
  const Shape given = checked_list(call, "kernel_shape", 1, 0);
  if (call.given("kernel_shape") && !call.integers("kernel_shape").empty() && given != kernel)
    call.fail("kernel_shape is " + to_string(given) + ", expected " + to_string(kernel) +
              " (from W)");
}

// How many elements one output covers along axis a: the kernel with its dilation.
inline Dim extent(const ConvShape& s, int a) {
  return (s.kernel[a] - 1) * s.dilation[a] + 1;
}

// Sets s.pad and returns the size that dY must have.
//   NOTSET, VALID:  out = ⌊(in + begin + end − extent) / stride⌋ + 1
//   SAME_*:         out = ⌈in / stride⌉, padded as evenly as possible;
//                   an odd one goes after (UPPER) or before (LOWER)
inline Shape resolve_pads(const Call& call, ConvShape& s) {
  const std::string& mode = call.text("auto_pad");
  const Shape given = checked_list(call, "pads", 2, 0);
  Shape out;
  bool differs = false;
  for (int a = 0; a < s.rank(); ++a) {
    Dim begin = given[a], end = given[a + s.rank()];
    if (mode == "VALID") begin = end = 0;
    if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
      const Dim size = (s.in[a] + s.stride[a] - 1) / s.stride[a];
      const Dim missing = (size - 1) * s.stride[a] + extent(s, a) - s.in[a],
                total = missing > 0 ? missing : 0;
      begin = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
      end = total - begin;
      out.push_back(size);
    } else {
      const Dim room = s.in[a] + begin + end - extent(s, a);
      out.push_back(room < 0 ? 0 : room / s.stride[a] + 1);
    }
    s.pad.push_back(begin);
    differs = differs || ((given[a] || given[a + s.rank()]) &&
                          (given[a] != begin || given[a + s.rank()] != end));
  }
  if (differs) call.fail("pads is " + to_string(given) + ", expected none with auto_pad " + mode);
  return out;
}

}  // namespace detail

// The convolution that X, W and the attributes describe; `out` is the size of its result.
inline ConvShape described_conv(const Call& call) {
  detail::check_ranks(call);
  ConvShape s;
  s.images = call.dim("N");
  s.groups = detail::check_groups(call);
  s.channels = call.dim("Cg");
  s.filters = call.dim("M") / s.groups;
  detail::check_kernel(call);
  s.in = call.dims("in...");
  s.kernel = call.dims("kernel...");
  s.stride = detail::checked_list(call, "strides", 1, 1);
  s.dilation = detail::checked_list(call, "dilations", 1, 1);
  s.out = detail::resolve_pads(call, s);
  const std::int64_t tile = call.integer("winograd_tile");
  if (tile != 0 && tile != 2 && tile != 4)
    call.fail("winograd_tile is " + std::to_string(tile) + ", expected 0, 2 or 4");
  return s;
}

inline ConvShape prepare_conv(const Call& call) {
  const ConvShape s = described_conv(call);
  if (call.dims("out...") != s.out)
    call.fail("input dY has spatial dims " + to_string(call.dims("out...")) + ", expected " +
              to_string(s.out) + " (X " + to_string(s.in) + ", kernel " + to_string(s.kernel) +
              ", strides " + to_string(s.stride) + ", dilations " + to_string(s.dilation) +
              ", pads " + to_string(detail::checked_list(call, "pads", 2, 0)) + ", auto_pad " +
              call.text("auto_pad") + ")");
  return s;
}

// A convolution of up to three spatial dims, seen as three: missing dims come first, with size 1.
struct Geometry {
  Dim in[3], out[3], kernel[3], stride[3], dilation[3], pad[3], step[3];
  bool turned;

  explicit Geometry(const ConvShape& s) : turned(s.turned) {
    for (int i = 0; i < 3; ++i) {
      const int a = i - (3 - s.rank());
      in[i] = a < 0 ? 1 : s.in[a];
      out[i] = a < 0 ? 1 : s.out[a];
      kernel[i] = a < 0 ? 1 : s.kernel[a];
      stride[i] = a < 0 ? 1 : s.stride[a];
      dilation[i] = a < 0 ? 1 : s.dilation[a];
      pad[i] = a < 0 ? 0 : s.pad[a];
      step[i] = a < 0 || s.step.rank() == 0 ? 1 : s.step[a];
    }
  }
};

}  // namespace onnxgrad::ONNXGRAD_ISA
