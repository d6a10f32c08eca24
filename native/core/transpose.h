// transpose: out[j][i] = in[i][j], a square of registers at a time.
#pragma once
#include "core/vector.h"

namespace onnxgrad::ONNXGRAD_ISA {

namespace detail {

// Of two registers seen as blocks of `width` lanes, the even blocks of both
// (a0 b0 a2 b2 …) or the odd ones (a1 b1 a3 b3 …). Doing this for width 1,
// 2, 4, … with the partners `width` rows apart transposes a square.
template <int width, bool odd, class T, int... lane>
ONNXGRAD_INLINE Vec<T> interleave(Vec<T> a, Vec<T> b, Lanes<lane...>) {
  constexpr int shift = odd ? width : 0;
  return shuffled<T>(
      a, b,
      Lanes<(lane / width % 2 == 0 ? lane + shift : int(lanes<T>) + lane - width + shift)...>());
}

template <int width, class T> ONNXGRAD_INLINE void transpose_step(Vec<T>* rows) {
  constexpr auto each_lane = EachLane<T>();
#pragma GCC unroll 16
  for (int i = 0; i < int(lanes<T>); ++i)
    if (i / width % 2 == 0) {
      const Vec<T> a = rows[i], b = rows[i + width];
      rows[i] = interleave<width, false, T>(a, b, each_lane);
      rows[i + width] = interleave<width, true, T>(a, b, each_lane);
    }
  if constexpr (2 * width < lanes<T>) transpose_step<2 * width, T>(rows);
}

}  // namespace detail

// A square of lanes × lanes, in registers.
template <class T> ONNXGRAD_INLINE void transpose_square(Vec<T> (&rows)[lanes<T>]) {
  detail::transpose_step<1, T>(rows);
}

// out[j·out_pitch + i] = in[i·in_pitch + j]  for i < rows, j < columns.
template <class T>
void transpose(const T* in, Dim in_pitch, Dim rows, Dim columns, T* out, Dim out_pitch);

}  // namespace onnxgrad::ONNXGRAD_ISA
