// Errors and attributes: from ONNX Runtime's objects to ours.
#pragma once
#include <algorithm>

#include "core/contract.h"
#include "hosts/ort_abi.h"

namespace onnxgrad {
namespace {

constexpr std::uint32_t kOldestLevel = 19;  // older ones are not tried: see docs/architecture.md
std::uint32_t g_level = 0;                  // the runtime's minor version

struct OrtError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string take_text(ort::Status* status) {
  std::string text = ort::ErrorText::call(status);
  ort::ReleaseStatus::call(status);
  return text;
}
template <class Slot, class... A> void must(A... a) {
  if (ort::Status* status = Slot::call(a...)) throw OrtError(take_text(status));
}

// Runs f; every exception becomes a status, so that nothing unwinds into the runtime.
template <class F> ort::Status* guarded(F&& f) noexcept {
  try {
    return f(), nullptr;
  } catch (const ContractError& e) {
    return ort::CreateStatus::call(ort::kInvalidArgument, e.what());
  } catch (const std::bad_alloc&) {
    return ort::CreateStatus::call(ort::kFail, "onnxgrad: out of memory");
  } catch (const std::exception& e) {
    return ort::CreateStatus::call(ort::kRuntimeException, e.what());
  }
}

// ---- attributes

// False when the node has no such attribute. Any other failure means that it is of another kind.
bool present(const Contract& c, const AttributeSpec& a, ort::Status* status) {
  if (!status) return true;
  if (take_text(status).find("No attribute with") != std::string::npos) return false;
  c.fail(a.name + " is of another kind, expected " + name_of(a.kind));
}

template <class Slot, class List>
Attribute read_list(const Contract& c, const AttributeSpec& a, const ort::KernelInfo* info) {
  std::size_t size = 0;
  if (!present(c, a, Slot::call(info, a.name.c_str(), nullptr, &size))) return a.initial;
  List list(size);
  if (size) must<Slot>(info, a.name.c_str(), list.data(), &size);
  return list;
}

Attribute read_text(const Contract& c, const AttributeSpec& a, const char* name,
                    const ort::KernelInfo* info) {
  std::size_t size = 0;
  if (!present(c, a, ort::GetText::call(info, name, nullptr, &size))) return a.initial;
  std::string text(size, '\0');
  must<ort::GetText>(info, name, text.data(), &size);
  text.resize(size ? size - 1 : 0);  // without the closing zero
  return text;
}

Strings split(const std::string& text) {
  Strings words;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t comma = std::min(text.find(',', from), text.size());
    words.push_back(text.substr(from, comma - from));
    from = comma + 1;
  }
  return words;
}

// Runtimes before 1.25 cannot hand a list of strings to a custom op.
// Graphs made by onnxgrad carry the list a second time, as one string `<name>_text`
// with commas; a node with the list alone is refused there, never misread.
Attribute read_texts(const Contract& c, const AttributeSpec& a, const ort::KernelInfo* info) {
  const std::string joined = a.name + "_text";
  const Attribute text = read_text(c, a, joined.c_str(), info);
  if (kind_of(text) == Kind::text) return split(std::get<std::string>(text));
  if (g_level >= ort::kLevelOfGetTexts) {
    ort::Allocator* allocator = nullptr;
    must<ort::DefaultAllocator>(&allocator);
    char** words = nullptr;
    std::size_t size = 0;
    if (!present(c, a, ort::GetTexts::call(info, a.name.c_str(), allocator, &words, &size)))
      return a.initial;
    Strings list(words, words + size);
    for (std::size_t i = 0; i < size; ++i)
      must<ort::AllocatorFree>(allocator, static_cast<void*>(words[i]));
    must<ort::AllocatorFree>(allocator, static_cast<void*>(words));
    return list;
  }
  std::size_t size =
      0;  // read as floats, a list of strings looks empty; only its absence is reported
  if (!present(c, a, ort::GetFloats::call(info, a.name.c_str(), nullptr, &size))) return a.initial;
  c.fail(a.name + " cannot be read from this onnxruntime (1." + std::to_string(g_level) +
         "), expected onnxruntime 1.25 or newer, or the same list as one string in " + joined);
}

Attribute read_attribute(const Contract& c, const AttributeSpec& a, const ort::KernelInfo* info) {
  switch (a.kind) {
    case Kind::integer: {
      std::int64_t value = 0;
      return present(c, a, ort::GetInteger::call(info, a.name.c_str(), &value)) ? Attribute(value)
                                                                                : a.initial;
    }
    case Kind::real: {
      float value = 0;
      return present(c, a, ort::GetFloat::call(info, a.name.c_str(), &value)) ? Attribute(value)
                                                                              : a.initial;
    }
    case Kind::text: return read_text(c, a, a.name.c_str(), info);
    case Kind::integers: return read_list<ort::GetIntegers, Integers>(c, a, info);
    case Kind::reals: return read_list<ort::GetFloats, Floats>(c, a, info);
    case Kind::texts: return read_texts(c, a, info);
    case Kind::none: break;
  }
  return a.initial;
}

}  // namespace
}  // namespace onnxgrad
