// What LSTM and GRU share: their common attributes and checks, the lengths of the rows, and the order of the work.
#pragma once
#include <algorithm>

#include "core/phases.h"
#include "core/workspace.h"
#include "ops/recurrent_activation.h"

namespace onnxgrad::ONNXGRAD_ISA {

// S steps, N rows (the batch), I inputs, H hidden units, D directions.
struct RecurrentShape { Dim S, N, I, H, D; };

inline Contract recurrent_contract(const char* name) {
  return Contract(name)
      .attr("activations", Kind::texts, "functions of ONNX's list, for each direction; the standard ones when absent")
      .attr("activation_alpha", Kind::reals, "consumed in order by the functions that take an alpha")
      .attr("activation_beta", Kind::reals, "consumed in order by the functions that take a beta")
      .attr("clip", Kind::real, "pre-activations are limited to [-clip, clip]; a limited one passes no gradient")
      .attr("direction", "forward", {"forward", "reverse", "bidirectional"}, "the order of the steps")
      .attr("hidden_size", Kind::integer, "H; follows from R, and must agree with it when given");
}

template <class V> V attribute_or(const Contract& c, const std::vector<Attribute>& values, const char* name, V absent) {
  const V* v = std::get_if<V>(&values[static_cast<std::size_t>(c.attribute_index(name))]);
  return v ? *v : absent;
}

// The activations of every direction, from the attributes of a node.
inline std::vector<Activation> activations_of(const Contract& c, const std::vector<Attribute>& values,
                                              const Strings& defaults) {
  const bool both = attribute_or<std::string>(c, values, "direction", "") == "bidirectional";
  return parse_activations(c, attribute_or(c, values, "activations", Strings{}),
                           attribute_or(c, values, "activation_alpha", Floats{}),
                           attribute_or(c, values, "activation_beta", Floats{}), defaults, both ? 2 : 1);
}

// What is wrong with the attributes alone is said when a node is created. `flag` is 0 or 1.
inline void check_recurrent_attributes(const Contract& c, const std::vector<Attribute>& values, const Strings& defaults,
                                       const char* flag, bool needs_slopes) {
  const std::int64_t on = attribute_or(c, values, flag, std::int64_t(0));
  if (on != 0 && on != 1) c.fail(flag + (" is " + std::to_string(on)) + ", expected 0 or 1");
  const float clip = attribute_or(c, values, "clip", 0.f);
  if (!(clip >= 0)) c.fail("clip is " + to_string(Attribute(clip)) + ", expected 0 or more");
  if (attribute_or(c, values, "activations", Strings{}).empty()) return;
  const std::vector<Activation> activations = activations_of(c, values, defaults);
  if (needs_slopes) require_slopes(c, activations);
}

// Everything about a call that does not depend on the cell.
struct RecurrentCall {
  RecurrentShape shape;
  std::vector<Activation> activations;  // all directions, one after the other
  bool has_clip, standard;              // standard: the default activations, and no clip
  float clip;
  bool starts_at_the_end[2];            // of each direction
};

// Also a list that names the standard functions: none of them has a parameter.
inline bool are_standard(const std::vector<Activation>& activations, const Strings& defaults) {
  for (std::size_t i = 0; i < activations.size(); ++i)
    for (const FunctionSpec& spec : function_specs())
      if (spec.function == activations[i].function && defaults[i % defaults.size()] != spec.name) return false;
  return true;
}

inline RecurrentCall prepare_recurrent(const Call& call, const Strings& defaults) {
  const std::string& direction = call.text("direction");
  const Dim D = direction == "bidirectional" ? 2 : 1;
  if (call.dim("D") != D)
    call.fail("input W has shape " + to_string(call.shape("W")) + ", expected " + std::to_string(D) +
              " as its first dim for direction " + direction);
  const RecurrentShape shape{call.dim("S"), call.dim("N"), call.dim("I"), call.dim("H"), D};
  if (call.given("hidden_size") && call.integer("hidden_size") != shape.H)
    call.fail("hidden_size is " + std::to_string(call.integer("hidden_size")) + ", expected " +
              std::to_string(shape.H) + " (from R of shape " + to_string(call.shape("R")) + ")");
  const Strings names = call.texts("activations");
  RecurrentCall r{shape, {}, call.given("clip"), false, call.given("clip") ? call.real("clip") : 0.f,
                  {direction == "reverse", true}};
  r.standard = !r.has_clip && names.empty();
  if (r.standard) return r;
  r.activations = parse_activations(call.contract(), names, call.reals("activation_alpha"),
                                    call.reals("activation_beta"), defaults, D);
  r.standard = !r.has_clip && are_standard(r.activations, defaults);
  return r;
}

// A gradient without any cotangent would be zero: a mistake in the graph, not a wish.
inline void require_cotangent(const Call& call, std::initializer_list<const char*> names) {
  std::string list;
  for (const char* name : names) {
    if (call.has(name)) return;
    list += (list.empty() ? "" : name == *(names.end() - 1) ? " or " : ", ") + std::string(name);
  }
  call.fail("no cotangent is given, expected at least one of " + list);
}

// ---- rows and their lengths

// The rows sorted by length, longest first, so that those with a step at time t are the first active(t) of them.
// Inside the kernels row k is always the k-th of this order; source(k) is where it stands in the tensors.
class Lengths {
 public:
  // Without `lengths` every row has all steps, and keeps its place.
  Lengths(const Call& call, RecurrentShape s, Span<const std::int32_t> lengths) : steps_(s.S), rows_(s.N) {
    if (!lengths) return;
    for (Dim n = 0; n < s.N; ++n)
      if (lengths[n] < 0 || lengths[n] > s.S)
        call.fail("input SL has the value " + std::to_string(lengths[n]) + " at " + std::to_string(n) +
                  ", expected 0.." + std::to_string(s.S) + " (S of X)");
    order_.resize(static_cast<std::size_t>(s.N));
    for (Dim n = 0; n < s.N; ++n) order_[static_cast<std::size_t>(n)] = n;
    std::stable_sort(order_.begin(), order_.end(), [&](Dim a, Dim b) { return lengths[a] > lengths[b]; });
    active_.assign(static_cast<std::size_t>(s.S) + 1, 0);
    for (Dim n = 0; n < s.N; ++n)
      for (Dim t = 0; t < lengths[n]; ++t) ++active_[static_cast<std::size_t>(t)];
    ragged_ = s.N > 0 && s.S > 0 && active(s.S - 1) < s.N;
  }
  bool ragged() const { return ragged_; }  // some row is shorter than S
  bool sorted() const { return !order_.empty(); }
  Dim source(Dim k) const { return order_.empty() ? k : order_[static_cast<std::size_t>(k)]; }
  // Rows with a step at time t.
  Dim active(Dim t) const {
    if (t < 0 || t >= steps_) return 0;
    return active_.empty() ? rows_ : active_[static_cast<std::size_t>(t)];
  }
  Dim nonempty() const { return active(0); }

 private:
  Dim steps_, rows_;
  bool ragged_ = false;
  std::vector<Dim> order_, active_;
};

// ---- the order of the work

// Steps [t, t_end), worked on together: `rows` rows in all, time by time. The products that need no recurrence
// run over a whole chunk; its size bounds the workspace.
struct Chunk { Dim t, t_end, rows; };

// Rows of a chunk: deep enough for the products over its rows, small enough for the second-level cache.
constexpr Dim kChunkRows = 256;

inline std::vector<Chunk> cut_into_chunks(const Lengths& lengths, Dim steps) {
  std::vector<Chunk> chunks;
  for (Dim t = 0; t < steps && lengths.active(t) > 0; ++t) {
    if (chunks.empty() || chunks.back().rows + lengths.active(t) > kChunkRows) chunks.push_back({t, t, 0});
    chunks.back().t_end = t + 1;
    chunks.back().rows += lengths.active(t);
  }
  return chunks;
}
inline Dim most_rows(const std::vector<Chunk>& chunks) {
  Dim rows = 0;
  for (const Chunk& c : chunks) rows = std::max(rows, c.rows);
  return rows;
}

// One phase of one direction.
enum class Stage : std::uint8_t {
  pack,     // the weights and the initial state, once
  gather,   // the rows of a chunk, for the products over them
  linear,   // the products of a chunk that its steps need
  step,     // one time step
  second,   // its second half, where a cell has two dependent products (GRU with linear_before_reset = 0)
  after,    // what follows from a whole chunk: gradients of X and of the weights
  finish,   // what follows from the last step
};
struct Moment {
  Stage stage;
  Dim chunk = 0;
  Dim t = 0, row = 0;       // the step, and where its rows begin in the chunk; in `after`: those of the last step
  Dim previous_row = 0;     // where the rows of the step before it begin in the chunk
  Dim previous_active = 0;  // how many those are; 0 at the first step of a chunk
  Dim count = 0;            // steps before this one, in all chunks
};

// Which stages an operator has, besides pack and step.
struct Stages { bool gather, linear, second, after, finish; };

// The phases of one direction, in order; `backwards`: last time first. Every direction has as many as the others.
inline std::vector<Moment> program_of(const Lengths& lengths, const std::vector<Chunk>& chunks, Stages stages,
                                      bool backwards) {
  std::vector<Moment> program = {{Stage::pack}};
  Dim count = 0;
  for (std::size_t n = 0; n < chunks.size(); ++n) {
    const std::size_t index = backwards ? chunks.size() - 1 - n : n;
    const Chunk& chunk = chunks[index];
    Moment m{Stage::gather, Dim(index)};
    const auto add = [&](Stage stage) { m.stage = stage, program.push_back(m); };
    if (stages.gather) add(Stage::gather);
    if (stages.linear) add(Stage::linear);
    Dim next_row = backwards ? chunk.rows : 0;
    for (Dim i = 0; i < chunk.t_end - chunk.t; ++i) {
      m.previous_row = m.row, m.previous_active = i == 0 ? 0 : lengths.active(m.t);
      m.t = backwards ? chunk.t_end - 1 - i : chunk.t + i;
      m.row = backwards ? next_row - lengths.active(m.t) : next_row;
      m.count = count++;
      add(Stage::step);
      if (stages.second) add(Stage::second);
      next_row = backwards ? m.row : m.row + lengths.active(m.t);
    }
    if (stages.after) add(Stage::after);
  }
  if (stages.finish) program.push_back({Stage::finish});
  return program;
}

// Runs one program per direction side by side: kernel.slices(direction, moment) slices of kernel.run(direction,
// moment, slice). Each direction's slices are neighbours, so that two threads take a direction each.
template <class Kernel>
void run_programs(Call& call, Kernel& kernel, const std::vector<std::vector<Moment>>& programs) {
  const Dim directions = Dim(programs.size()), phases = Dim(programs[0].size());
  const auto moment = [&](Dim d, Dim p) -> const Moment& {
    return programs[static_cast<std::size_t>(d)][static_cast<std::size_t>(p)];
  };
  const auto slices_of = [&](Dim p) {
    Dim slices = 0;
    for (Dim d = 0; d < directions; ++d) slices += kernel.slices(moment(d, p));
    return slices;
  };
  run_phases(call, phases, slices_of, [&](Dim p, Dim slice) {
    const Dim first = kernel.slices(moment(0, p));
    const Dim d = slice < first ? 0 : 1;
    kernel.run(d, moment(d, p), d == 0 ? slice : slice - first, directions == 2 ? &moment(1 - d, p) : nullptr);
  });
}

// Into how many slices to cut work of so many multiplications, when it consists of so many equal units: about
// 10 µs each, so that taking one (0.1 µs) costs nothing and a busy core delays little.
inline Dim slices_for(Dim multiplications, Dim units, Dim most = 8) {
  constexpr Dim kSliceWork = Dim(1) << 18;
  return std::max(Dim(1), std::min({multiplications / kSliceWork, units, most}));
}
// What packing one element costs, in multiplications.
constexpr Dim kPackWork = 5;
// The first unit of slice `slice`.
inline Dim cut(Dim units, Dim slices, Dim slice) { return units * slice / slices; }

}  // namespace onnxgrad::ONNXGRAD_ISA
