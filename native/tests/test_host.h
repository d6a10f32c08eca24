// Tensors and a host for the tests of whole operators: memory of exactly the right size, so that
// a sanitizer sees one element too many, and outputs that begin as NaN.
#pragma once
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "core/call.h"

namespace onnxgrad {

template <class T> struct TestTensor {
  std::unique_ptr<T[]> data;
  TensorView view;
  explicit TestTensor(const Shape& shape) : data(new T[static_cast<std::size_t>(shape.size())]) {
    view.data = data.get(), view.type = dtype_of<T>, view.present = true, view.shape = shape;
  }
  TestTensor(const Shape& shape, T value) : TestTensor(shape) {
    for (T& v : values()) v = value;
  }
  TestTensor(const Shape& shape, std::mt19937& random) : TestTensor(shape) {
    for (T& v : values()) v = std::uniform_real_distribution<T>(0, 1)(random);
  }
  Span<T> values() const { return {data.get(), view.shape.size()}; }
};

// Pieces from the last to the first: no operator may depend on their order.
class Backwards final : public Turn {
 public:
  explicit Backwards(Dim count) : left_(count) {}
  Dim next() override { return left_.fetch_sub(1) - 1; }

 private:
  std::atomic<Dim> left_;
};

class TestHost final : public Host {
 public:
  // `reuse`: memory that the outputs are written into, of which an input lies there already.
  explicit TestHost(int threads = 1, void* reuse = nullptr) : threads_(threads), reuse_(reuse) {}

  void allocate(Span<TensorView> outputs) override {
    for (TensorView& out : outputs) {
      if (!out.present) continue;
      const auto bytes = static_cast<std::size_t>(out.shape.size() * bytes_of(out.type));
      memory_.emplace_back(new char[bytes]);
      std::memset(memory_.back().get(), 0xFF, bytes);  // NaN, in float and in double
      out.data = reuse_ ? reuse_ : memory_.back().get();
      written_.push_back(out);
    }
  }
  void parallel_for(Dim count, Body body, void* context) override {
    Backwards turn(count);
    const auto work = [&] { body(context, turn); };
    std::vector<std::thread> others;
    for (int t = 1; t < threads_; ++t) others.emplace_back(work);
    work();
    for (std::thread& other : others) other.join();
  }

  // The outputs that were asked for, in their order.
  const std::vector<TensorView>& outputs() const { return written_; }

 private:
  const int threads_;
  void* const reuse_;
  std::vector<std::unique_ptr<char[]>> memory_;
  std::vector<TensorView> written_;
};

template <class T> Span<const T> values_of(const TensorView& view) {
  return {static_cast<const T*>(view.data), view.shape.size()};
}

}  // namespace onnxgrad
