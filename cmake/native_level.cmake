# native_level: the best instruction set that the processor of this machine has.
include(CheckCXXSourceRuns)
set(native_level baseline)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64" AND NOT CMAKE_CROSSCOMPILING)
  check_cxx_source_runs("
    int main() {
      return __builtin_cpu_supports(\"avx2\") && __builtin_cpu_supports(\"fma\") ? 0 : 1;
    }" ONNXGRAD_PROCESSOR_HAS_AVX2)
  check_cxx_source_runs("
    int main() {
      return __builtin_cpu_supports(\"avx512f\") && __builtin_cpu_supports(\"avx512bw\") &&
             __builtin_cpu_supports(\"avx512dq\") && __builtin_cpu_supports(\"avx512vl\") ? 0 : 1;
    }" ONNXGRAD_PROCESSOR_HAS_AVX512)
  if(ONNXGRAD_PROCESSOR_HAS_AVX2)
    set(native_level avx2)
  endif()
  if(ONNXGRAD_PROCESSOR_HAS_AVX2 AND ONNXGRAD_PROCESSOR_HAS_AVX512)
    set(native_level avx512)
  endif()
endif()
