#include "core/transpose.h"

namespace onnxgrad::ONNXGRAD_ISA {

template <class T>
void transpose(const T* in, Dim in_pitch, Dim rows, Dim columns, T* out, Dim out_pitch) {
  constexpr Dim n = lanes<T>;
  for (Dim i = 0; i < rows; i += n)
    for (Dim j = 0; j < columns; j += n) {
      const Dim height = rows - i < n ? rows - i : n, width = columns - j < n ? columns - j : n;
      Vec<T> square[n];
      if (height == n && width == n) {
#pragma GCC unroll 16
        for (int k = 0; k < int(n); ++k) square[k] = load<T>(in + (i + k) * in_pitch + j);
        transpose_square<T>(square);
#pragma GCC unroll 16
        for (int k = 0; k < int(n); ++k) store<T>(out + (j + k) * out_pitch + i, square[k]);
        continue;
      }
#pragma GCC unroll 16
      for (int k = 0; k < int(n); ++k)
        square[k] = k < height ? load_some<T>(in + (i + k) * in_pitch + j, width) : Vec<T>{};
      transpose_square<T>(square);
#pragma GCC unroll 16
      for (int k = 0; k < int(n); ++k)
        if (k < width) store_some<T>(out + (j + k) * out_pitch + i, square[k], height);
    }
}

template void transpose<float>(const float*, Dim, Dim, Dim, float*, Dim);
template void transpose<double>(const double*, Dim, Dim, Dim, double*, Dim);

}  // namespace onnxgrad::ONNXGRAD_ISA
