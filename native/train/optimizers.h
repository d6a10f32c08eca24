// The optimizers: parameters and state are lists of buffers,
// updated in place, one pass over the memory.
//
// Every list has one span per tensor; the tensors of p, g and the state agree in size.
// Pieces are cut by the sizes alone, so every number of threads gives the same bits.
#pragma once
#include <vector>

#include "core/span.h"

namespace onnxgrad {

template <class T> using Buffers = std::vector<Span<T>>;

// What happens to a gradient before it is used: g·scale, then each element into [-limit, limit].
struct Incoming {
  double scale = 1;
  double limit = 0;  // 0: no limit
};

// m += (1 - β₁)(g - m),  v = β₂v + (1 - β₂)g²,
// p -= lr·m̂ / (√v̂ + ε)  with m̂ = m/(1 - β₁ᵗ), v̂ = v/(1 - β₂ᵗ).
// The decay is added to g (Adam), or taken from p first when `decoupled` (AdamW).
struct AdamSettings {
  double lr, beta1, beta2, epsilon, decay;
  double step;  // t, from 1
  bool decoupled;
};

// b = μb + (1 - d)g, in the first step b = g;  p -= lr·(nesterov ? g + μb : b).
// Without momentum there is no b.
struct SgdSettings {
  double lr, momentum, dampening, decay;
  bool nesterov, first;
};

// The functions of one instruction set.
template <class T> struct Optimizers {
  void (*adam)(const Buffers<T>& p, const Buffers<T>& g, const Buffers<T>& m, const Buffers<T>& v,
               const AdamSettings&, const Incoming&);
  void (*sgd)(const Buffers<T>& p, const Buffers<T>& g, const Buffers<T>& b, const SgdSettings&,
              const Incoming&);
  double (*squares)(const Buffers<T>& g);  // Σ g², in double; NaN or inf if any g is
  void (*add)(const Buffers<T>& total, const Buffers<T>& g);  // total += g
};

namespace baseline {
template <class T> const Optimizers<T>& optimizers();
}
namespace avx2 {
template <class T> const Optimizers<T>& optimizers();
}
namespace avx512 {
template <class T> const Optimizers<T>& optimizers();
}

// Those for the best instruction set that this processor has.
template <class T> const Optimizers<T>& optimizers();

}  // namespace onnxgrad
