// Gates: the first half of an axis decides what, the second half how much of it,
//
//   Y = tanh(A)·σ(B)  in WaveNet,   Y = A·σ(B)  in gated linear units,   X = [A, B] along `axis`.
//
// The two halves lie in blocks of `half` elements, A and B in turn; Y has a block for each pair.
#pragma once
#include "core/dims.h"
#include "core/pointwise.h"
#include "core/vmath.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

inline Contract with_gate_attributes(Contract c) {
  return c.attr("axis", 1, "the axis that is halved")
      .attr("form", "tanh", {"tanh", "linear"},
            "what becomes of the first half before the product");
}

struct GateShape {
  Dim half, all;  // elements of a block, and of Y
  Shape y;

  // Fails where the axis cannot be halved.
  static GateShape of(const Call& call) {
    const int axis = call.axis("axis", "X");
    const Shape& x = call.shape("X");
    if (x.rank() == 0 || x[axis] % 2 != 0)
      call.fail("input X has shape " + to_string(x) + ", expected an even size along axis " +
                std::to_string(call.integer("axis")));
    GateShape s{x.product(axis, x.rank()) / 2, x.size() / 2, Shape{}};
    for (int a = 0; a < x.rank(); ++a) s.y.push_back(a == axis ? x[a] / 2 : x[a]);
    return s;
  }
  // body(first of Y, first of A, count) for runs of elements that lie side by side.
  template <class F> void each_run(Call& call, F&& body) const {
    call.parallel_ranges(all, pointwise_grain(all) / 2, [&](Dim begin, Dim end) {
      for (Dim i = begin; i < end;) {
        const Dim at = i % half, count = smaller_of(end - i, half - at);
        body(i, i / half * 2 * half + at, count);
        i += count;
      }
      stream_done();
    });
  }
};

}  // namespace onnxgrad::ONNXGRAD_ISA
