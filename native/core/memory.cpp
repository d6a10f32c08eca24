#include "core/memory.h"

#include <unistd.h>

#include <cstdio>
#include <initializer_list>
#include <limits>

#include "core/dims.h"

namespace onnxgrad {

namespace {

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
    const Dim pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
    const Dim machine = pages > 0 && page > 0 ? pages * page : std::numeric_limits<Dim>::max();
    Dim least = machine;
    for (const char* limit : {"/sys/fs/cgroup/memory.max",  // of control groups, version 2 and 1
                              "/sys/fs/cgroup/memory/memory.limit_in_bytes"})
      least = smaller_of(least, number_in(limit, machine));
    return least;
  }();
  return bytes;
}

}  // namespace onnxgrad
