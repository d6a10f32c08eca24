#include "core/platform.h"

#if defined(_WIN32)
#define NOMINMAX
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#include <pthread.h>
#include <sched.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <limits>
#include <thread>

namespace onnxgrad {

int current_core(int otherwise) {
#if defined(__linux__)
  const int core = sched_getcpu();
  if (core >= 0) return core;
#elif defined(__APPLE__)
  std::size_t core = 0;
  if (pthread_cpu_number_np(&core) == 0) return static_cast<int>(core);
#elif defined(_WIN32)
  return static_cast<int>(GetCurrentProcessorNumber());
#endif
  return otherwise;
}

int core_count() {
  static const int count = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return count;
}

namespace {

Dim installed_memory() {
#if defined(_WIN32)
  MEMORYSTATUSEX status{};
  status.dwLength = sizeof status;
  if (GlobalMemoryStatusEx(&status)) return static_cast<Dim>(status.ullTotalPhys);
#else
  const Dim pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0) return pages * page;
#endif
  return std::numeric_limits<Dim>::max();
}

// A number in a file of the system; `otherwise` when there is none ("max").
Dim number_in(const char* path, Dim otherwise) {
  std::FILE* file = std::fopen(path, "r");
  if (!file) return otherwise;
  long long number = 0;
  const bool read = std::fscanf(file, "%lld", &number) == 1 && number > 0;
  std::fclose(file);
  return read ? Dim(number) : otherwise;
}

}  // namespace

Dim memory_of_machine() {
  static const Dim bytes = [] {
    const Dim machine = installed_memory();
    Dim least = machine;
    for (const char* limit : {"/sys/fs/cgroup/memory.max",  // of control groups, version 2 and 1
                              "/sys/fs/cgroup/memory/memory.limit_in_bytes"})
      least = std::min(least, number_in(limit, machine));
    return least;
  }();
  return bytes;
}

void in_forked_children([[maybe_unused]] void (*begin_anew)()) {
#if !defined(_WIN32)
  pthread_atfork(nullptr, nullptr, begin_anew);
#endif
}

#if defined(__x86_64__)

namespace {

struct Registers {
  std::uint32_t a, b, c, d;
};
// By hand: the compiler's own __builtin_cpu_supports needs a runtime that clang-cl does not link.
Registers cpuid(std::uint32_t leaf) {
  Registers r{};
  asm volatile("cpuid" : "=a"(r.a), "=b"(r.b), "=c"(r.c), "=d"(r.d) : "a"(leaf), "c"(0));
  return r;
}
// Which registers the system saves when it switches threads.
std::uint32_t saved_registers() {
  std::uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}
bool has(std::uint32_t set, std::initializer_list<int> bits) {
  return std::all_of(bits.begin(), bits.end(), [&](int bit) { return (set >> bit) & 1u; });
}

Processor look() {
  if (cpuid(0).a < 7) return {false, false};
  const Registers old = cpuid(1), extended = cpuid(7);
  if (!has(old.c, {12, 27, 28})) return {false, false};  // FMA, OSXSAVE, AVX
  const std::uint32_t saved = saved_registers();
  const bool avx2 = has(extended.b, {5}) && has(saved, {1, 2});     // xmm and ymm
  const bool avx512 = avx2 && has(extended.b, {16, 17, 30, 31}) &&  // F, DQ, BW, VL
                      has(saved, {5, 6, 7});                        // masks, zmm
  return {avx2, avx512};
}

}  // namespace

const Processor& processor() {
  static const Processor found = look();
  return found;
}

#else

const Processor& processor() {
  static const Processor found{false, false};
  return found;
}

#endif

}  // namespace onnxgrad
