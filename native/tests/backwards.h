// Pieces from the last to the first, for the hosts of the tests:
// no operator may depend on their order.
#pragma once
#include <atomic>

#include "core/call.h"

namespace onnxgrad {

class Backwards final : public Turn {
 public:
  explicit Backwards(Dim count) : left_(count) {}
  Dim next() override { return left_.fetch_sub(1) - 1; }

 private:
  std::atomic<Dim> left_;
};

}  // namespace onnxgrad
