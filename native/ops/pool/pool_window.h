// The sliding windows of a pooling operator, from its attributes.
#pragma once
#include "core/scatter.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

struct Window {
  Dim in, out, kernel, stride, dilation, before, after;
};

// One number per spatial dim (or `per_dim` of them), all at least `least`; `initial` when absent.
inline Shape checked_numbers(const Call& call, const char* name, const char* input, int per_dim,
                             Dim least, Dim initial) {
  const int spatial = call.shape(input).rank() - 2;
  const Integers given = call.integers(name);
  Shape list;
  for (int i = 0; i < spatial * per_dim; ++i) list.push_back(initial);
  if (given.empty()) return list;
  if (static_cast<int>(given.size()) != spatial * per_dim)
    call.fail(std::string(name) + " is " + to_string(Attribute(given)) + ", expected " +
              std::to_string(spatial * per_dim) + " numbers (" + input + " has shape " +
              to_string(call.shape(input)) + ")");
  for (int i = 0; i < spatial * per_dim; ++i) {
    list[i] = given[static_cast<std::size_t>(i)];
    if (list[i] < least || list[i] > (Dim(1) << 31))
      call.fail(std::string(name) + " is " + to_string(Attribute(given)) +
                ", expected numbers of at least " + std::to_string(least));
  }
  return list;
}

// The number of windows; sets the padding where auto_pad decides it.
inline Dim windows(const std::string& mode, bool ceil, Window& w) {
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

}  // namespace onnxgrad::ONNXGRAD_ISA
