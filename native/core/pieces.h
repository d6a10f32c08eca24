// Pieces: the work of one parallel_for, shared out among the threads of a host.
#pragma once
#include <algorithm>
#include <atomic>

#include "core/call.h"

namespace onnxgrad {

// The pieces lie in one range per core. A core begins with the same range in every call,
// so that it finds in its own caches what it read or wrote there before.
// Whoever is done early takes pieces from the ranges of the others.
class Pieces {
 public:
  static constexpr int kMostRanges = 64;

  Pieces(Dim count, int ranges, Host::Body body, void* context)
      : count_(count),
        ranges_(std::max(1, std::min(ranges, kMostRanges))),
        body_(body),
        context_(context) {
    for (int r = 0; r < ranges_; ++r) next_[r].piece.store(begin(r), std::memory_order_relaxed);
  }

  // Takes pieces until none is left; `range` is the one to begin with, counted round.
  void take_all(int range) {
    OneAfterTheOther turn(*this, range);
    body_(context_, turn);
  }

 private:
  class OneAfterTheOther final : public Turn {
   public:
    OneAfterTheOther(Pieces& pieces, int range) : pieces_(pieces), range_(range) {}
    Dim next() override {
      for (; done_ < pieces_.ranges_; ++done_)
        if (const Dim piece = pieces_.take((range_ + done_) % pieces_.ranges_); piece >= 0)
          return piece;
      return -1;
    }

   private:
    Pieces& pieces_;
    const int range_;
    int done_ = 0;  // ranges without a piece left
  };

  Dim take(int range) {
    const Dim piece = next_[range].piece.fetch_add(1, std::memory_order_relaxed);
    return piece < begin(range + 1) ? piece : -1;
  }

  struct alignas(64) Next {  // a cache line each
    std::atomic<Dim> piece;
  };
  Dim begin(int range) const { return count_ * range / ranges_; }

  const Dim count_;
  const int ranges_;
  const Host::Body body_;
  void* const context_;
  Next next_[kMostRanges];
};

}  // namespace onnxgrad
