// Chooses the table of operators, once, by what the processor can do.
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "ops/table.h"

namespace onnxgrad {

namespace {

struct Level {
  const char* name;
  bool available;
  Span<const Op> (*table)();
};

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

// What was compiled (ONNXGRAD_LEVELS), best first.
const Level& chosen() {
  static const Level level = [] {
#if defined(__x86_64__)
    __builtin_cpu_init();
#endif
    const Level levels[] = {
#if defined(ONNXGRAD_HAS_avx512)
        {"avx512", has_avx512(), &avx512::table},
#endif
#if defined(ONNXGRAD_HAS_avx2)
        {"avx2", has_avx2(), &avx2::table},
#endif
#if defined(ONNXGRAD_HAS_baseline)
        {"baseline", true, &baseline::table},
#endif
    };
    // ONNXGRAD_ISA asks for one of them; a level that is not there is ignored.
    const char* wanted = std::getenv("ONNXGRAD_ISA");
    for (const Level& l : levels)
      if (wanted && l.available && std::strcmp(wanted, l.name) == 0) return l;
    for (const Level& l : levels)
      if (l.available) return l;
    throw std::runtime_error(std::string("onnxgrad was built for ") + levels[0].name +
                             " only, which this processor lacks: build it again here, or with "
                             "ONNXGRAD_LEVELS=all");
  }();
  return level;
}

}  // namespace

Span<const Op> ops() {
  return chosen().table();
}
const char* instruction_set() {
  return chosen().name;
}

}  // namespace onnxgrad
