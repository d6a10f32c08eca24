// The sliding windows of a pooling operator, from its attributes.
#pragma once
#include <vector>

#include "core/scatter.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

// The attributes that pooling operators share.
inline Contract with_window_attributes(Contract contract) {
  return contract.attr("kernel_shape", Kind::integers, "the window, one number per spatial dim")
      .within(1)
      .attr("strides", Kind::integers, "step along each spatial dim; 1 when absent")
      .within(1)
      .attr("auto_pad", "NOTSET", {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"},
            "how pads follow from the shapes")
      .attr("pads", Kind::integers,
            "padding before each spatial dim, then after each; none when absent")
      .within(0);
}

struct Window {
  Dim in, out, kernel, stride, dilation, before, after;
};

// The number of windows; sets the padding where auto_pad decides it.
inline Dim count_windows(const std::string& mode, bool ceil, Window& w) {
  const Dim extent = (w.kernel - 1) * w.dilation + 1;
  if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
    const Dim out = divide_up(w.in, w.stride),
              total = larger_of(0, (out - 1) * w.stride + extent - w.in);
    w.before = mode == "SAME_UPPER" ? total / 2 : total - total / 2, w.after = total - w.before;
    return out;
  }
  if (mode == "VALID") w.before = w.after = 0;
  const Dim room = w.in + w.before + w.after - extent;
  if (room < 0) return 0;
  Dim out = (ceil ? divide_up(room, w.stride) : room / w.stride) + 1;
  if (ceil && (out - 1) * w.stride >= w.in + w.before)
    --out;  // a window that begins after the data is left out
  return out;
}

// The windows along the spatial dims of `input`; `in` holds the sizes of these dims in X.
inline std::vector<Window> windows_of(const Call& call, const char* input, const Dim* in) {
  const int spatial = call.shape(input).rank() - 2;
  if (call.integers("kernel_shape").empty()) call.fail("kernel_shape is missing");
  const Shape kernel = call.numbers("kernel_shape", spatial, 1, input),
              stride = call.numbers("strides", spatial, 1, input),
              dilation = call.numbers("dilations", spatial, 1, input),
              pads = call.numbers("pads", 2 * spatial, 0, input);
  std::vector<Window> list;
  for (int a = 0; a < spatial; ++a) {
    Window w{in[a], 0, kernel[a], stride[a], dilation[a], pads[a], pads[a + spatial]};
    w.out = count_windows(call.text("auto_pad"), call.integer("ceil_mode") != 0, w);
    list.push_back(w);
  }
  return list;
}

}  // namespace onnxgrad::ONNXGRAD_ISA
