// Bytes: what a fuzzer gave, read as small decisions. When it is used up, everything is 0.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace onnxgrad::fuzz {

class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  std::uint8_t byte() { return at_ < size_ ? data_[at_++] : 0; }
  // In [0, count).
  int choice(int count) { return count > 1 ? byte() % count : 0; }
  // True once in `in` times, seldom when the bytes are used up.
  bool once(int in) { return byte() % in == in - 1; }
  std::uint64_t word() {
    std::uint64_t w = 0;
    for (int i = 0; i < 8; ++i) w = w << 8 | byte();
    return w;
  }
  bool done() const { return at_ >= size_; }

 private:
  const std::uint8_t* data_;
  std::size_t size_, at_ = 0;
};

// Numbers that follow from a seed: the contents of tensors, of which a fuzzer need not choose each.
class Stream {
 public:
  explicit Stream(std::uint64_t seed) : state_(seed * 2 + 1) {}
  std::uint64_t next() {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return state_;
  }

 private:
  std::uint64_t state_;
};

}  // namespace onnxgrad::fuzz
