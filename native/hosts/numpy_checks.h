// What a training step asks of every batch, as Python functions on one contiguous array. One pass
// each, and little code: after a step NumPy's own has left the caches, and takes longer to come
// back than a small batch takes to be read.
#pragma once
#include <nanobind/stl/pair.h>

#include "hosts/numpy_arguments.h"

namespace onnxgrad {
namespace {

class CheckedArray {
 public:
  explicit CheckedArray(nb::handle array) {
    if (!buffer_.acquire(array.ptr(), PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) || !aligned(*buffer_))
      throw nb::value_error("expected a contiguous array");
    view_ = view_of(*buffer_,
                    Shape{(*buffer_).itemsize > 0 ? Dim((*buffer_).len / (*buffer_).itemsize) : 0});
  }
  DType type() const { return view_.type; }
  template <class T> Span<const T> numbers() const {
    return {static_cast<const T*>(view_.data), view_.shape.size()};
  }

 private:
  Buffer buffer_;
  TensorView view_;
};

template <class T> bool holds_nan(Span<const T> x) {
  unsigned found = 0;
  for (const T& value : x) found |= unsigned(value != value);
  return found != 0;
}

template <class T> std::pair<std::int64_t, std::int64_t> least_and_largest(Span<const T> x) {
  T least = x.size() ? x[0] : T(0), largest = least;
  for (const T& value : x) {
    least = value < least ? value : least;
    largest = value > largest ? value : largest;
  }
  return {std::int64_t(least), std::int64_t(largest)};
}

void add_checks(nb::module_& m) {
  m.def("holds_nan", [](nb::handle x) {
    const CheckedArray array(x);
    if (array.type() == DType::float32) return holds_nan(array.numbers<float>());
    if (array.type() == DType::float64) return holds_nan(array.numbers<double>());
    throw nb::value_error("holds_nan: expected float32 or float64");
  });
  // Of no numbers: 0 and 0.
  m.def("least_and_largest", [](nb::handle x) {
    const CheckedArray array(x);
    if (array.type() == DType::int64) return least_and_largest(array.numbers<std::int64_t>());
    if (array.type() == DType::int32) return least_and_largest(array.numbers<std::int32_t>());
    throw nb::value_error("least_and_largest: expected int32 or int64");
  });
}

}  // namespace
}  // namespace onnxgrad
