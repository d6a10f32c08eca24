// The columns of a row sorted by their residue modulo a stride,
// so that what lies `stride` apart becomes neighbours.
#pragma once
#include "core/reduce.h"
#include "core/vector.h"

namespace onnxgrad::ONNXGRAD_ISA {

namespace detail {

// Lanes first, first + 2, first + 4 … of a and b, seen as one row.
template <int first, class T, int... lane>
ONNXGRAD_INLINE Vec<T> every_second(Vec<T> a, Vec<T> b, Lanes<lane...>) {
  return shuffled<T>(a, b, Lanes<(2 * lane + first)...>());
}

// The lanes of a and b in turns: the first half of them, or the second.
template <bool second, class T, int... lane>
ONNXGRAD_INLINE Vec<T> in_turns(Vec<T> a, Vec<T> b, Lanes<lane...>) {
  constexpr int half = int(lanes<T>) / 2, shift = second ? half : 0;
  return shuffled<T>(a, b,
                     Lanes<(lane % 2 ? int(lanes<T>) + lane / 2 + shift : lane / 2 + shift)...>());
}

// to[0, 1, 2 …] = from[0, 2, 4 …] and
// beside[0, 1, 2 …] = from[1, 3, 5 …]; `count` elements are read.
template <class T> void split_pairs(const T* from, Dim count, T* to, T* beside) {
  constexpr auto each_lane = EachLane<T>();
  Dim i = 0;
  for (; i + 2 * lanes<T> <= count; i += 2 * lanes<T>) {
    const Vec<T> a = load<T>(from + i), b = load<T>(from + i + lanes<T>);
    store<T>(to + i / 2, every_second<0, T>(a, b, each_lane));
    store<T>(beside + i / 2, every_second<1, T>(a, b, each_lane));
  }
  const Dim rest = count - i;
  if (rest == 0) return;
  const Vec<T> a = load_some<T>(from + i, smaller_of(rest, lanes<T>));
  const Vec<T> b = rest > lanes<T> ? load_part<T>(from + i + lanes<T>, rest - lanes<T>) : Vec<T>{};
  store_some<T>(to + i / 2, every_second<0, T>(a, b, each_lane), (rest + 1) / 2);
  if (rest > 1) store_part<T>(beside + i / 2, every_second<1, T>(a, b, each_lane), rest / 2);
}

}  // namespace detail

// Column i goes to to[i % stride · pitch + i / stride], for the columns [first, last) of a row.
template <class T>
void sort_columns(const T* row, Dim first, Dim last, Dim stride, Dim pitch, T* to) {
  if (first >= last) return;
  if (stride == 1) {
    Dim i = first;
    for (; i + lanes<T> <= last; i += lanes<T>) store<T>(to + i, load<T>(row + i));
    if (i < last) store_part<T>(to + i, load_part<T>(row + i, last - i), last - i);
  } else if (stride == 2) {
    T *even = to + first % 2 * pitch + first / 2,
      *odd = to + (first + 1) % 2 * pitch + (first + 1) / 2;
    detail::split_pairs(row + first, last - first, even, odd);
  } else {
    for (Dim i = first; i < smaller_of(first + stride, last); ++i) {
      T* column = to + i % stride * pitch + i / stride;
      for (Dim at = i; at < last; at += stride) *column++ = row[at];
    }
  }
}

// The reverse for a whole row: row[i] = from[i % stride · pitch + i / stride]
// for i < count. May read up to a register beyond the end of a residue.
template <class T> void merge_columns(const T* from, Dim count, Dim stride, Dim pitch, T* row) {
  if (stride != 2) {
    for (Dim r = 0; r < stride; ++r)
      for (Dim i = r; i < count; i += stride) row[i] = from[r * pitch + i / stride];
    return;
  }
  constexpr auto each_lane = EachLane<T>();
  for (Dim i = 0; i < count; i += 2 * lanes<T>) {
    const Vec<T> even = load<T>(from + i / 2), odd = load<T>(from + pitch + i / 2);
    const Dim left = count - i;
    store_some<T>(row + i, detail::in_turns<false, T>(even, odd, each_lane),
                  smaller_of(left, lanes<T>));
    if (left > lanes<T>)
      store_some<T>(row + i + lanes<T>, detail::in_turns<true, T>(even, odd, each_lane),
                    smaller_of(left - lanes<T>, lanes<T>));
  }
}

}  // namespace onnxgrad::ONNXGRAD_ISA
