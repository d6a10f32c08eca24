# native_level: the best instruction set that the processor of this machine has, as the library itself will see it.
set(native_level baseline)
if(NOT CMAKE_CROSSCOMPILING)
  if(NOT DEFINED ONNXGRAD_PROCESSOR)
    try_run(ONNXGRAD_PROCESSOR compiled ${CMAKE_BINARY_DIR}/native_level
      ${PROJECT_SOURCE_DIR}/cmake/native_level.cpp
      CMAKE_FLAGS -DINCLUDE_DIRECTORIES=${PROJECT_SOURCE_DIR}/native
      CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON)
  endif()
  if(ONNXGRAD_PROCESSOR EQUAL 1)
    set(native_level avx2)
  elseif(ONNXGRAD_PROCESSOR EQUAL 2)
    set(native_level avx512)
  endif()
endif()
