// Chooses the optimizers that were compiled for the instruction set of the operators.
#include <string_view>

#include "core/call.h"
#include "train/optimizers.h"

namespace onnxgrad {

template <class T> const Optimizers<T>& optimizers() {
#if defined(ONNXGRAD_X86_LEVELS)
  const std::string_view level = instruction_set();
  if (level == "avx512") return avx512::optimizers<T>();
  if (level == "avx2") return avx2::optimizers<T>();
#endif
  return baseline::optimizers<T>();
}
template const Optimizers<float>& optimizers<float>();
template const Optimizers<double>& optimizers<double>();

}  // namespace onnxgrad
