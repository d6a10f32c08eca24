#include "core/call.h"

namespace onnxgrad {

void Call::set_dim(std::string_view symbol, Dim value) {
  Symbols::Value& v = symbols_[contract_.symbol_index(symbol)];
  v.bound = true, v.dim = value;
}

void Call::set_dims(std::string_view pack, const Shape& value) {
  Symbols::Value& v = symbols_[contract_.symbol_index(pack)];
  v.bound = true, v.pack = value;
}

int Call::axis(std::string_view attribute, std::string_view input) const {
  const std::int64_t axis = integer(attribute);
  const int rank = shape(input).rank();
  const int limit = rank == 0 ? 1 : rank;
  if (axis < -limit || axis >= limit)
    fail(std::string(attribute) + " is " + std::to_string(axis) + ", expected " +
         std::to_string(-limit) + ".." + std::to_string(limit - 1) + " for " + std::string(input) +
         " of rank " + std::to_string(rank));
  return static_cast<int>(axis < 0 ? axis + limit : axis);
}

namespace {
bool can_be_addressed(const Shape& shape, Dim bytes) {
  for (Dim d : shape)
    if (d == 0) return true;
  for (Dim d : shape)
    if (__builtin_mul_overflow(bytes, d, &bytes)) return false;
  return true;
}
}  // namespace

void Call::allocate() {
  allocated_ = true;
  for (Dim i = 0; i < outputs_.size(); ++i) {
    TensorView& out = outputs_[i];
    if (!out.present) continue;
    const TensorSpec& spec = contract_.outputs()[static_cast<std::size_t>(i)];
    out.type = spec.is_t() ? type_ : spec.fixed;
    out.shape = shape_of(contract_, spec, symbols_);
    if (!can_be_addressed(out.shape, bytes_of(out.type)))
      fail("output " + spec.name + " would have shape " + to_string(out.shape) +
           ", expected at most 2^63 bytes");
  }
  host_.allocate(outputs_);
}

}  // namespace onnxgrad
