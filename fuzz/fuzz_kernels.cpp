// Every operator under libFuzzer: calls that a file from a stranger could make.
//
// A call either computes or throws ContractError. What it computes does not depend on which outputs
// are asked for, nor on what their memory held before, nor on the order of the pieces of work.
#include <cstdio>
#include <cstdlib>
#include <new>

#include "generated_call.h"

namespace {

using namespace onnxgrad;
using namespace onnxgrad::fuzz;

// Lends exactly the memory of each output, filled with one byte.
class FuzzHost final : public Host {
 public:
  FuzzHost(int fill, bool backwards) : fill_(fill), backwards_(backwards) {}

  void allocate(Span<TensorView> outputs) override {
    constexpr Dim kMostBytes = Dim(1) << 26;
    for (TensorView& out : outputs) {
      const Dim bytes = out.shape.size() * bytes_of(out.type);
      if (out.present && bytes > kMostBytes) throw std::bad_alloc();
    }
    for (TensorView& out : outputs) {
      memory.emplace_back();
      if (!out.present) continue;
      memory.back().resize(static_cast<std::size_t>(out.shape.size() * bytes_of(out.type)),
                           static_cast<char>(fill_));
      memory.back().shrink_to_fit();
      out.data = memory.back().data();
    }
  }
  void parallel_for(Dim count, Body body, void* context) override {
    struct InOrder final : Turn {
      Dim at, step, left;
      InOrder(Dim count, bool backwards)
          : at(backwards ? count - 1 : 0), step(backwards ? -1 : 1), left(count) {}
      Dim next() override {
        if (left-- <= 0) return -1;
        const Dim piece = at;
        return at += step, piece;
      }
    } turn(count, backwards_);
    body(context, turn);
  }

  std::vector<std::vector<char>> memory;  // of each output; empty where it was not asked for

 private:
  const int fill_;
  const bool backwards_;
};

struct Counts {
  long calls = 0, computed = 0, refused = 0, too_large = 0;
  void print() const {
    std::fprintf(stderr,
                 "kernels (%s): %ld calls; of the inputs %ld computed, %ld were refused, %ld were "
                 "too large to try\n",
                 instruction_set(), calls, computed, refused, too_large);
  }
  ~Counts() { print(); }
} g_counts;

enum class Outcome { computed, refused, too_large };

Outcome run(const Op& op, const GeneratedCall& generated, std::vector<bool> wanted, FuzzHost& host,
            std::string& refusal) {
  if (++g_counts.calls % 50000 == 0) g_counts.print();  // an interrupted run says how far it came
  std::vector<TensorView> outputs(wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) outputs[i].present = wanted[i];
  try {
    op.contract().check_attributes(generated.attributes());
    for (std::size_t i = 0; i < generated.inputs().size(); ++i) {  // as a host does
      const TensorView& view = generated.inputs()[i];
      if (view.present)
        checked_shape(
            op.contract(),
            [&] { return "input " + op.contract().inputs()[i].name + " has shape "; },
            view.shape.data(), static_cast<std::size_t>(view.shape.rank()));
    }
    Call call(op.contract(), generated.attributes(),
              {generated.inputs().data(), static_cast<Dim>(generated.inputs().size())},
              {outputs.data(), static_cast<Dim>(outputs.size())}, host);
    op.run(call);
    return Outcome::computed;
  } catch (const ContractError& e) {
    return refusal = e.what(), Outcome::refused;
  } catch (const std::bad_alloc&) {
    return Outcome::too_large;
  }
}

[[noreturn]] void report(const Contract& contract, const char* what, const std::string& detail) {
  std::fprintf(stderr, "%s: %s (%s)\n", contract.name().c_str(), what, detail.c_str());
  std::abort();
}

// The same bits in what both calls were asked for.
void compare(const Contract& contract, const std::vector<bool>& wanted, const FuzzHost& all,
             const FuzzHost& some) {
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i] && all.memory[i] != some.memory[i])
      report(contract, "an output depends on the others, or is not written",
             contract.outputs()[i].name);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes bytes(data, size);
  const Op& op = ops()[bytes.choice(static_cast<int>(ops().size()))];
  GeneratedCall generated(op, bytes);
  std::string refusal;
  // Some outputs exist only beside an input: then the wanted ones are compared with themselves.
  std::vector<bool> everything(generated.wanted().size(), true);
  Outcome outcome = Outcome::refused;
  for (int attempt = 0; attempt < 5; ++attempt) {
    FuzzHost all(0xFF, false), some(0x5A, true);
    outcome = run(op, generated, everything, all, refusal);
    if (outcome == Outcome::refused && generated.obey(refusal)) continue;
    if (outcome == Outcome::refused && everything != generated.wanted()) {
      everything = generated.wanted();
      continue;
    }
    if (outcome != Outcome::computed) break;
    bool any = false;
    for (bool w : generated.wanted()) any = any || w;
    const Outcome again = run(op, generated, generated.wanted(), some, refusal);
    if (!any && again != Outcome::refused)
      report(op.contract(), "no output was asked for", "and it was not refused");
    if (any && again != Outcome::computed)
      report(op.contract(), "refused with some outputs, computed with all", refusal);
    if (any) compare(op.contract(), generated.wanted(), all, some);
    break;
  }
  ++(outcome == Outcome::computed  ? g_counts.computed
     : outcome == Outcome::refused ? g_counts.refused
                                   : g_counts.too_large);
  return 0;
}
