#include "ops/gather/gather_family.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& gather_grad_contract() {
  static const Contract c =
      Contract("GatherGrad")
          .summary("Gradient of Gather.")
          .formula("dX[…, r, …] = Σ dY[…, k, …] over the k with indices[k] = r")
          .accuracy(Measure::rms, 2e-6, 1e-13)
          .attr("axis", 0, "the axis that was gathered from")
          .input("shape", "int64[rank]", "the shape of X")
          .input("indices", "I[indices...]",
                 "what Gather was given; negative ones count from the end")
          .input("dY", "T[out...]", "cotangent of Y")
          .output("dX", "T[in...]", "gradient of X");
  return c;
}

template <class T> void gather_grad(Call& call) {
  const Shape in = shape_in(call, "shape");
  const int axis = axis_in(call, in);
  Shape out(in.data(), axis);
  for (Dim d : call.shape("indices")) out.push_back(d);
  for (int a = axis + 1; a < in.rank(); ++a) out.push_back(in[a]);
  check_shape(call, "dY", out, [&] {
    return "shape is " + to_string(in) + ", indices have shape " +
           to_string(call.shape("indices")) + ", axis is " + std::to_string(call.integer("axis"));
  });
  with_index_type(call, "indices", [&](auto zero) {
    using I = decltype(zero);
    check_indices<I>(call, "indices", in[axis]);
    const Span<const I> indices = call.input<I>("indices");
    call.set_dims("in...", in);
    call.end_if_empty();
    Workspace space;
    const SortSpace at = SortSpace::in(space, in[axis], indices.size());
    Workspace::acquire(call, space.bytes());
    T* dx = call.output<T>("dX").data();
    space.open();
    const SortedIndices sorted = sort_indices(
        space, at, in[axis], indices.size(),
        [&](Dim k) ONNXGRAD_LAMBDA { return counted_from_front(indices[k], in[axis]); });
    scatter_sum<T>(call, sorted, in.product(0, axis), in.product(axis + 1, in.rank()),
                   call.input<T>("dY").data(), dx);
  });
}
ONNXGRAD_FLOAT_AND_DOUBLE(gather_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
