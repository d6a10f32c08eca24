// Chooses the optimizers that were compiled for the instruction set of the operators.
#include <stdexcept>
#include <string_view>

#include "core/call.h"
#include "train/optimizers.h"

namespace onnxgrad {

template <class T> const Optimizers<T>& optimizers() {
  [[maybe_unused]] const std::string_view level = instruction_set();
#if defined(ONNXGRAD_HAS_avx512)
  if (level == "avx512") return avx512::optimizers<T>();
#endif
#if defined(ONNXGRAD_HAS_avx2)
  if (level == "avx2") return avx2::optimizers<T>();
#endif
#if defined(ONNXGRAD_HAS_baseline)
  return baseline::optimizers<T>();
#else
  throw std::logic_error("no optimizers for this instruction set");
#endif
}
template const Optimizers<float>& optimizers<float>();
template const Optimizers<double>& optimizers<double>();

}  // namespace onnxgrad
