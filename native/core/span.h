// Span<T>: a pointer and a length, the only way a kernel sees memory.
#pragma once
#include <cstdint>
#include <type_traits>

namespace onnxgrad {

using Dim = std::int64_t;

// Null when the tensor is absent (an optional input) or was not asked for (an optional output).
template <class T> class Span {
 public:
  constexpr Span() = default;
  constexpr Span(T* data, Dim size) : data_(data), size_(size) {}
  // Span<T> converts to Span<const T>.
  template <class U, class = std::enable_if_t<std::is_same_v<const U, T>>>
  constexpr Span(Span<U> other) : data_(other.data()), size_(other.size()) {}

  constexpr T* data() const { return data_; }
  constexpr Dim size() const { return size_; }
  constexpr T& operator[](Dim i) const { return data_[i]; }
  constexpr T* begin() const { return data_; }
  constexpr T* end() const { return data_ + size_; }
  constexpr Span part(Dim from, Dim count) const { return {data_ + from, count}; }
  constexpr explicit operator bool() const { return data_ != nullptr; }

 private:
  T* data_ = nullptr;
  Dim size_ = 0;
};

}  // namespace onnxgrad
