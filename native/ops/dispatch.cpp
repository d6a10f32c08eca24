// Chooses the table of operators, once, by what the processor can do.
#include <cstdlib>
#include <cstring>

#include "ops/table.h"

namespace onnxgrad {

namespace {

struct Level {
  const char* name;
  bool available;
  Span<const Op> (*table)();
};

const Level& chosen() {
  static const Level level = [] {
#if defined(ONNXGRAD_X86_LEVELS)
    __builtin_cpu_init();
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool has_avx512 =
        has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    const Level levels[] = {{"avx512", has_avx512, &avx512::table},
                            {"avx2", has_avx2, &avx2::table},
                            {"baseline", true, &baseline::table}};
#else
    const Level levels[] = {{"baseline", true, &baseline::table}};
#endif
    const char* wish = std::getenv("ONNXGRAD_ISA");
    for (const Level& l :
         levels)  // a wish that this processor cannot fulfil, or that is no level, is ignored
      if (wish && l.available && std::strcmp(wish, l.name) == 0) return l;
    for (const Level& l : levels)
      if (l.available) return l;
    return levels[0];
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
