// What the gradients of the gathering operators share: the shape of X as
// an input, and indices that are checked before anything is written.
#pragma once
#include "core/scatter.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

// The shape that `input` holds, within the bounds of a tensor.
inline Shape shape_in(const Call& call, std::string_view input) {
  const Span<const std::int64_t> dims = call.input<std::int64_t>(input);
  return checked_shape(
      call.contract(), [&] { return "input " + std::string(input) + " is "; }, dims.data(),
      static_cast<std::size_t>(dims.size()));
}

inline int axis_in(const Call& call, const Shape& shape) {
  const std::int64_t axis = call.integer("axis");
  const int rank = shape.rank();
  if (axis < -rank || axis >= rank)
    call.fail("axis is " + std::to_string(axis) + ", expected " + std::to_string(-rank) + ".." +
              std::to_string(rank - 1) + " for shape " + to_string(shape));
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

// Where element `k` of a tensor of this shape stands: "[1, 0, 2]".
inline std::string place_of(const Shape& shape, Dim k) {
  Shape at = shape;
  for (int a = shape.rank() - 1; a >= 0; --a) at[a] = k % shape[a], k /= shape[a];
  return to_string(at);
}

template <class I> ONNXGRAD_INLINE Dim counted_from_front(I index, Dim limit) {
  return index < 0 ? Dim(index) + limit : Dim(index);
}

// Fails unless every index is in [-limit, limit).
template <class I> void check_indices(const Call& call, std::string_view input, Dim limit) {
  const Span<const I> indices = call.input<I>(input);
  for (Dim k = 0; k < indices.size(); ++k)
    if (Dim(indices[k]) < -limit || Dim(indices[k]) >= limit)
      call.fail("input " + std::string(input) + " has the value " + std::to_string(indices[k]) +
                " at " + place_of(call.shape(input), k) + ", expected " +
                (limit == 0 ? "no index into an axis of size 0"
                            : std::to_string(-limit) + ".." + std::to_string(limit - 1)));
}

// f(I()) with I the type of `input`.
template <class F> void with_index_type(const Call& call, std::string_view input, F&& f) {
  if (call.type(input) == DType::int32)
    f(std::int32_t());
  else
    f(std::int64_t());
}

// `because()` says why; it is asked only when the shape is wrong.
template <class F>
void check_shape(const Call& call, std::string_view input, const Shape& expected, F&& because) {
  if (call.shape(input) != expected)
    call.fail("input " + std::string(input) + " has shape " + to_string(call.shape(input)) +
              ", expected " + to_string(expected) + " (" + because() + ")");
}

}  // namespace onnxgrad::ONNXGRAD_ISA
