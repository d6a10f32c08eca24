// What LSTMTraining and LSTMGrad share.
// Gates in the order i o f c, peepholes i o f, biases Wb then Rb.
#pragma once
#include "ops/recurrent/recurrent_call.h"

namespace onnxgrad::ONNXGRAD_ISA {

inline const CellSpec& lstm_spec() {
  static const CellSpec spec{
      4, "i o f c", "input_forget", "1: the forget gate is 1 − i", {"Sigmoid", "Tanh", "Tanh"}};
  return spec;
}

inline Contract& add_cell_state(Contract& c) {
  return c.optional("C0", "T[D, N, H]", "initial cell state; zeros when absent");
}

}  // namespace onnxgrad::ONNXGRAD_ISA
