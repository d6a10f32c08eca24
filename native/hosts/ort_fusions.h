// ONNX Runtime's own fusions, in a session that knows this library.
#pragma once
#include "hosts/fusing_optimizers.h"
#include "hosts/ort_attributes.h"

namespace onnxgrad {
namespace {

constexpr const char* kDisabledOptimizers = "optimization.disable_specified_optimizers";

// Set to "1" by a caller whose models import com.microsoft: the fusions then stay on.
constexpr const char* kKeepFusions = "onnxgrad.keep_fusions";

std::string entry(const ort::SessionOptions* options, const char* key) {
  int there = 0;
  must<ort::HasConfigEntry>(options, key, &there);
  if (!there) return "";
  std::size_t size = 0;
  must<ort::GetConfigEntry>(options, key, nullptr, &size);
  std::string text(size, '\0');
  if (size) must<ort::GetConfigEntry>(options, key, text.data(), &size);
  while (!text.empty() && text.back() == '\0') text.pop_back();
  return text;
}

// A model that does not import com.microsoft gets the newest version of the domain that a session
// knows. A library of operators claims versions up to 1000, and for those the runtime has none of
// its own fused operators: FusedConv "is not a registered function/op", and there is no session.
// The optimizers that would write them are therefore off, behind those that the caller turned off.
void turn_off_fusions(ort::SessionOptions* options) {
  if (entry(options, kKeepFusions) == "1") return;
  std::string names = entry(options, kDisabledOptimizers);
  if (names.find(kFusingOptimizers) != std::string::npos) return;
  if (!names.empty()) names += ';';
  names += kFusingOptimizers;
  must<ort::AddConfigEntry>(options, kDisabledOptimizers, names.c_str());
}

}  // namespace
}  // namespace onnxgrad
