// Chooses the table of operators, once, by what the processor can do.
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "core/platform.h"
#include "ops/table.h"

namespace onnxgrad {

namespace {

struct Level {
  const char* name;
  bool available;
  Span<const Op> (*table)();
};

// What was compiled (ONNXGRAD_LEVELS), best first.
const Level& chosen() {
  static const Level level = [] {
    const Level levels[] = {
#if defined(ONNXGRAD_HAS_avx512)
        {"avx512", processor().avx512, &avx512::table},
#endif
#if defined(ONNXGRAD_HAS_avx2)
        {"avx2", processor().avx2, &avx2::table},
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
