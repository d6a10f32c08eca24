// ConvStages: work in pieces that may run at once, one stage after the other.
//
// dX, dW and dBias need nothing of each other. Stage by stage they share one waking of the threads,
// and the pieces of one fill the gaps that the last pieces of another leave.
#pragma once
#include <initializer_list>

#include "core/call.h"

namespace onnxgrad::ONNXGRAD_ISA {

class ConvStages {
 public:
  virtual ~ConvStages() = default;
  virtual Dim stages() const { return 0; }  // 0: what it does cannot share its stages
  virtual Dim pieces(Dim) const { return 0; }
  virtual void run_piece(Dim, Dim) {}
};

// The first stages of all, then the second ones, and so on; null for nothing. Long pieces should
// come first: those of the first one in the first stage, those of the last one in the others.
inline void run_stages(Call& call, std::initializer_list<ConvStages*> all) {
  Dim stages = 0;
  for (const ConvStages* one : all)
    if (one && one->stages() > stages) stages = one->stages();
  for (Dim stage = 0; stage < stages; ++stage) {
    const auto pieces_of = [&](const ConvStages* one) {
      return one && stage < one->stages() ? one->pieces(stage) : 0;
    };
    Dim total = 0;
    for (const ConvStages* one : all) total += pieces_of(one);
    call.parallel_for(total, [&](Dim piece) {
      for (std::size_t i = 0; i < all.size(); ++i) {
        ConvStages* const one = all.begin()[stage == 0 ? i : all.size() - 1 - i];
        const Dim own = pieces_of(one);
        if (piece < own) return one->run_piece(stage, piece);
        piece -= own;
      }
    });
  }
}

}  // namespace onnxgrad::ONNXGRAD_ISA
