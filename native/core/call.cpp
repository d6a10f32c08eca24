#include "core/call.h"

#include <algorithm>
#include <new>

#include "core/platform.h"

namespace onnxgrad {

void Call::set_dim(std::string_view symbol, Dim value) {
  Symbols::Value& v = symbols_[contract_.symbol_index(symbol)];
  v.bound = true, v.dim = value;
}

void Call::set_dims(std::string_view pack, const Shape& value) {
  Symbols::Value& v = symbols_[contract_.symbol_index(pack)];
  v.bound = true, v.pack = value;
}

int Call::axis(std::string_view attribute, std::string_view input) const {
  const std::int64_t axis = integer(attribute);
  const int rank = shape(input).rank();
  const int limit = rank == 0 ? 1 : rank;
  if (axis < -limit || axis >= limit)
    fail(std::string(attribute) + " is " + std::to_string(axis) + ", expected " +
         std::to_string(-limit) + ".." + std::to_string(limit - 1) + " for " + std::string(input) +
         " of rank " + std::to_string(rank));
  return static_cast<int>(axis < 0 ? axis + limit : axis);
}

Shape Call::numbers(std::string_view attribute, int count, Dim initial,
                    std::string_view input) const {
  const Integers given = integers(attribute);
  if (!given.empty() && given.size() != static_cast<std::size_t>(count))
    fail(std::string(attribute) + " is " + to_string(Attribute(given)) + ", expected " +
         std::to_string(count) + " numbers (" + std::string(input) + " has shape " +
         to_string(shape(input)) + ")");
  Shape list;
  for (int i = 0; i < count; ++i)
    list.push_back(given.empty() ? initial : given[static_cast<std::size_t>(i)]);
  return list;
}

namespace {
bool is_known(const TensorSpec& spec, const Symbols& symbols) {
  for (const Axis& axis : spec.axes)
    if (axis.symbol >= 0 && !symbols[axis.symbol].bound) return false;
  return true;
}
Dim bytes_in(const TensorView& view) {
  return view.shape.size() * bytes_of(view.type);
}
}  // namespace

Dim Call::most_working_memory() const {
  constexpr Dim kAlways = Dim(1) << 30, kTimes = 16;
  Dim in = 0, out = 0;
  for (const TensorView& input : inputs_)
    if (input.present) in += bytes_in(input);
  for (const TensorSpec& spec : contract_.outputs())
    if (is_known(spec, symbols_))
      out += shape_of(contract_, spec, symbols_).size() * bytes_of(type_);
  return std::min(kAlways + kTimes * (in + out), memory_of_machine() - out);
}

void Call::require_an_output() const {
  for (const TensorView& out : outputs_)
    if (out.present) return;
  std::string names;
  for (const TensorSpec& t : contract_.outputs()) names += (names.empty() ? "" : ", ") + t.name;
  fail("outputs asks for nothing, expected at least one of " + names);
}

const TensorView& Call::required_view(std::string_view name) {
  if (contract_.outputs()[static_cast<std::size_t>(contract_.output_index(name))].optional)
    fail("output " + std::string(name) + " is optional, and the kernel takes it for required");
  return output_view(name);
}

void Call::end_if_empty() {
  for (Dim i = 0; i < outputs_.size(); ++i)
    if (outputs_[i].present &&
        shape_of(contract_, contract_.outputs()[static_cast<std::size_t>(i)], symbols_).size() > 0)
      return;
  allocate();
}

void Call::allocate() {
  allocated_ = true;
  for (Dim i = 0; i < outputs_.size(); ++i) {
    TensorView& out = outputs_[i];
    const TensorSpec& spec = contract_.outputs()[static_cast<std::size_t>(i)];
    if (!out.present && spec.optional) continue;
    out.type = spec.is_t() ? type_ : spec.fixed;
    out.shape = shape_of(contract_, spec, symbols_);
  }
  check_memory();
  lend_unread();
  host_.allocate(outputs_);
  for (const TensorView& out : outputs_)
    if (out.present && out.shape.size() > 0) return;
  throw NothingToCompute();
}

// A shape can come from a file, and say more than there is.
void Call::check_memory() const {
  const Dim most = memory_of_machine();
  Dim bytes = 0;
  for (Dim i = 0; i < outputs_.size(); ++i) {
    const TensorSpec& spec = contract_.outputs()[static_cast<std::size_t>(i)];
    if ((!outputs_[i].present && spec.optional) || host_.is_lent(i)) continue;
    bytes += bytes_in(outputs_[i]);
    if (bytes > most)
      fail("output " + spec.name + " would have shape " + to_string(outputs_[i].shape) +
           " and make " + std::to_string(bytes >> 20) + " MiB of outputs, expected at most the " +
           std::to_string(most >> 20) + " MiB that this machine has");
  }
}

// One block for all required outputs that nobody asked for.
void Call::lend_unread() {
  const auto each = [&](auto&& f) {
    for (Dim i = 0; i < outputs_.size(); ++i)
      if (!outputs_[i].present && !contract_.outputs()[static_cast<std::size_t>(i)].optional)
        f(outputs_[i]);
  };
  constexpr Dim kAlignment = 64;
  const auto room = [](const TensorView& out) {
    return (bytes_in(out) + kAlignment) / kAlignment * kAlignment;
  };
  Dim bytes = 0;
  each([&](const TensorView& out) { bytes += room(out); });
  if (bytes == 0) return;
  unread_.reset(new (std::nothrow) char[static_cast<std::size_t>(bytes + kAlignment)]);
  if (!unread_)
    fail("needs " + std::to_string((bytes >> 20) + 1) +
         " MiB for outputs that were not asked for, which could not be allocated");
  char* next = unread_.get();
  next += kAlignment - reinterpret_cast<std::uintptr_t>(next) % kAlignment;
  each([&](TensorView& out) { out.data = next, next += room(out); });
}

}  // namespace onnxgrad
