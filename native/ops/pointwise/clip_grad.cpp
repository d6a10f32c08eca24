#include "core/pointwise.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& clip_grad_contract() {
  static const Contract c =
      Contract("ClipGrad")
          .summary("Gradient of Clip (Relu6 among others) with respect to its input.")
          .formula("dX = min ≤ X ≤ max ? dY : 0; a bound that is absent holds nothing back")
          .accuracy(Measure::ulp, 5, 1e-13)
          .input("dY", "T[shape...]", "cotangent of Y")
          .input("X", "T[shape...]", "what went into Clip")
          .optional("min", "T[]", "the lower bound; none when absent")
          .optional("max", "T[]", "the upper bound; none when absent")
          .output("dX", "T[shape...]", "gradient of X")
          .inplace("dY", "dX");
  return c;
}

// The comparisons are literal: beside a bound that is given, a NaN in X gives 0.
template <class T> void clip_grad(Call& call) {
  const bool has_min = call.has("min"), has_max = call.has("max");
  const Vec<T> min = splat<T>(has_min ? call.input<T>("min")[0] : T(0));
  const Vec<T> max = splat<T>(has_max ? call.input<T>("max")[0] : T(0));
  const VecBits<T> any_low = VecBits<T>{} - BitsOf<T>(!has_min);  // all ones without a bound
  const VecBits<T> any_high = VecBits<T>{} - BitsOf<T>(!has_max);
  pointwise<T>(call, "dY", "X", "dX", [=](Vec<T> dy, Vec<T> x) ONNXGRAD_LAMBDA {
    const VecBits<T> inside = ((x >= min) | any_low) & ((x <= max) | any_high);
    return select(inside, dy, Vec<T>{});
  });
}
ONNXGRAD_FLOAT_AND_DOUBLE(clip_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
