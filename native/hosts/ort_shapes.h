// Shapes that follow from other shapes, told to ONNX Runtime for its memory plan.
#pragma once
#include "hosts/ort_attributes.h"

namespace onnxgrad {
namespace {

struct KnownDims {
  std::vector<std::int64_t> sizes;
  std::vector<std::string> names;
};

// The dims of input `index`; nothing when its rank is unknown
// (which looks like rank 0) or a dim has neither size nor name.
bool read_dims(const ort::InferContext* context, std::size_t index, KnownDims& dims) {
  ort::TypeShape* shape = nullptr;
  if (ort::Status* status = ort::InferInput::call(context, index, &shape))
    return ort::ReleaseStatus::call(status), false;
  if (!shape) return false;
  std::size_t rank = 0;
  must<ort::GetRank>(static_cast<const ort::TypeShape*>(shape), &rank);
  if (rank == 0) return false;
  std::vector<const char*> names(rank, nullptr);
  dims.sizes.resize(rank);
  must<ort::GetDims>(static_cast<const ort::TypeShape*>(shape), dims.sizes.data(), rank);
  must<ort::GetDimNames>(static_cast<const ort::TypeShape*>(shape), names.data(), rank);
  for (std::size_t i = 0; i < rank; ++i) {
    dims.names.emplace_back(names[i] ? names[i] : "");
    if (dims.sizes[i] < 0 && dims.names[i].empty()) return false;
  }
  return true;
}

// Appends the dims that `wanted` stands for, taken from an input that has the same axis.
bool find_axis(const Contract& c, const ort::InferContext* context, const Axis& wanted,
               KnownDims& found) {
  if (wanted.symbol < 0)
    return found.sizes.push_back(wanted.factor), found.names.emplace_back(), true;
  for (std::size_t input = 0; input < c.inputs().size(); ++input) {
    const TensorSpec& spec = c.inputs()[input];
    if (spec.optional) continue;
    std::size_t at = 0;
    for (const Axis& axis : spec.axes) {
      if (axis.symbol == wanted.symbol && axis.factor == wanted.factor) {
        KnownDims dims;
        if (!read_dims(context, input, dims)) return false;
        const std::size_t fixed = static_cast<std::size_t>(spec.fixed_rank());
        if (dims.sizes.size() < fixed) return false;
        const std::size_t count = axis.pack ? dims.sizes.size() - fixed : 1;
        // an axis after the pack is counted from the end
        bool after_pack = false;
        for (const Axis& other : spec.axes) {
          if (&other == &axis) break;
          after_pack = after_pack || other.pack;
        }
        const std::size_t from = after_pack ? at + dims.sizes.size() - fixed : at;
        for (std::size_t k = 0; k < count; ++k) {
          found.sizes.push_back(dims.sizes[from + k]);
          found.names.push_back(dims.names[from + k]);
        }
        return true;
      }
      at += axis.pack ? 0 : 1;
    }
  }
  return false;
}

void set_output(const ort::InferContext* context, std::size_t index, ort::ElementType type,
                const KnownDims& dims) {
  ort::TypeShape* shape = nullptr;
  must<ort::CreateTypeShape>(&shape);
  std::vector<const char*> names;
  for (const std::string& name : dims.names) names.push_back(name.c_str());
  must<ort::SetElementType>(shape, static_cast<int>(type));
  must<ort::SetDims>(shape, dims.sizes.data(), dims.sizes.size());
  must<ort::SetDimNames>(shape, names.data(), names.size());
  must<ort::InferOutput>(context, index, static_cast<const ort::TypeShape*>(shape));
  ort::ReleaseTypeShape::call(shape);
}

// The element type of an output, from a required input of the same type;
// undefined when there is none. The runtime asks one descriptor of an operator
// for all of its types, so the descriptor's own types say nothing here.
ort::ElementType find_type(const Contract& c, const ort::InferContext* context,
                           const TensorSpec& output) {
  for (std::size_t input = 0; input < c.inputs().size(); ++input) {
    if (c.inputs()[input].optional || c.inputs()[input].type != output.type) continue;
    ort::TypeShape* shape = nullptr;
    must<ort::InferInput>(context, input, &shape);
    ort::ElementType type = ort::kUndefined;
    if (shape) must<ort::GetElementType>(static_cast<const ort::TypeShape*>(shape), &type);
    return type;
  }
  return ort::kUndefined;
}

// Only required leading outputs: telling the shape
// of one that a node lacks ends the process up to 1.27.
void infer_shapes(const Contract& c, const ort::InferContext* context) {
  for (std::size_t i = 0; i < c.outputs().size() && !c.outputs()[i].optional; ++i) {
    KnownDims dims;
    const ort::ElementType type = find_type(c, context, c.outputs()[i]);
    bool known = type != ort::kUndefined;
    for (const Axis& axis : c.outputs()[i].axes) known = known && find_axis(c, context, axis, dims);
    if (known) set_output(context, i, type, dims);
  }
}

}  // namespace
}  // namespace onnxgrad
