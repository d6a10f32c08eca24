// GeneratedCall: one call of an operator, made from a fuzzer's bytes.
//
// Shapes follow the contract: its symbols get numbers, mostly small, and now and then one dim, one
// rank or one type is wrong, enormous or absent. Where an operator asks for more than its contract
// says, its own message tells the shape that it expects; obey() gives it that.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "bytes.h"
#include "core/call.h"

namespace onnxgrad::fuzz {

constexpr Dim kMostInputElements = 1 << 12;

class GeneratedCall {
 public:
  GeneratedCall(const Op& op, Bytes& bytes);

  const Contract& contract() const { return contract_; }
  const std::vector<Attribute>& attributes() const { return attributes_; }
  const std::vector<TensorView>& inputs() const { return views_; }
  const std::vector<bool>& wanted() const { return wanted_; }

  // Changes the shape of the input that `message` complains of to what it says is expected; false
  // when the message says no such thing.
  bool obey(const std::string& message);

 private:
  Dim some_dim(Bytes& bytes) const;
  Attribute some_attribute(const AttributeSpec& spec, Bytes& bytes) const;
  std::int64_t some_number(const AttributeSpec& spec, Bytes& bytes) const;
  Shape some_shape(const TensorSpec& spec, Bytes& bytes) const;
  DType some_type(const TensorSpec& spec, Bytes& bytes) const;
  void fill(std::size_t input);

  const Contract& contract_;
  std::vector<Dim> dims_;     // of plain symbols
  std::vector<Shape> packs_;  // of packs
  DType t_, i_;
  std::uint64_t seed_;
  int small_integers_;  // how integer tensors are filled
  std::vector<Attribute> attributes_;
  std::vector<TensorView> views_;
  std::vector<std::unique_ptr<char[]>> memory_;
  std::vector<bool> wanted_;
};

}  // namespace onnxgrad::fuzz
