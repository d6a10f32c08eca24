// DType, Shape, TensorView: what a host knows of a tensor.
#pragma once
#include <array>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <string>

#include "core/span.h"

namespace onnxgrad {

enum class DType : std::uint8_t { float32, float64, int32, int64, boolean, uint8, other };

template <class T> constexpr DType dtype_of = DType::other;
template <> inline constexpr DType dtype_of<float> = DType::float32;
template <> inline constexpr DType dtype_of<double> = DType::float64;
template <> inline constexpr DType dtype_of<std::int32_t> = DType::int32;
template <> inline constexpr DType dtype_of<std::int64_t> = DType::int64;
template <> inline constexpr DType dtype_of<bool> = DType::boolean;
template <> inline constexpr DType dtype_of<std::uint8_t> = DType::uint8;

inline const char* name_of(DType type) {
  constexpr const char* names[] = {"float32", "float64", "int32",       "int64",
                                   "bool",    "uint8",   "another type"};
  return names[static_cast<int>(type)];
}

inline Dim bytes_of(DType type) {
  constexpr Dim bytes[] = {4, 8, 4, 8, 1, 1, 0};
  return bytes[static_cast<int>(type)];
}

// The bounds of every tensor that a call takes or gives. Within them no product of dims overflows,
// also times a number of kMostStep, and no loop over a tensor without elements takes long.
constexpr int kMaxRank = 32;
constexpr Dim kMaxElements = Dim(1) << 38;
constexpr Dim kMaxDimsOfNothing = Dim(1) << 28;  // the product of the dims other than 0

// Which of the bounds these dims break, as the end of a sentence: "at most 32 dims"; null: none.
const char* broken_bound(const Dim* dims, std::size_t rank);

// "[2, 3]"
std::string to_string(const Dim* dims, std::size_t rank);

// A fixed capacity keeps a call free of allocations. It holds what operators make of the shapes of
// two tensors: pads before and after every dim, indices of one and dims of the other.
constexpr int kShapeCapacity = 2 * kMaxRank;

class Shape {
 public:
  Shape() {}  // the dims stay as they are: zeroing the capacity costs more than many a call
  Shape(std::initializer_list<Dim> dims) {
    for (Dim d : dims) push_back(d);
  }
  Shape(const Dim* dims, int rank) {
    for (int i = 0; i < rank; ++i) push_back(dims[i]);
  }
  Shape(const Shape& other) { *this = other; }
  Shape& operator=(const Shape& other) {  // copies `rank` dims, not all of the capacity
    rank_ = other.rank_;
    for (int i = 0; i < rank_; ++i) dims_[static_cast<std::size_t>(i)] = other[i];
    return *this;
  }

  int rank() const { return rank_; }
  Dim operator[](int axis) const { return dims_[static_cast<std::size_t>(axis)]; }
  Dim& operator[](int axis) { return dims_[static_cast<std::size_t>(axis)]; }
  const Dim* data() const { return dims_.data(); }
  const Dim* begin() const { return dims_.data(); }
  const Dim* end() const { return dims_.data() + rank_; }
  void push_back(Dim d) {
    if (rank_ == kShapeCapacity) throw std::length_error("a shape has too many dims");
    dims_[static_cast<std::size_t>(rank_++)] = d;
  }

  // Number of elements of axes [from, to), none of them negative; 1 for none. The largest number
  // there is when it is more, which no tensor has.
  Dim product(int from, int to) const {
    Dim p = 1;
    bool too_many = false;
    for (int i = from; i < to; ++i) {
      if ((*this)[i] == 0) return 0;
      too_many = __builtin_mul_overflow(p, (*this)[i], &p) || too_many;
    }
    return too_many ? std::numeric_limits<Dim>::max() : p;
  }
  Dim size() const { return product(0, rank_); }

  bool operator==(const Shape& other) const {
    if (rank_ != other.rank_) return false;
    for (int i = 0; i < rank_; ++i)
      if ((*this)[i] != other[i]) return false;
    return true;
  }
  bool operator!=(const Shape& other) const { return !(*this == other); }

 private:
  std::array<Dim, kShapeCapacity> dims_;
  int rank_ = 0;
};

inline std::string to_string(const Shape& shape) {
  return to_string(shape.data(), static_cast<std::size_t>(shape.rank()));
}

struct TensorView {
  TensorView() {}  // not the compiler's, which zeroes all of the shape in a vector of views
  void* data = nullptr;
  DType type = DType::other;
  bool present = false;  // an absent optional input, or an output that nobody asked for, is not
  Shape shape;
};

}  // namespace onnxgrad
