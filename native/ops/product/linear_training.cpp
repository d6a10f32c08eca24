#include "ops/product/linear.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& linear_training_contract() {
  static const Contract c = Contract("LinearTraining")
                                .summary("A linear layer whose weights change with every step.")
                                .formula("Y = X·W + B + added")
                                .accuracy(Measure::rms, 2e-6, 1e-14)
                                .input("X", "T[rows..., K]", "rows of any number of axes")
                                .input("W", "T[K, N]", "weights")
                                .optional("B", "T[N]", "what is added to every row")
                                .optional("added", "T[rows..., N]", "what is added to Y")
                                .output("Y", "T[rows..., N]", "the product")
                                .inplace("added", "Y");
  return c;
}

template <class T> void linear_training(Call& call) {
  const LinearShape s = described_linear(call, "X");
  const Dim block = column_block<T>(s.columns, s.depth);
  Workspace space;
  const auto packed_w = space.shared<T>(packed_size<T>(s.depth, block));
  Workspace::acquire(call, space.bytes());
  const T *x = call.input<T>("X").data(), *w = call.input<T>("W").data(),
          *bias = call.input<T>("B").data(), *added = call.input<T>("added").data();
  T* y = call.output<T>("Y").data();
  space.open();
  T* packed = space[packed_w].data();
  for (Dim first = 0; first < s.columns; first += block) {
    const Dim columns = smaller_of(block, s.columns - first);
    const auto of_w = PackingCuts<T>::of(s.depth, columns);
    call.parallel_for(of_w.count(), [&](Dim piece) {
      pack_part(w + first, s.columns, s.depth, columns, packed, of_w.part(piece));
    });
    const auto cuts = ProductCuts<T>::of(s.rows, s.depth, columns);
    const Addend<T> addend = Addend<T>{added, s.columns, bias}.at(0, first);
    call.parallel_for(cuts.count(), [&](Dim piece) {
      product(addend, cuts.part(piece), Rows<T>{x, s.depth}, s.depth, packed, columns, y + first,
              s.columns);
    });
  }
}
ONNXGRAD_FLOAT_AND_DOUBLE(linear_training)

}  // namespace onnxgrad::ONNXGRAD_ISA
