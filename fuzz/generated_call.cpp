#include "generated_call.h"

#include <cstdlib>
#include <limits>

namespace onnxgrad::fuzz {

namespace {

const Dim kHostileDims[] = {0,
                            kMaxDimsOfNothing,
                            kMaxDimsOfNothing + 1,
                            kMaxElements,
                            Dim(1) << 31,
                            Dim(1) << 60,
                            std::numeric_limits<Dim>::max()};
const std::int64_t kHostileNumbers[] = {0,
                                        -1,
                                        kMostStep,
                                        kMostStep + 1,
                                        std::int64_t(1) << 31,
                                        std::int64_t(1) << 40,
                                        std::numeric_limits<std::int64_t>::max(),
                                        std::numeric_limits<std::int64_t>::min()};
const float kHostileFloats[] = {0.f,
                                -0.f,
                                -1.f,
                                1e-18f,
                                1e30f,
                                std::numeric_limits<float>::infinity(),
                                -std::numeric_limits<float>::infinity(),
                                std::numeric_limits<float>::quiet_NaN(),
                                std::numeric_limits<float>::denorm_min()};
const char* const kTexts[] = {"",          "mean",   "Tanh",     "Relu",
                              "LeakyRelu", "Affine", "Softplus", "linear"};

template <class List> auto pick(const List& list, Bytes& bytes) {
  return list[bytes.choice(static_cast<int>(sizeof list / sizeof *list))];
}

Dim bytes_in(const Shape& shape, DType type) {
  return shape.size() * bytes_of(type);
}

}  // namespace

GeneratedCall::GeneratedCall(const Op& op, Bytes& bytes) : contract_(op.contract()) {
  t_ = bytes.choice(2) ? DType::float64 : DType::float32;
  i_ = bytes.choice(2) ? DType::int32 : DType::int64;
  for (const std::string& symbol : contract_.symbols()) {
    (void)symbol;
    dims_.push_back(some_dim(bytes));
    Shape pack;
    const int rank = bytes.once(40) ? bytes.choice(70) : bytes.choice(4);
    for (int i = 0; i < rank && i < kShapeCapacity; ++i)
      pack.push_back(rank > 8 ? 1 + (bytes.once(8) ? 1 : 0) : some_dim(bytes));
    packs_.push_back(pack);
  }
  for (const AttributeSpec& spec : contract_.attributes())
    attributes_.push_back(bytes.choice(2) ? spec.initial : some_attribute(spec, bytes));
  small_integers_ = bytes.choice(4);
  for (const TensorSpec& spec : contract_.inputs()) {
    TensorView view;
    view.present = spec.optional ? bytes.choice(2) == 1 : !bytes.once(250);
    view.type = some_type(spec, bytes);
    view.shape = some_shape(spec, bytes);
    views_.push_back(view);
  }
  for (std::size_t i = 0; i < contract_.outputs().size(); ++i)
    wanted_.push_back(bytes.choice(4) != 0);
  seed_ = bytes.word();
  memory_.resize(views_.size());
  for (std::size_t i = 0; i < views_.size(); ++i) fill(i);
}

Dim GeneratedCall::some_dim(Bytes& bytes) const {
  if (bytes.once(200)) return pick(kHostileDims, bytes);
  constexpr Dim usual[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33, 0};
  return usual[bytes.choice(bytes.choice(4) ? 6 : 12)];
}

std::int64_t GeneratedCall::some_number(const AttributeSpec& spec, Bytes& bytes) const {
  if (bytes.once(60)) return pick(kHostileNumbers, bytes);
  const std::int64_t least = spec.least > -1000 ? spec.least : -3;
  return least + bytes.choice(bytes.choice(4) ? 3 : 40);
}

Attribute GeneratedCall::some_attribute(const AttributeSpec& spec, Bytes& bytes) const {
  const auto real = [&] {
    return bytes.once(30) ? pick(kHostileFloats, bytes) : float(bytes.byte()) / 64 - 1;
  };
  const auto text = [&]() -> std::string {
    if (!spec.accepted.empty() && !bytes.once(60))
      return spec.accepted[static_cast<std::size_t>(bytes.choice(int(spec.accepted.size())))];
    return pick(kTexts, bytes);
  };
  // lists have mostly as many elements as there are spatial dims, once or twice
  const int length = bytes.once(40) ? bytes.choice(200) : bytes.choice(7);
  switch (spec.kind) {
    case Kind::integer: return some_number(spec, bytes);
    case Kind::real: return real();
    case Kind::text: return text();
    case Kind::integers: {
      Integers list;
      for (int i = 0; i < length; ++i) list.push_back(some_number(spec, bytes));
      return list;
    }
    case Kind::reals: {
      Floats list;
      for (int i = 0; i < length; ++i) list.push_back(real());
      return list;
    }
    case Kind::texts: {
      Strings list;
      for (int i = 0; i < length; ++i) list.push_back(text());
      return list;
    }
    case Kind::none: break;
  }
  return std::monostate();
}

Shape GeneratedCall::some_shape(const TensorSpec& spec, Bytes& bytes) const {
  Shape shape;
  const auto add = [&](Dim d) {
    if (shape.rank() < kShapeCapacity) shape.push_back(d);
  };
  for (const Axis& axis : spec.axes) {
    const auto symbol = static_cast<std::size_t>(axis.symbol);
    if (axis.symbol < 0)
      add(axis.factor);
    else if (!axis.pack)
      add(dims_[symbol] > kMaxElements ? dims_[symbol] : axis.factor * dims_[symbol]);
    else
      for (Dim d : packs_[symbol]) add(d);
  }
  if (bytes.once(100) && shape.rank() > 0) shape[bytes.choice(shape.rank())] = some_dim(bytes);
  if (bytes.once(250)) add(some_dim(bytes));
  return shape;
}

DType GeneratedCall::some_type(const TensorSpec& spec, Bytes& bytes) const {
  if (bytes.once(250)) return static_cast<DType>(bytes.choice(6));
  return spec.is_t() ? t_ : spec.type == "I" ? i_ : spec.fixed;
}

// Exactly as much memory as the shape says: a sanitizer sees one element too many. What cannot be
// had is made empty.
void GeneratedCall::fill(std::size_t input) {
  TensorView& view = views_[input];
  if (view.shape.size() > kMostInputElements &&
      broken_bound(view.shape.data(), static_cast<std::size_t>(view.shape.rank())))
    view.shape[0] = 0;  // too large to exist, unless empty
  for (int a = 0; view.shape.size() > kMostInputElements; a = (a + 1) % view.shape.rank())
    view.shape[a] = view.shape[a] / 2;
  const Dim bytes = bytes_in(view.shape, view.type);
  memory_[input].reset(new char[static_cast<std::size_t>(bytes)]);
  view.data = memory_[input].get();
  Stream stream(seed_ + input);
  for (Dim i = 0; i < view.shape.size(); ++i) {
    const std::uint64_t random = stream.next();
    const bool hostile = random % 64 == 0 && small_integers_ == 0;
    const auto number = static_cast<std::int64_t>(random >> 8 & 0xFFFF);
    const std::int64_t whole =
        hostile ? kHostileNumbers[number % 8]
                : number % (small_integers_ == 1 ? 2 : 9) - (small_integers_ == 3 ? 4 : 0);
    const float real = random % 512 == 1 ? kHostileFloats[number % 9] : float(number) / 16384 - 2;
    switch (view.type) {
      case DType::float32: static_cast<float*>(view.data)[i] = real; break;
      case DType::float64: static_cast<double*>(view.data)[i] = double(real); break;
      case DType::int32:
        static_cast<std::int32_t*>(view.data)[i] = static_cast<std::int32_t>(whole);
        break;
      case DType::int64: static_cast<std::int64_t*>(view.data)[i] = whole; break;
      case DType::boolean: static_cast<bool*>(view.data)[i] = number % 2 == 1; break;
      case DType::other: break;
    }
  }
}

namespace {

// Appends the numbers of "[2, 3]"; false when the text is none ("[N, C, in...]").
bool read_dims(const char* text, Shape& shape) {
  if (*text++ != '[') return false;
  while (*text != ']' && shape.rank() < kMaxRank) {
    char* end = nullptr;
    const long long dim = std::strtoll(text, &end, 10);
    if (end == text || dim < 0 || (*end != ',' && *end != ']')) return false;
    shape.push_back(Dim(dim));
    text = *end == ',' ? end + 1 : end;
  }
  return *text == ']';
}

}  // namespace

bool GeneratedCall::obey(const std::string& message) {
  for (std::size_t i = 0; i < views_.size(); ++i) {
    const std::size_t told = message.find("input " + contract_.inputs()[i].name + " has ");
    const std::size_t expected = message.find("expected [", told);
    if (told == std::string::npos || expected == std::string::npos) continue;
    Shape shape;
    if (message.find("has spatial dims", told) < expected && views_[i].shape.rank() >= 2)
      shape = Shape{views_[i].shape[0], views_[i].shape[1]};
    if (!read_dims(message.c_str() + expected + 9, shape) || shape == views_[i].shape ||
        shape.size() > kMostInputElements)
      return false;
    views_[i].shape = shape;
    return fill(i), true;
  }
  return false;
}

}  // namespace onnxgrad::fuzz
