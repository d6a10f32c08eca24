// One axis of ONNX Resize as a sparse matrix: which elements of X an output takes,
// and how much of each. Coordinates are computed in float, as ONNX Runtime's own Resize does:
// an output that lies between two elements must fall to the same side.
#pragma once
#include <cmath>
#include <string>

#include "core/separable.h"

namespace onnxgrad::ONNXGRAD_ISA {

struct ResizeMode {
  std::string mode, coordinates, nearest;
  float cubic_a;
  bool exclude_outside, antialias;
};

struct ResizeAxis {
  Dim in, out;  // of X and of Y
  float scale;
  float roi_start, roi_end;
};

// The place in X of output o.
inline float original_coordinate(const ResizeMode& m, const ResizeAxis& a, Dim o) {
  const float x = float(o), in = float(a.in), out = float(a.out), half = (x + 0.5f) / a.scale;
  if (m.coordinates == "asymmetric") return x / a.scale;
  if (m.coordinates == "align_corners") return a.out == 1 ? 0.f : x * (in - 1) / (out - 1);
  if (m.coordinates == "pytorch_half_pixel") return a.out > 1 ? half - 0.5f : 0.f;
  if (m.coordinates == "tf_half_pixel_for_nn") return half;
  if (m.coordinates ==
      "half_pixel_symmetric") {  // the shift in float, the sum in double: ONNX Runtime rounds there
    const float shift = in / 2 * (1 - out / (a.scale * in));
    return float(double(shift) + (double(x) + 0.5) / double(a.scale) - 0.5);
  }
  if (m.coordinates == "tf_crop_and_resize")
    return a.out > 1 ? a.roi_start * (in - 1) + x * (a.roi_end - a.roi_start) * (in - 1) / (out - 1)
                     : 0.5f * (a.roi_start + a.roi_end) * (in - 1);
  return half - 0.5f;
}

// ONNX Runtime takes what lies within 1e-6 of the middle for
// the middle. In double: in float, 0.49999997 + 0.5 is 1.
inline float rounded(const std::string& how, float x) {
  constexpr double kMiddle = 1e-6;
  if (how == "floor") return std::floor(x);
  if (how == "ceil") return std::ceil(x);
  if (how == "round_prefer_ceil") return float(std::floor(double(x) + (0.5 + kMiddle)));
  return float(std::ceil(double(x) - (0.5 + kMiddle)));
}

// A coordinate as a number of elements. A region or a scale from a file can lead anywhere.
inline Dim place_at(double x) {
  constexpr double kFar = 9e15;
  return x != x ? 0 : Dim(x < -kFar ? -kFar : x > kFar ? kFar : x);
}

// The interpolating functions; `t` is the distance to the element.
inline double triangle(double t) {
  return std::fabs(t) < 1 ? 1 - std::fabs(t) : 0;
}
inline double cubic(double t, double a) {
  const double s = std::fabs(t);
  if (s < 1) return ((a + 2) * s - (a + 3)) * s * s + 1;
  return s < 2 ? ((s - 5) * s + 8) * s * a - 4 * a : 0;
}

// Adds what output o takes: elements [first, first + count) by `weight`,
// those outside left out or moved to the edge.
template <class T, class F> void add_taps(AxisMapBuilder<T>& map, const ResizeAxis& a, Dim o,
                                          Dim first, Dim count, bool exclude_outside, F&& weight) {
  const auto inside = [&](Dim i) { return i >= 0 && i < a.in; };
  double total = 0;
  for (Dim i = first; i < first + count; ++i)
    total += exclude_outside && !inside(i) ? 0 : weight(i);
  for (Dim i = first; i < first + count; ++i) {
    const double w = weight(i);
    if (w == 0 || (exclude_outside && !inside(i))) continue;
    map.add(i < 0 ? 0 : i >= a.in ? a.in - 1 : i, o, w / total);
  }
}

// How far from its place in X an output of an antialiased axis takes elements.
inline double support_of(const ResizeMode& m, const ResizeAxis& a) {
  return (m.mode == "cubic" ? 2.0 : 1.0) / double(a.scale);
}

inline bool is_identity(const ResizeMode& m, const ResizeAxis& a) {
  return a.in == a.out && a.scale == 1 && m.coordinates != "tf_crop_and_resize";
}

// How many elements of X all outputs of an axis take, roughly.
inline double taps_of(const ResizeMode& m, const ResizeAxis& a) {
  if (is_identity(m, a)) return 0;
  const double taps = m.mode == "nearest" ? 1 : m.mode == "cubic" ? 4 : 2;
  const bool stretched = m.antialias && m.mode != "nearest" && a.scale < 1;
  return double(a.out) * (stretched ? 2 * support_of(m, a) : taps);
}

template <class T>
void add_output(AxisMapBuilder<T>& map, const ResizeMode& m, const ResizeAxis& a, Dim o) {
  const float x = original_coordinate(m, a, o), last = float(a.in - 1);
  if (m.coordinates == "tf_crop_and_resize" && (x < 0 || x > last))
    return;  // takes extrapolation_value instead
  if (m.mode == "nearest") {
    const Dim i = place_at(double(rounded(m.nearest, x)));
    return map.add(i < 0 ? 0 : i >= a.in ? a.in - 1 : i, o, 1.0);
  }
  const bool is_cubic = m.mode == "cubic";
  const auto kernel = [&](double t) {
    return is_cubic ? cubic(t, double(m.cubic_a)) : triangle(t);
  };
  if (m.antialias &&
      a.scale < 1) {  // the kernel is stretched until it covers what an output stands for
    const double support = support_of(m, a), center = double(x) + 0.5;
    const Dim first = place_at(std::floor(center - support + 0.5)),
              end = place_at(std::floor(center + support + 0.5));
    return add_taps(map, a, o, first, end - first, m.exclude_outside,
                    [&](Dim i) { return kernel((double(i) + 0.5 - center) * double(a.scale)); });
  }
  if (is_cubic) {
    const double at = double(x);
    return add_taps(map, a, o, place_at(std::floor(double(x))) - 1, 4, m.exclude_outside,
                    [&](Dim i) { return kernel(double(i) - at); });
  }
  const double at = double(x < 0 ? 0.f : x > last ? last : x);
  add_taps(map, a, o, place_at(std::floor(at)), 2, false,
           [&](Dim i) { return kernel(double(i) - at); });
}

template <class T> AxisMap<T> resize_map(const ResizeMode& m, const ResizeAxis& a) {
  if (is_identity(m, a)) {
    AxisMap<T> same;
    same.in = same.out = a.in;
    return same;
  }
  AxisMapBuilder<T> map(a.out, a.in);
  for (Dim o = 0; o < a.out && a.in > 0; ++o) add_output(map, m, a, o);
  return map.take();
}

}  // namespace onnxgrad::ONNXGRAD_ISA
