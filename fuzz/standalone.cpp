// A harness without libFuzzer, for compilers that have none: `harness FILE…` runs the files,
// `harness --runs N --seed S` runs N random inputs.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int count, char** words) {
  long runs = 0, seed = 1;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(words[i], "--runs") == 0 && i + 1 < count) {
      runs = std::atol(words[++i]);
    } else if (std::strcmp(words[i], "--seed") == 0 && i + 1 < count) {
      seed = std::atol(words[++i]);
    } else {
      std::ifstream file(words[i], std::ios::binary);
      const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    }
  }
  for (long run = 0; run < runs; ++run) {
    std::mt19937 random(static_cast<std::uint32_t>(seed * 1'000'003 + run));  // each by its number
    std::vector<std::uint8_t> bytes(64 + random() % 192);
    for (std::uint8_t& b : bytes) b = static_cast<std::uint8_t>(random());
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  return 0;
}
