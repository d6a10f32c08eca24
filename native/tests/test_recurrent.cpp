// LSTM and GRU under sanitizers: random settings in memory of exactly the right size, once with the
// pieces backwards on one thread and once on four threads. Every element of every output must be
// written, with the same bits in both; what is written there is judged by the Python tests.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

#include "core/call.h"
#include "tests/test_host.h"

namespace {

using namespace onnxgrad;

std::mt19937 g_random(5);
Dim pick(Dim low, Dim high) {
  return std::uniform_int_distribution<Dim>(low, high)(g_random);
}

struct Setting {
  Dim S, N, I, H, D;
  std::vector<Attribute> attributes;
  std::vector<bool> given;  // of the inputs
};

Setting random_setting(const Contract& c) {
  constexpr Dim widths[] = {1, 2, 3, 5, 8, 16, 17, 31, 32, 33, 40, 72};
  const bool many = pick(0, 9) == 0;  // enough for slices of rows and several chunks
  Setting s{many ? 20 : pick(0, 7),
            many ? 32 : pick(0, 9),
            widths[pick(0, 11)],
            many ? 72 : widths[pick(0, 11)],
            pick(1, 2),
            c.defaults(),
            {}};
  const auto set = [&](std::string_view name, Attribute value) {
    s.attributes[static_cast<std::size_t>(c.attribute_index(name))] = std::move(value);
  };
  set("direction", std::string(s.D == 2 ? "bidirectional" : pick(0, 1) ? "forward" : "reverse"));
  const bool lstm = c.name()[0] == 'L';
  set(lstm ? "input_forget" : "linear_before_reset", std::int64_t(pick(0, 1)));
  if (pick(0, 3) == 0) set("clip", 0.5f);
  if (pick(0, 3) == 0) {
    // Bounded ones: with the others, and weights that
    // are all positive, states grow past any number.
    constexpr const char* names[] = {"Sigmoid", "Tanh", "HardSigmoid", "Softsign"};
    Strings functions;
    for (Dim i = 0; i < s.D * (lstm ? 3 : 2); ++i) functions.push_back(names[pick(0, 3)]);
    set("activations", functions);
  }
  for (const TensorSpec& t : c.inputs())
    s.given.push_back(!t.optional || t.name == "grad_HAll" || pick(0, 1));
  return s;
}

Shape shape_of(const Contract& c, const TensorSpec& t, const Setting& s) {
  Shape shape;
  for (const Axis& axis : t.axes) {
    const std::string& symbol = c.symbols()[static_cast<std::size_t>(axis.symbol)];
    shape.push_back(axis.factor * (symbol == "S"   ? s.S
                                   : symbol == "N" ? s.N
                                   : symbol == "I" ? s.I
                                   : symbol == "H" ? s.H
                                                   : s.D));
  }
  return shape;
}

void run(const Op& op, const Setting& s, Span<const TensorView> inputs, TestHost& host) {
  std::vector<TensorView> outputs(op.contract().outputs().size());
  for (TensorView& out : outputs) out.present = true;
  Call call(op.contract(), s.attributes, inputs, {outputs.data(), Dim(outputs.size())}, host);
  op.run(call);
}

// What is wrong with an output, or nullptr.
template <class T> const char* complaint(const TensorView& a, const TensorView& b) {
  for (const T value : values_of<T>(a))
    if (!std::isfinite(value)) return "not written, or not finite";
  const auto bytes = static_cast<std::size_t>(a.shape.size()) * sizeof(T);
  return bytes == 0 || std::memcmp(a.data, b.data, bytes) == 0 ? nullptr
                                                               : "not the same on four threads";
}

template <class T> bool holds(const Op& op, const Setting& s) {
  const Contract& c = op.contract();
  std::vector<TestTensor<T>> floats;
  std::vector<TestTensor<std::int32_t>> lengths;
  std::vector<TensorView> inputs(c.inputs().size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!s.given[i]) continue;
    const Shape shape = shape_of(c, c.inputs()[i], s);
    if (c.inputs()[i].type == "T") {
      floats.emplace_back(shape, g_random);
      inputs[i] = floats.back().view;
    } else {
      lengths.emplace_back(shape);
      for (std::int32_t& v : lengths.back().values()) v = std::int32_t(pick(0, s.S));
      inputs[i] = lengths.back().view;
    }
  }
  const Span<const TensorView> views{inputs.data(), Dim(inputs.size())};
  TestHost alone(1), together(4);
  run(op, s, views, alone), run(op, s, views, together);
  bool good = true;
  for (std::size_t i = 0; i < alone.outputs().size(); ++i)
    if (const char* text = complaint<T>(alone.outputs()[i], together.outputs()[i])) {
      std::printf("%s: %s is %s\n", c.name().c_str(), c.outputs()[i].name.c_str(), text);
      good = false;
    }
  return good;
}

}  // namespace

int main() {
  int failures = 0;
  for (const Op& op : ops()) {
    const Contract& c = op.contract();
    if (c.name().rfind("LSTM", 0) != 0 && c.name().rfind("GRU", 0) != 0) continue;
    for (int i = 0; i < 120; ++i) {
      const Setting s = random_setting(c);
      c.check_attributes(s.attributes);
      if (holds<float>(op, s) && holds<double>(op, s)) continue;
      ++failures;
      std::printf("%s: S %ld N %ld I %ld H %ld D %ld\n", c.name().c_str(), long(s.S), long(s.N),
                  long(s.I), long(s.H), long(s.D));
    }
  }
  std::printf("%s: %d failures\n", instruction_set(), failures);
  return failures != 0;
}
