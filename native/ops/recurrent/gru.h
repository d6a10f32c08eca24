// What GRUTraining and GRUGrad share. Gates in the order z r h, biases Wb then Rb.
#pragma once
#include "ops/recurrent/recurrent_call.h"

namespace onnxgrad::ONNXGRAD_ISA {

inline const CellSpec& gru_spec() {
  static const CellSpec spec{3,
                             "z r h",
                             "linear_before_reset",
                             "1: the reset gate multiplies H·Rhᵀ + Rbh; 0: it multiplies H",
                             {"Sigmoid", "Tanh"}};
  return spec;
}

}  // namespace onnxgrad::ONNXGRAD_ISA
