// Contract binding under libFuzzer: shapes and attributes without any tensor behind them, so that
// dims, ranks and numbers can be anything at all.
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "bytes.h"
#include "core/call.h"

namespace {

using namespace onnxgrad;
using namespace onnxgrad::fuzz;

std::int64_t any_number(Bytes& bytes) {
  switch (bytes.choice(4)) {
    case 0: return bytes.choice(8);
    case 1: return std::int64_t(1) << bytes.choice(63);
    case 2: return static_cast<std::int64_t>(bytes.word());
    default: return bytes.choice(2) ? std::numeric_limits<std::int64_t>::min() : -1;
  }
}

Attribute any_attribute(Bytes& bytes) {
  const int length = bytes.choice(100);
  switch (bytes.choice(7)) {
    case 0: return any_number(bytes);
    case 1: return float(bytes.byte()) / 7 - 4;
    case 2: return std::string(static_cast<std::size_t>(length) * 8, char(bytes.byte()));
    case 3: {
      Integers list;
      for (int i = 0; i < length; ++i) list.push_back(any_number(bytes));
      return list;
    }
    case 4: return Floats(static_cast<std::size_t>(length), float(bytes.byte()));
    case 5: return Strings(static_cast<std::size_t>(length), std::string(3, char(bytes.byte())));
    default: return std::monostate();
  }
}

// The dims of one input, as a host hands them over.
Shape any_shape(const Contract& contract, const TensorSpec& spec, Bytes& bytes) {
  Dim dims[100];
  const int rank = bytes.once(16) ? bytes.choice(100) : bytes.choice(6);
  for (int i = 0; i < rank; ++i) {
    const std::int64_t dim = any_number(bytes);
    dims[i] = dim < 0 && dim != -1 ? -(dim + 1) : dim;
  }
  return checked_shape(
      contract, [&] { return "input " + spec.name + " has shape "; }, dims,
      static_cast<std::size_t>(rank));
}

void check_output(const Shape& shape) {
  if (broken_bound(shape.data(), static_cast<std::size_t>(shape.rank()))) std::abort();
  for (int a = 0; a <= shape.rank(); ++a)
    if (shape.product(0, a) < 0 || shape.product(a, shape.rank()) < 0) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes bytes(data, size);
  const Contract& contract = ops()[bytes.choice(static_cast<int>(ops().size()))].contract();
  try {
    std::vector<Attribute> attributes = contract.defaults();
    for (Attribute& a : attributes)
      if (bytes.once(4)) a = any_attribute(bytes);
    contract.check_attributes(attributes);
    std::vector<TensorView> inputs(contract.inputs().size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      inputs[i].present = bytes.choice(8) != 0;
      inputs[i].type = static_cast<DType>(bytes.choice(6));
      inputs[i].shape = any_shape(contract, contract.inputs()[i], bytes);
    }
    Symbols symbols(contract.symbols().size());
    bind(contract, {inputs.data(), static_cast<Dim>(inputs.size())}, symbols);
    for (const TensorSpec& spec : contract.outputs())
      check_output(shape_of(contract, spec, symbols));
  } catch (const ContractError&) {
  }
  return 0;
}
