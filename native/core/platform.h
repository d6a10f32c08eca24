// What differs between operating systems and processors, outside of vector.h.
#pragma once
#include "core/span.h"

namespace onnxgrad {

// The core that runs this thread; `otherwise` where the system does not say.
int current_core(int otherwise);
// How many cores this process may use; asked once.
int core_count();

// Of the machine, or of the container that the process runs in where that is less; asked once.
Dim memory_of_machine();

// Calls `begin_anew` in every child that is forked from now on; nothing where no process forks.
void in_forked_children(void (*begin_anew)());

// The x86 instruction sets that are compiled for, where the processor
// has them and the system saves their registers; asked once.
struct Processor {
  bool avx2, avx512;
};
const Processor& processor();

// In a loop that waits for another core: leaves it the units that both share.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace onnxgrad
