// Exits with 2 where the processor has AVX-512, with 1 where it has AVX2, else with 0.
#include "core/platform.cpp"

int main() {
  return onnxgrad::processor().avx512 ? 2 : onnxgrad::processor().avx2 ? 1 : 0;
}
