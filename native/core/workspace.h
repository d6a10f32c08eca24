// Workspace: the working memory of one call, taken before
// the first output is touched and kept for the next call.
//
//   Workspace space;
//   const auto packed = space.shared<T>(packed_size);     // one block that all pieces of work see
//   const auto scratch = space.scratch<T>(size, pieces);  // blocks that pieces borrow, one each
//   Workspace::acquire(call, space.bytes());              // fails here or never
//   … call.output<T>(…) …
//   space.open();                                         // ends the use of what was open before
//   call.parallel_for(pieces, [&](Dim piece) {
//     const auto mine = space.borrow(scratch);            // given back at the end of the scope
//     … mine.data() …
//   });
//
// Nothing is allocated per piece. The number of scratch blocks is bounded
// by the processors and by kWorkspaceBytes: a piece that finds none
// free waits for one, which some other piece is certain to give back.
#pragma once
#include <atomic>
#include <memory>
#include <new>
#include <thread>

#include "core/call.h"
#include "core/platform.h"

namespace onnxgrad {

// What a call may take beyond its outputs, whatever the shapes.
constexpr Dim kWorkspaceBytes = Dim(64) << 20;

// Sizes that say "too much" instead of overflowing; acquire() refuses them.
constexpr Dim kTooMuch = Dim(1) << 62;
inline Dim bounded_product(Dim a, Dim b) {
  Dim product;
  return __builtin_mul_overflow(a, b, &product) || product > kTooMuch ? kTooMuch : product;
}
inline Dim bounded_sum(Dim a, Dim b) {
  return a > kTooMuch - b ? kTooMuch : a + b;
}

// Divides one block of memory into aligned arrays.
// From nullptr it only counts: `bytes()` is what to reserve.
class Carver {
 public:
  explicit Carver(char* memory) : memory_(memory) {}
  template <class T> T* take(Dim count) {
    T* array = memory_ ? reinterpret_cast<T*>(memory_ + used_) : nullptr;
    used_ = bounded_sum(used_, (bounded_product(count, Dim(sizeof(T))) + 63) / 64 * 64);
    return array;
  }
  Dim bytes() const { return used_; }

 private:
  char* memory_;
  Dim used_ = 0;
};

class Workspace {
 public:
  static constexpr int kMaxScratch = 64;
  template <class T> struct Shared {
    Dim at, size;
  };
  template <class T> struct Scratch {
    Dim at, size;
    int count;
  };

  Workspace() = default;
  Workspace(const Workspace&) = delete;

  template <class T> Shared<T> shared(Dim size) {
    return {reserve(bounded_product(size, Dim(sizeof(T)))), size};
  }

  // One kind of scratch per workspace, declared last: its blocks take what is left.
  template <class T> Scratch<T> scratch(Dim size, Dim pieces) {
    const Dim bytes = aligned(bounded_product(size, Dim(sizeof(T))));
    Dim count = core_count() < pieces ? core_count() : pieces;
    if (count > kMaxScratch) count = kMaxScratch;
    if (bytes > 0 && count > (kWorkspaceBytes - bytes_) / bytes)
      count = (kWorkspaceBytes - bytes_) / bytes;
    if (count < 1) count = 1;
    return {reserve(bounded_product(bytes, count)), size, int(count)};
  }

  Dim bytes() const { return bytes_; }

  // Memory is kept per calling thread and only grows,
  // so that a training step allocates in its first round only.
  static void acquire(const Call& call, Dim bytes) {
    KeptMemory& block = kept();
    if (block.size >= bytes) return;
    if (bytes > kWorkspaceBytes && bytes > call.most_working_memory())
      call.fail("needs " + std::to_string((bytes >> 20) + 1) +
                " MiB of working memory, expected at most " +
                std::to_string(call.most_working_memory() >> 20) + " for tensors of this size");
    block.memory.reset();
    block.size = 0;
    block.memory.reset(static_cast<char*>(
        ::operator new(static_cast<std::size_t>(aligned(bytes)), kAlignment, std::nothrow)));
    if (!block.memory)
      call.fail("needs " + std::to_string((bytes >> 20) + 1) +
                " MiB of working memory, which could not be allocated");
    block.size = bytes;
  }
  // `at` bytes into what was acquired, behind a workspace of so many.
  void open(Dim at = 0) { memory_ = kept().memory.get() + at; }

  template <class T> Span<T> operator[](Shared<T> block) const {
    return {reinterpret_cast<T*>(memory_ + block.at), block.size};
  }

  template <class T> class Loan {
   public:
    Loan(Span<T> block, std::atomic<bool>& taken) : block_(block), taken_(taken) {}
    Loan(const Loan&) = delete;
    ~Loan() { taken_.store(false, std::memory_order_release); }
    T* data() const { return block_.data(); }

   private:
    Span<T> block_;
    std::atomic<bool>& taken_;
  };

  template <class T> Loan<T> borrow(Scratch<T> scratch) {
    // A thread comes back to the block it had before: that one is in its cache.
    thread_local int preferred =
        int(std::hash<std::thread::id>()(std::this_thread::get_id()) % kMaxScratch);
    for (int i = preferred % scratch.count;; i = (i + 1) % scratch.count) {
      if (!taken_[i].exchange(true, std::memory_order_acquire)) {
        preferred = i;
        T* data =
            reinterpret_cast<T*>(memory_ + scratch.at + i * aligned(scratch.size * Dim(sizeof(T))));
        return {Span<T>(data, scratch.size), taken_[i]};
      }
      if (i == scratch.count - 1) std::this_thread::yield();
    }
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  static constexpr Dim aligned(Dim bytes) {
    return (bytes + Dim(kAlignment) - 1) / Dim(kAlignment) * Dim(kAlignment);
  }
  struct Free {
    void operator()(char* p) const { ::operator delete(p, kAlignment); }
  };
  struct KeptMemory {
    std::unique_ptr<char, Free> memory;
    Dim size = 0;
  };

  static KeptMemory& kept() {
    thread_local KeptMemory block;
    return block;
  }
  Dim reserve(Dim bytes) {
    const Dim at = bytes_;
    bytes_ = bounded_sum(bytes_, aligned(bytes));
    return at;
  }

  Dim bytes_ = 0;
  char* memory_ = nullptr;
  std::atomic<bool> taken_[kMaxScratch] = {};
};

}  // namespace onnxgrad
