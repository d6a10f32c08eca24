#include "core/tensor.h"

namespace onnxgrad {

static_assert(kMaxRank == 32 && kMaxElements == Dim(1) << 38 && kMaxDimsOfNothing == Dim(1) << 28,
              "the texts below say these numbers");

const char* broken_bound(const Dim* dims, std::size_t rank) {
  if (rank > static_cast<std::size_t>(kMaxRank)) return "at most 32 dims";
  bool empty = false;
  Dim most = 1;  // the product of the dims other than 0; kMaxElements + 1 when it is more
  for (std::size_t i = 0; i < rank; ++i) {
    if (dims[i] < 0) return "no negative dim";
    if (dims[i] == 0)
      empty = true;
    else
      most = dims[i] > kMaxElements / most ? kMaxElements + 1 : most * dims[i];
  }
  if (empty && most > kMaxDimsOfNothing)
    return "at most 2^28 as the product of the dims beside a 0";
  return most > kMaxElements ? "at most 2^38 elements" : nullptr;
}

std::string to_string(const Dim* dims, std::size_t rank) {
  const std::size_t shown = rank <= static_cast<std::size_t>(kShapeCapacity) ? rank : kMaxRank;
  std::string text = "[";
  for (std::size_t i = 0; i < shown; ++i) text += (i ? ", " : "") + std::to_string(dims[i]);
  return text + (shown < rank ? ", … " + std::to_string(rank) + " dims]" : "]");
}

}  // namespace onnxgrad
