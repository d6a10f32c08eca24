// How much memory there is.
#pragma once
#include "core/span.h"

namespace onnxgrad {

// Of the machine, or of the container that the process runs in where that is less; asked once.
Dim memory_of_machine();

}  // namespace onnxgrad
