// The operators of one instruction set, as a table.
// Compiled once per instruction set, like every operator.
#include "ops/table.h"

#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

#define ONNXGRAD_OP(folder, op)    \
  const Contract& op##_contract(); \
  template <class T> void op(Call&);
#include "ops/ops.inc"
#undef ONNXGRAD_OP

Span<const Op> table() {
#define ONNXGRAD_OP(folder, op) {&op##_contract, &op<float>, &op<double>},
  static const Op ops[] = {
#include "ops/ops.inc"
  };
#undef ONNXGRAD_OP
  return {ops, sizeof ops / sizeof ops[0]};
}

}  // namespace onnxgrad::ONNXGRAD_ISA
