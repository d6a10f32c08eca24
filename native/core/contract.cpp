#include "core/contract.h"

#include <cstdio>

namespace onnxgrad {

const char* name_of(Kind kind) {
  constexpr const char* names[] = {"nothing",          "an integer",         "a float",
                                   "a string",         "a list of integers", "a list of floats",
                                   "a list of strings"};
  return names[static_cast<int>(kind)];
}

namespace {

std::string text_of(std::int64_t x) {
  return std::to_string(x);
}
std::string text_of(float x) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%g", static_cast<double>(x));
  return buffer;
}
// An attribute comes from a file: a message shows the beginning of what is long.
std::string text_of(const std::string& x) {
  constexpr std::size_t kMost = 200;
  return "'" + (x.size() > kMost ? x.substr(0, kMost) + "…" : x) + "'";
}
template <class T> std::string text_of(const std::vector<T>& list) {
  constexpr std::size_t kMost = 64;
  std::string text = "[";
  for (const T& x : list) {
    if (&x == list.data() + kMost)
      return text + ", … " + std::to_string(list.size()) + " elements]";
    text += (&x == list.data() ? "" : ", ") + text_of(x);
  }
  return text + "]";
}
std::string text_of(std::monostate) {
  return "nothing";
}

// "forward, reverse or bidirectional"
std::string alternatives(const Strings& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return text;
}

std::string trimmed(const std::string& text) {
  const auto from = text.find_first_not_of(' ');
  if (from == std::string::npos) return "";
  return text.substr(from, text.find_last_not_of(' ') - from + 1);
}

// Names are short and looked up in every call: most differ in their length or first character.
bool same_name(std::string_view a, std::string_view b) {
  return a.size() == b.size() && (a.empty() || (a[0] == b[0] && a == b));
}
template <class List> int index_of(const List& list, std::string_view name) {
  for (std::size_t i = 0; i < list.size(); ++i)
    if (same_name(list[i].name, name)) return static_cast<int>(i);
  return -1;
}

}  // namespace

std::string to_string(const Attribute& value) {
  return std::visit([](const auto& v) { return text_of(v); }, value);
}

const char* explanation_of(Measure measure) {
  constexpr const char* texts[] = {"ulp of max(|exact|, 1/8), per unit of dY",
                                   "relative to the row's largest term", "relative rms"};
  return texts[static_cast<int>(measure)];
}

int TensorSpec::fixed_rank() const {
  int n = 0;
  for (const Axis& a : axes) n += a.pack ? 0 : 1;
  return n;
}

// ---- building

Contract::Contract(std::string name) : name_(std::move(name)) {}
Contract::Contract(const Contract&) = default;
Contract::Contract(Contract&&) noexcept = default;
Contract::~Contract() = default;

Contract& Contract::summary(std::string text) {
  return summary_ = std::move(text), *this;
}
Contract& Contract::formula(std::string text) {
  return formula_ = std::move(text), *this;
}
Contract& Contract::accuracy(Measure m, double f32, double f64) {
  return accuracy_ = {m, f32, f64}, *this;
}
Contract& Contract::accuracy_of(std::string output, Measure m, double f32, double f64) {
  own_accuracies_.push_back({std::move(output), {m, f32, f64}});
  return *this;
}
Contract& Contract::check(AttributeCheck check) {
  return check_ = check, *this;
}

Contract& Contract::attr(std::string name, std::int64_t initial, std::string doc) {
  attributes_.push_back({std::move(name), Kind::integer, initial, {}, std::move(doc)});
  return defaults_.push_back(attributes_.back().initial), *this;
}
Contract& Contract::attr(std::string name, float initial, std::string doc) {
  attributes_.push_back({std::move(name), Kind::real, initial, {}, std::move(doc)});
  return defaults_.push_back(attributes_.back().initial), *this;
}
Contract& Contract::attr(std::string name, const char* initial, Strings accepted, std::string doc) {
  attributes_.push_back(
      {std::move(name), Kind::text, std::string(initial), std::move(accepted), std::move(doc)});
  return defaults_.push_back(attributes_.back().initial), *this;
}
Contract& Contract::attr(std::string name, Kind kind, std::string doc) {
  attributes_.push_back({std::move(name), kind, std::monostate{}, {}, std::move(doc)});
  return defaults_.push_back(attributes_.back().initial), *this;
}
Contract& Contract::within(std::int64_t least, std::int64_t most) {
  return attributes_.back().least = least, attributes_.back().most = most, *this;
}
Contract& Contract::input(std::string name, const std::string& spec, std::string doc) {
  return inputs_.push_back(parse(std::move(name), spec, false, std::move(doc))), *this;
}
Contract& Contract::optional(std::string name, const std::string& spec, std::string doc) {
  return inputs_.push_back(parse(std::move(name), spec, true, std::move(doc))), *this;
}
Contract& Contract::output(std::string name, const std::string& spec, std::string doc) {
  return outputs_.push_back(parse(std::move(name), spec, false, std::move(doc))), *this;
}
Contract& Contract::optional_output(std::string name, const std::string& spec, std::string doc) {
  return outputs_.push_back(parse(std::move(name), spec, true, std::move(doc))), *this;
}
Contract& Contract::inplace(const std::string& input, const std::string& output) {
  inplace_input_ = input_index(input), inplace_output_ = output_index(output);
  return *this;
}

namespace {
DType named(const std::string& type) {
  for (DType t :
       {DType::float32, DType::float64, DType::int32, DType::int64, DType::boolean, DType::uint8})
    if (type == name_of(t)) return t;
  return DType::other;
}
}  // namespace

TensorSpec Contract::parse(std::string name, const std::string& spec, bool optional,
                           std::string doc) {
  const auto open = spec.find('[');
  const std::string type = spec.substr(0, open);
  TensorSpec t{std::move(name), type, named(type), spec.substr(open), {}, optional, std::move(doc)};
  const std::string inside = spec.substr(open + 1, spec.size() - open - 2);
  for (std::size_t from = 0; from < inside.size();) {
    const std::size_t comma = std::min(inside.find(',', from), inside.size());
    t.axes.push_back(parse_axis(trimmed(inside.substr(from, comma - from))));
    from = comma + 1;
  }
  return t;
}

Axis Contract::parse_axis(std::string text) {
  Axis axis;
  if (std::isdigit(static_cast<unsigned char>(text[0]))) {
    const auto star = text.find('*');
    axis.factor = std::stoll(text.substr(0, star));
    if (star == std::string::npos) return axis;
    text = text.substr(star + 1);
  }
  if (text.size() > 3 && text.compare(text.size() - 3, 3, "...") == 0) axis.pack = true;
  axis.symbol = symbol_index(text);
  if (axis.symbol < 0) {
    axis.symbol = static_cast<int>(symbols_.size());
    symbols_.push_back(text);
  }
  return axis;
}

int Contract::input_index(std::string_view name) const {
  return index_of(inputs_, name);
}
int Contract::output_index(std::string_view name) const {
  return index_of(outputs_, name);
}
int Contract::attribute_index(std::string_view name) const {
  return index_of(attributes_, name);
}
int Contract::symbol_index(std::string_view name) const {
  for (std::size_t i = 0; i < symbols_.size(); ++i)
    if (same_name(symbols_[i], name)) return static_cast<int>(i);
  return -1;
}

// "strides is [0], expected numbers of at least 1"
void Contract::check_range(const AttributeSpec& spec, const Attribute& value) const {
  const auto* one = std::get_if<std::int64_t>(&value);
  const auto* several = std::get_if<Integers>(&value);
  const std::int64_t* first = one ? one : several ? several->data() : nullptr;
  const std::size_t count = one ? 1 : several ? several->size() : 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (first[i] >= spec.least && first[i] <= spec.most) continue;
    const bool low = first[i] < spec.least;
    fail(spec.name + " is " + to_string(value) + ", expected " + (several ? "numbers of " : "") +
         (low ? "at least " : "at most ") + std::to_string(low ? spec.least : spec.most));
  }
}

void Contract::check_attributes(const std::vector<Attribute>& values) const {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const AttributeSpec& spec = attributes_[i];
    if (kind_of(values[i]) == Kind::none && kind_of(spec.initial) == Kind::none) continue;
    if (kind_of(values[i]) != spec.kind)
      fail(spec.name + " is " + to_string(values[i]) + ", expected " + name_of(spec.kind));
    check_range(spec, values[i]);
    if (spec.accepted.empty()) continue;
    const std::string& text = std::get<std::string>(values[i]);
    bool known = false;
    for (const std::string& word : spec.accepted) known = known || word == text;
    if (!known)
      fail(spec.name + " is " + to_string(values[i]) + ", expected " + alternatives(spec.accepted));
  }
  if (check_) check_(*this, values);
}

// ---- binding

namespace {

class Binder {
 public:
  Binder(const Contract& contract, Span<const TensorView> inputs, Symbols& symbols)
      : contract_(contract), inputs_(inputs), symbols_(symbols) {}

  DType bind_all() {
    for (std::size_t i = 0; i < contract_.inputs().size(); ++i) {
      const TensorSpec& spec = contract_.inputs()[i];
      const TensorView& view = inputs_[static_cast<Dim>(i)];
      if (view.present) {
        check_type(spec, view.type);
        bind_dims(static_cast<int>(i), spec, view.shape);
      } else if (!spec.optional) {
        contract_.fail("input " + spec.name + " is missing");
      }
    }
    return t_ == DType::other ? DType::float32 : t_;
  }

 private:
  void check_type(const TensorSpec& spec, DType type) {
    if (spec.fixed == DType::other)
      spec.is_t() ? check_variable(spec, type, DType::float32, DType::float64, t_, t_source_)
                  : check_variable(spec, type, DType::int32, DType::int64, i_, i_source_);
    else if (spec.fixed != type)
      wrong_type(spec, type, spec.type);
  }

  void check_variable(const TensorSpec& spec, DType type, DType narrow, DType wide, DType& variable,
                      const std::string*& source) {
    if (variable != DType::other && type != variable)
      wrong_type(spec, type, std::string(name_of(variable)) + " (the type of " + *source + ")");
    if (type != narrow && type != wide)
      wrong_type(spec, type, std::string(name_of(narrow)) + " or " + name_of(wide));
    variable = type, source = &spec.name;
  }

  [[noreturn]] void wrong_type(const TensorSpec& spec, DType type,
                               const std::string& expected) const {
    contract_.fail("input " + spec.name + " is of " + (type == DType::other ? "" : "type ") +
                   name_of(type) + ", expected " + expected);
  }

  void bind_dims(int input, const TensorSpec& spec, const Shape& shape) {
    const int fixed = spec.fixed_rank(), pack = shape.rank() - fixed;
    if (pack < 0 || (pack > 0 && !spec.has_pack())) wrong_shape(input, spec, shape);
    int axis = 0;
    for (const Axis& a : spec.axes) {
      const bool fits =
          a.pack ? bind_pack(a, input, shape, axis, pack) : bind_dim(a, input, shape[axis]);
      if (!fits) wrong_shape(input, spec, shape);
      axis += a.pack ? pack : 1;
    }
  }

  bool bind_dim(const Axis& a, int input, Dim dim) {
    if (a.symbol < 0) return dim == a.factor;
    Symbols::Value& value = symbols_[a.symbol];
    if (value.bound) return dim == a.factor * value.dim;
    if (dim % a.factor != 0) return false;
    value.bound = true, value.dim = dim / a.factor, value.source = input;
    return true;
  }

  bool bind_pack(const Axis& a, int input, const Shape& shape, int from, int count) {
    Symbols::Value& value = symbols_[a.symbol];
    const Shape dims(shape.data() + from, count);
    if (value.bound) return dims == value.pack;
    value.bound = true, value.pack = dims, value.source = input;
    return true;
  }

  // "input W has shape [1, 80, 7], expected [1, 4*H, I] with I = 8 (from X)"
  [[noreturn]] void wrong_shape(int input, const TensorSpec& spec, const Shape& shape) const {
    std::string text = "input " + spec.name + " has shape " + onnxgrad::to_string(shape) +
                       ", expected " + spec.dims;
    const char* joint = " with ";
    for (const Axis& a : spec.axes) {
      const Axis* first = spec.axes.data();
      while (first->symbol != a.symbol) ++first;
      if (a.symbol < 0 || first != &a) continue;  // a number, or told already
      const Symbols::Value& value = symbols_[a.symbol];
      if (!value.bound || value.source == input) continue;
      text += joint + contract_.symbols()[static_cast<std::size_t>(a.symbol)] + " = " +
              (a.pack ? onnxgrad::to_string(value.pack) : std::to_string(value.dim)) + " (from " +
              contract_.inputs()[static_cast<std::size_t>(value.source)].name + ")";
      joint = ", ";
    }
    contract_.fail(text);
  }

  const Contract& contract_;
  Span<const TensorView> inputs_;
  Symbols& symbols_;
  DType t_ = DType::other, i_ = DType::other;
  const std::string *t_source_ = nullptr, *i_source_ = nullptr;
};

}  // namespace

DType bind(const Contract& contract, Span<const TensorView> inputs, Symbols& symbols) {
  return Binder(contract, inputs, symbols).bind_all();
}

Shape shape_of(const Contract& contract, const TensorSpec& spec, const Symbols& symbols) {
  Shape shape;
  for (const Axis& a : spec.axes) {
    if (a.symbol < 0) {
      shape.push_back(a.factor);
      continue;
    }
    const Symbols::Value& value = symbols[a.symbol];
    if (!value.bound) contract.fail("the shape of output " + spec.name + " is not known");
    if (a.pack)
      for (Dim d : value.pack) shape.push_back(d);
    else
      shape.push_back(a.factor * value.dim);
  }
  return checked_shape(
      contract, [&] { return "output " + spec.name + " would have shape "; }, shape.data(),
      static_cast<std::size_t>(shape.rank()));
}

}  // namespace onnxgrad
