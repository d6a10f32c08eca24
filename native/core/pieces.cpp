#include "core/pieces.h"

#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

namespace onnxgrad {

int current_core(int otherwise) {
#if defined(__linux__)
  const int core = sched_getcpu();
  if (core >= 0) return core;
#endif
  return otherwise;
}

int core_count() {
  static const int count = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return count;
}

}  // namespace onnxgrad
