// ConvTraining and ConvGrad under sanitizers: random convolutions in memory
// of exactly the right size. Every element of every output must be written;
// what is written there is judged by the Python tests.
#include <cmath>
#include <cstdio>
#include <random>
#include <string_view>
#include <vector>

#include "core/call.h"
#include "tests/test_host.h"

namespace {

using namespace onnxgrad;

std::mt19937 g_random(3);
Dim pick(Dim low, Dim high) {
  return std::uniform_int_distribution<Dim>(low, high)(g_random);
}

struct Convolution {
  Shape dy, x, w;
  Integers pads, strides, dilations;
  Dim group;
};

Convolution random_convolution() {
  constexpr Dim widths[] = {1, 2, 3, 5, 8, 16, 17, 32, 40};
  const int rank = int(pick(1, 3));
  const bool simple =
      pick(0, 1) == 0;  // stride 1, kernel 1 or 3: the shapes with algorithms of their own
  const Dim channels = widths[pick(0, 8)], filters = widths[pick(0, 8)], side = pick(0, 1) ? 3 : 1;
  Convolution c;
  c.group = pick(0, 2) ? 1 : pick(1, 6);
  c.x = {pick(1, 3), c.group * channels};
  c.dy = {c.x[0], c.group * filters};
  c.w = {c.group * filters, channels};
  Integers ends;
  for (int a = 0; a < rank; ++a) {
    const Dim kernel = simple ? side : pick(1, 4), stride = simple ? 1 : pick(1, 3),
              dilation = simple ? 1 : pick(1, 3);
    const Dim begin = pick(0, 1) * pick(0, 3), end = pick(0, 1) * pick(0, 3),
              extent = (kernel - 1) * dilation + 1;
    const Dim size = pick(extent, extent + (rank == 1 ? 70 : rank == 2 ? 20 : 6));
    c.x.push_back(size), c.w.push_back(kernel),
        c.dy.push_back((size + begin + end - extent) / stride + 1);
    c.strides.push_back(stride), c.dilations.push_back(dilation), c.pads.push_back(begin),
        ends.push_back(end);
  }
  c.pads.insert(c.pads.end(), ends.begin(), ends.end());
  return c;
}

template <class T> bool run(const Op& op, const Convolution& c) {
  const Contract& contract = op.contract();
  std::vector<Attribute> attributes = contract.defaults();
  const auto set = [&](std::string_view name, Attribute value) {
    attributes[static_cast<std::size_t>(contract.attribute_index(name))] = std::move(value);
  };
  set("pads", c.pads), set("strides", c.strides), set("dilations", c.dilations),
      set("group", c.group);
  const bool forward = contract.name() == "ConvTraining";
  const TestTensor<T> dy(c.dy, T(1)), x(c.x, T(2)), w(c.w, T(3)), bias(Shape{c.w[0]}, T(4));
  const TensorView gradient_inputs[] = {dy.view, x.view, w.view};
  const TensorView forward_inputs[] = {x.view, w.view, bias.view};
  TensorView outputs[3];
  for (TensorView& out : outputs) out.present = true;
  TestHost host;
  Call call(contract, attributes, {forward ? forward_inputs : gradient_inputs, 3},
            {outputs, forward ? 1 : 3}, host);
  op.run(call);
  for (const TensorView& out : host.outputs())
    for (const T value : values_of<T>(out))
      if (std::isnan(value)) return false;
  return true;
}

}  // namespace

int main() {
  int failures = 0;
  for (const Op& op : ops()) {
    const std::string_view name = op.contract().name();
    if (name != "ConvGrad" && name != "ConvTraining") continue;
    for (int i = 0; i < 300; ++i) {
      const Convolution c = random_convolution();
      if (run<float>(op, c) && run<double>(op, c)) continue;
      ++failures;
      std::printf("not written: X %s W %s\n", to_string(c.x).c_str(), to_string(c.w).c_str());
    }
  }
  std::printf("%s: %d failures\n", instruction_set(), failures);
  return failures != 0;
}
