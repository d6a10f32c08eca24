// One table of operators per instruction set; dispatch.cpp chooses.
#pragma once
#include "core/call.h"

namespace onnxgrad {
namespace baseline {
Span<const Op> table();
}
namespace avx2 {
Span<const Op> table();
}
namespace avx512 {
Span<const Op> table();
}
}  // namespace onnxgrad
