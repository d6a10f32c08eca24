// What LSTMTraining and LSTMGrad share. Gates in the order i o f c, peepholes i o f, biases Wb then Rb.
#pragma once
#include "ops/recurrent_products.h"

namespace onnxgrad::ONNXGRAD_ISA {

inline const Strings& lstm_functions() {
  static const Strings names = {"Sigmoid", "Tanh", "Tanh"};
  return names;
}

inline Contract lstm_contract(const char* name) {
  return recurrent_contract(name).attr("input_forget", 0, "1: the forget gate is 1 − i");
}

}  // namespace onnxgrad::ONNXGRAD_ISA
