// Contract: what an operator takes and gives, as data.
// Both hosts, Python, the docs and the tests read it.
//
//   Contract("SoftmaxGrad_13")
//       .summary("Gradient of Softmax, opset 13.")
//       .attr   ("axis", -1, "the axis that Softmax ran along")
//       .input  ("dY", "T[shape...]", "cotangent of Y")
//       .input  ("Y",  "T[shape...]", "what Softmax gave")
//       .output ("dX", "T[shape...]", "Y·(dY − Σ Y·dY)");
//
// A tensor is written as its type and its dims: `int32[N]`, `T[S, N, I]`, `T[D, 4*H, I]`,
// `T[outer..., C]`. A dim is a number, a symbol, a number times a symbol, or `name...` for any
// number of dims. A symbol means the same number wherever it stands. T is float32 or float64 and I
// is int32 or int64, the same for every tensor of a call.
#pragma once
#include <limits>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "core/tensor.h"

namespace onnxgrad {

// Who, what came, what was expected. Hosts translate it;
// nothing else is thrown by bind() or an operator.
struct ContractError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using Integers = std::vector<std::int64_t>;
using Floats = std::vector<float>;
using Strings = std::vector<std::string>;
// monostate: not given, and there is no default.
using Attribute =
    std::variant<std::monostate, std::int64_t, float, std::string, Integers, Floats, Strings>;

enum class Kind : std::uint8_t { none, integer, real, text, integers, reals, texts };
inline Kind kind_of(const Attribute& a) {
  return static_cast<Kind>(a.index());
}
const char* name_of(Kind kind);  // "an integer", "a list of floats", …
std::string to_string(const Attribute& value);

struct AttributeSpec {
  std::string name;
  Kind kind;
  Attribute initial;  // the default; monostate when there is none
  Strings accepted;   // every accepted value of a text; empty: any
  std::string doc;
  // of an integer, and of each of a list
  std::int64_t least = std::numeric_limits<std::int64_t>::min();
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
};

// The most that an attribute may say of a step, a distance, a padding or a number of parts.
constexpr std::int64_t kMostStep = std::int64_t(1) << 24;

// factor * symbol; the number `factor` when there is no symbol; any number of dims when `pack`.
struct Axis {
  Dim factor = 1;
  int symbol = -1;
  bool pack = false;
};

struct TensorSpec {
  std::string name;
  std::string type;  // "T", "I" or the name of a DType
  DType fixed;       // what `type` names; other for T and I
  std::string dims;  // as written, with the brackets: "[S, N, 4*H]"
  std::vector<Axis> axes;
  bool optional = false;
  std::string doc;

  bool is_t() const { return type.size() == 1 && type[0] == 'T'; }
  int fixed_rank() const;  // axes that are not packs
  bool has_pack() const { return fixed_rank() != static_cast<int>(axes.size()); }
};

// How far a result may be from the exact one, and how
// that is measured: a promise to users, kept by the tests.
enum class Measure : std::uint8_t {
  ulp,  // per unit of dY: float in last places of max(|exact|, 1/8), double relative to it
  row,  // relative to the largest term of the row that is summed
  rms,  // relative root mean square over a tensor
};
struct Accuracy {
  Measure measure = Measure::rms;
  double float32 = 0, float64 = 0;
};
const char* explanation_of(Measure measure);

class Contract {
 public:
  explicit Contract(std::string name);
  // Defined in contract.cpp: every operator's file would compile them anew, as long as its kernel.
  Contract(const Contract&);
  Contract(Contract&&) noexcept;
  ~Contract();

  Contract& summary(std::string text);
  Contract& formula(std::string text);
  Contract& accuracy(Measure measure, double float32, double float64);
  // Of one output, which is held to another measure than the rest.
  Contract& accuracy_of(std::string output, Measure measure, double float32, double float64);
  Contract& attr(std::string name, std::int64_t initial, std::string doc);
  Contract& attr(std::string name, int initial, std::string doc) {
    return attr(std::move(name), std::int64_t(initial), std::move(doc));
  }
  Contract& attr(std::string name, float initial, std::string doc);
  Contract& attr(std::string name, const char* initial, Strings accepted, std::string doc);
  Contract& attr(std::string name, Kind kind, std::string doc);  // no default
  // Of the attribute before: the least and the most that its numbers may be.
  Contract& within(std::int64_t least, std::int64_t most = kMostStep);
  Contract& input(std::string name, const std::string& spec, std::string doc);
  Contract& optional(std::string name, const std::string& spec, std::string doc);
  Contract& output(std::string name, const std::string& spec, std::string doc);
  Contract& optional_output(std::string name, const std::string& spec, std::string doc);
  // The kernel may write this output over this input's memory.
  Contract& inplace(const std::string& input, const std::string& output);
  // What the attributes alone must satisfy, beyond kind
  // and accepted values; runs when a node is created.
  using AttributeCheck = void (*)(const Contract&, const std::vector<Attribute>&);
  Contract& check(AttributeCheck check);

  const std::string& name() const { return name_; }
  const std::string& summary() const { return summary_; }
  const std::string& formula() const { return formula_; }
  const Accuracy& accuracy() const { return accuracy_; }
  const std::vector<std::pair<std::string, Accuracy>>& own_accuracies() const {
    return own_accuracies_;
  }
  const std::vector<AttributeSpec>& attributes() const { return attributes_; }
  const std::vector<Attribute>& defaults() const { return defaults_; }
  const std::vector<TensorSpec>& inputs() const { return inputs_; }
  const std::vector<TensorSpec>& outputs() const { return outputs_; }
  const std::vector<std::string>& symbols() const { return symbols_; }
  int inplace_input() const { return inplace_input_; }  // -1: none
  int inplace_output() const { return inplace_output_; }

  int input_index(std::string_view name) const;  // -1 when there is none of that name
  int output_index(std::string_view name) const;
  int attribute_index(std::string_view name) const;
  int symbol_index(std::string_view name) const;

  // Throws ContractError when a value has the wrong kind
  // or is not accepted, or the operator's own check fails.
  void check_attributes(const std::vector<Attribute>& values) const;

  [[noreturn]] void fail(const std::string& what) const {
    throw ContractError(name_ + ": " + what);
  }

 private:
  void check_range(const AttributeSpec& spec, const Attribute& value) const;
  TensorSpec parse(std::string name, const std::string& spec, bool optional, std::string doc);
  Axis parse_axis(std::string text);

  std::string name_, summary_, formula_;
  Accuracy accuracy_;
  std::vector<std::pair<std::string, Accuracy>> own_accuracies_;  // by output
  std::vector<AttributeSpec> attributes_;
  std::vector<Attribute> defaults_;
  std::vector<TensorSpec> inputs_, outputs_;
  std::vector<std::string> symbols_;
  int inplace_input_ = -1, inplace_output_ = -1;
  AttributeCheck check_ = nullptr;
};

// The numbers that a call gives to the symbols of a contract.
class Symbols {
 public:
  explicit Symbols(std::size_t count) : values_(count) {}
  struct Value {
    Value() {}  // see TensorView
    bool bound = false;
    Dim dim = 0;      // of a plain symbol
    Shape pack;       // of `name...`
    int source = -1;  // the input that gave it
  };
  Value& operator[](int symbol) { return values_[static_cast<std::size_t>(symbol)]; }
  const Value& operator[](int symbol) const { return values_[static_cast<std::size_t>(symbol)]; }

 private:
  std::vector<Value> values_;
};

// Checks the inputs of one call against the contract and binds its symbols; throws ContractError.
// Returns what T stands for (float32 when no tensor of type T is present).
DType bind(const Contract& contract, Span<const TensorView> inputs, Symbols& symbols);

// The dims of a tensor as a host knows them; throws ContractError when they break a bound. `who()`
// begins the sentence: "input X has shape "; it is asked only then.
template <class F>
Shape checked_shape(const Contract& contract, F&& who, const Dim* dims, std::size_t rank) {
  if (const char* bound = broken_bound(dims, rank))
    contract.fail(who() + to_string(dims, rank) + ", expected " + bound);
  return {dims, static_cast<int>(rank)};
}

// The shape of an output once every symbol in it is bound, within the bounds.
Shape shape_of(const Contract& contract, const TensorSpec& spec, const Symbols& symbols);

}  // namespace onnxgrad
