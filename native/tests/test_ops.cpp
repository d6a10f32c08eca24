// Every operator under sanitizers, in a host that lends exactly the memory that the contract says:
// random shapes, empty dims, odd alignment, results over the memory of dY.
#include <cstdio>
#include <random>

#include "core/call.h"
#include "tests/test_host.h"

namespace {

using namespace onnxgrad;

// Only for operators whose inputs are numbers of one type and share one shape with the output,
// or end in a bias: the others have tests of their own.
bool is_pointwise(const Contract& c) {
  for (const TensorSpec& t : c.inputs())
    if (!t.is_t() || (t.dims != "[shape...]" && t.dims != "[outer..., C]" && t.dims != "[C]"))
      return false;
  return c.outputs().size() == 1 && c.outputs()[0].dims == c.inputs()[0].dims;
}

template <class T> void run(const Op& op, const Shape& shape, bool reuse, std::mt19937& random) {
  const Contract& c = op.contract();
  std::vector<TestTensor<T>> tensors;
  std::vector<TensorView> inputs;
  for (const TensorSpec& t : c.inputs()) {
    tensors.emplace_back(t.dims == "[C]" ? Shape{shape[shape.rank() - 1]} : shape, random);
    inputs.push_back(tensors.back().view);
  }
  TensorView output;
  output.present = true;
  TestHost host(1, reuse ? inputs[0].data : nullptr);
  Call call(c, c.defaults(), {inputs.data(), static_cast<Dim>(inputs.size())}, {&output, 1}, host);
  op.run(call);
}

}  // namespace

int main() {
  std::mt19937 random(1);
  const Shape shapes[] = {{1, 1},
                          {3, 5},
                          {0, 4},
                          {4, 0},
                          {2, 3, 7},
                          {17, 33},
                          {1, 70'001},
                          {40'000, 2},
                          {5, 1, 2, 3},
                          {1, 300'007},
                          // written past the caches
                          {2'200, 1'024},
                          {2'101, 1'003}};
  int runs = 0;
  for (const Op& op : ops()) {
    if (!is_pointwise(op.contract())) continue;
    for (const Shape& shape : shapes)
      for (bool reuse : {false, true}) {
        run<float>(op, shape, reuse && shape.size() > 0, random);
        run<double>(op, shape, reuse && shape.size() > 0, random);
        runs += 2;
      }
  }
  std::printf("%s: %d runs\n", instruction_set(), runs);
}
