// run_phases: work in which each phase needs the one before it,
// on any pool of threads and without a barrier.
//
// A recurrent network is a long chain of short products: step t + 1 needs all of step t. The host's
// parallel_for promises nothing about how many of its pieces run at once, so a barrier between
// pieces could wait for one that never starts. Here every piece is a *member* that walks through
// all phases: it takes slices of the current phase until none is left, waits for those that others
// still hold, and goes on. A member that starts late joins at the current phase; one member alone
// completes everything; nobody waits for a member that has not started.
#pragma once
#include <atomic>
#include <thread>

#include "core/call.h"
#include "core/platform.h"
#include "core/vector.h"

namespace onnxgrad::ONNXGRAD_ISA {

constexpr Dim kMaxSlices = 64;  // of one phase

namespace detail {

// The state that the members share.
class Progress {
 public:
  explicit Progress(Dim phases) : phases_(phases) {
    for (auto& t : taken_) t.store(-1, std::memory_order_relaxed);
  }
  Dim phase() const { return phase_.load(std::memory_order_acquire); }
  bool finished() const { return phase() >= phases_; }
  // The first of several members that come here gets 0, the next 1, …
  unsigned arrive() { return arrived_.fetch_add(1, std::memory_order_relaxed); }

  // True for exactly one member per phase and slice.
  bool take(Dim phase, Dim slice) {
    std::atomic<Dim>& taken = taken_[slice];
    Dim before = taken.load(std::memory_order_relaxed);
    return before < phase &&
           taken.compare_exchange_strong(before, phase, std::memory_order_relaxed);
  }
  // After the work on a slice. Whoever finishes the last one opens the next phase.
  void finish(Dim phase, Dim slices) {
    if (finished_.fetch_add(1, std::memory_order_acq_rel) + 1 < slices) return;
    finished_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
  }
  // Until the phase is over. The holder of a slice is running,
  // so the wait is short unless the machine is busy.
  void wait_for_the_end_of(Dim phase) const {
    if (ends_soon(phase)) return;
    while (this->phase() == phase) std::this_thread::yield();
  }
  // Waits about 10 µs.
  bool ends_soon(Dim phase) const {
    for (int spins = 0; spins < 1000; ++spins) {
      if (this->phase() != phase) return true;
      relax();
    }
    return false;
  }

 private:
  const Dim phases_;
  alignas(64) std::atomic<Dim> phase_{0};
  alignas(64) std::atomic<Dim> finished_{0};  // slices of the current phase
  std::atomic<unsigned> arrived_{0};
  alignas(64) std::atomic<Dim> taken_[kMaxSlices];  // the last phase in which a slice was taken
};

// Where member 0, 1, 2, 3, … begins among the slices: at 0, 1/2, 1/4,
// 3/4, … of them. Members stay with the same slices from phase to phase,
// so what those read (packed weights) stays in the cache of one core.
inline Dim first_slice(unsigned member, Dim slices) {
  Dim at = 0, part = slices;
  for (; member && part > 1; member /= 2) {
    part = (part + 1) / 2;
    if (member % 2) at += part;
  }
  return at < slices ? at : 0;
}

}  // namespace detail

// body(phase, slice) for every slice < slices_of(phase) <= kMaxSlices of every phase < phases,
// phase by phase. Slices are cut by shape, so every number of threads gives the same bits.
// slices_of must give at least 1, and body must not throw.
template <class SlicesOf, class Body>
void run_phases(Call& call, Dim phases, SlicesOf&& slices_of, Body&& body) {
  Dim members = 1;
  for (Dim p = 0; p < phases; ++p) members = slices_of(p) > members ? slices_of(p) : members;
  if (members == 1) {
    for (Dim p = 0; p < phases; ++p) body(p, Dim(0));
    return;
  }
  detail::Progress progress(phases);
  call.parallel_for(members, [&](Dim) {
    if (progress.finished()) return;
    const unsigned member = progress.arrive();
    for (Dim phase; (phase = progress.phase()) < phases;) {
      const Dim slices = slices_of(phase), first = detail::first_slice(member, slices);
      // A phase with fewer slices than members is left
      // to the first of them, whose caches hold what it reads.
      if (member >= slices && progress.ends_soon(phase)) continue;
      for (Dim i = 0; i < slices; ++i) {
        const Dim slice = first + i < slices ? first + i : first + i - slices;
        if (!progress.take(phase, slice)) continue;
        body(phase, slice);
        progress.finish(phase, slices);
      }
      progress.wait_for_the_end_of(phase);
    }
  });
}

}  // namespace onnxgrad::ONNXGRAD_ISA
