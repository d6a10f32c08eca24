#include "ops/gather/gather_family.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& gather_nd_grad_contract() {
  static const Contract c = Contract("GatherNDGrad")
                                .summary("Gradient of GatherND.")
                                .formula(
                                    "output[b, r] = Σ update[b, k] over the k with indices[b, k] = "
                                    "r; r counts the leading dims after the batch")
                                .accuracy(Measure::rms, 2e-6, 1e-13)
                                .attr("batch_dims", 0, "leading dims that indices and X share")
                                .input("shape", "int64[rank]", "the shape of X")
                                .input("indices", "I[tuples..., depth]",
                                       "what GatherND was given: each last row is a place in X; "
                                       "negative ones count from the end")
                                .input("update", "T[out...]", "cotangent of Y")
                                .output("output", "T[in...]", "gradient of X");
  return c;
}

namespace {

// X as [batch…, reached…, slice…]: the tuples of `indices` reach into `depth` dims after the batch.
struct Reach {
  Shape in;
  int batch, depth;
  Dim tuples, tuples_per_batch, rows_per_batch, slice;
};

Reach prepare(const Call& call) {
  Reach r;
  r.in = shape_in(call, "shape");
  const Shape& indices = call.shape("indices");
  const std::int64_t batch = call.integer("batch_dims");
  const Dim depth = call.dim("depth");
  const int most = (indices.rank() - 1 < r.in.rank() ? indices.rank() - 1 : r.in.rank());
  if (batch < 0 || batch > most)
    call.fail("batch_dims is " + std::to_string(batch) + ", expected 0.." + std::to_string(most) +
              " (shape is " + to_string(r.in) + ", indices have shape " + to_string(indices) + ")");
  r.batch = static_cast<int>(batch);
  if (depth < 1 || depth > r.in.rank() - batch)
    call.fail("input indices has shape " + to_string(indices) + ", expected a last dim of 1.." +
              std::to_string(r.in.rank() - batch) + " (shape is " + to_string(r.in) +
              ", batch_dims is " + std::to_string(batch) + ")");
  r.depth = static_cast<int>(depth);
  for (int a = 0; a < r.batch; ++a)
    if (indices[a] != r.in[a])
      call.fail("input indices has shape " + to_string(indices) +
                ", expected it to begin with the batch dims of shape " + to_string(r.in));
  Shape out(indices.data(), indices.rank() - 1);
  for (int a = r.batch + r.depth; a < r.in.rank(); ++a) out.push_back(r.in[a]);
  check_shape(call, "update", out, [&] {
    return "shape is " + to_string(r.in) + ", indices have shape " + to_string(indices) +
           ", batch_dims is " + std::to_string(batch);
  });
  r.tuples = indices.product(0, indices.rank() - 1);
  r.tuples_per_batch = indices.product(r.batch, indices.rank() - 1);
  r.rows_per_batch = r.in.product(r.batch, r.batch + r.depth);
  r.slice = r.in.product(r.batch + r.depth, r.in.rank());
  return r;
}

template <class I> void check_tuples(const Call& call, const Reach& r) {
  const Span<const I> indices = call.input<I>("indices");
  for (Dim k = 0; k < indices.size(); ++k) {
    const int axis = r.batch + static_cast<int>(k % r.depth);
    const Dim limit = r.in[axis];
    if (Dim(indices[k]) < -limit || Dim(indices[k]) >= limit)
      call.fail("input indices has the value " + std::to_string(indices[k]) + " at " +
                place_of(call.shape("indices"), k) + ", expected " + std::to_string(-limit) + ".." +
                std::to_string(limit - 1) + " for axis " + std::to_string(axis) + " of shape " +
                to_string(r.in));
  }
}

}  // namespace

template <class T> void gather_nd_grad(Call& call) {
  const Reach r = prepare(call);
  with_index_type(call, "indices", [&](auto zero) {
    using I = decltype(zero);
    check_tuples<I>(call, r);
    const I* indices = call.input<I>("indices").data();
    const Dim rows = r.in.product(0, r.batch) * r.rows_per_batch;
    call.set_dims("in...", r.in);
    call.end_if_empty();
    Workspace space;
    const SortSpace at = SortSpace::in(space, rows, r.tuples);
    Workspace::acquire(call, space.bytes());
    T* dx = call.output<T>("output").data();
    space.open();
    const SortedIndices sorted =
        sort_indices(space, at, rows, r.tuples, [&](Dim k) ONNXGRAD_LAMBDA {
          Dim row = k / r.tuples_per_batch;
          for (int d = 0; d < r.depth; ++d) {
            const Dim limit = r.in[r.batch + d];
            row = row * limit + counted_from_front(indices[k * r.depth + d], limit);
          }
          return row;
        });
    scatter_sum<T>(call, sorted, 1, r.slice, call.input<T>("update").data(), dx);
  });
}
ONNXGRAD_FLOAT_AND_DOUBLE(gather_nd_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
