// What every operator file needs: the call,
// and the macro that compiles its function for both types.
#pragma once
#include "core/call.h"
#include "core/vector.h"

// After `template <class T> void op(Call&)`: the two versions that the operator table points to.
#define ONNXGRAD_FLOAT_AND_DOUBLE(op) \
  template void op<float>(Call&);     \
  template void op<double>(Call&);
