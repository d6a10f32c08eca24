// Arithmetic on sizes and places.
#pragma once
#include "core/span.h"

namespace onnxgrad {

constexpr Dim divide_up(Dim a, Dim b) {
  return (a + b - 1) / b;
}
constexpr Dim smaller_of(Dim a, Dim b) {
  return a < b ? a : b;
}
constexpr Dim larger_of(Dim a, Dim b) {
  return a > b ? a : b;
}
constexpr Dim clamp(Dim x, Dim low, Dim high) {
  return smaller_of(larger_of(x, low), high);
}

}  // namespace onnxgrad
