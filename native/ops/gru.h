// What GRUTraining and GRUGrad share. Gates in the order z r h, biases Wb then Rb.
#pragma once
#include "ops/recurrent_products.h"

namespace onnxgrad::ONNXGRAD_ISA {

inline const Strings& gru_functions() {
  static const Strings names = {"Sigmoid", "Tanh"};
  return names;
}

inline Contract gru_contract(const char* name) {
  return recurrent_contract(name).attr("linear_before_reset", 0,
                                       "1: the reset gate multiplies H·Rhᵀ + Rbh; 0: it multiplies H");
}

}  // namespace onnxgrad::ONNXGRAD_ISA
