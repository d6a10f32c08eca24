// The order of the work of LSTM and GRU: which rows have a step when,
// the phases of a direction, and how each is cut into slices.
#pragma once
#include <algorithm>

#include "core/phases.h"
#include "ops/recurrent/recurrent_call.h"

namespace onnxgrad::ONNXGRAD_ISA {

// ---- rows and their lengths

// The rows sorted by length, longest first, so that those with a step at
// time t are the first active(t) of them. Inside the kernels row k is always
// the k-th of this order; source(k) is where it stands in the tensors.
class Lengths {
 public:
  // Without `lengths` every row has all steps, and keeps its place.
  Lengths(const Call& call, RecurrentShape s, Span<const std::int32_t> lengths)
      : steps_(s.S), rows_(s.N) {
    if (!lengths) return;
    for (Dim n = 0; n < s.N; ++n)
      if (lengths[n] < 0 || lengths[n] > s.S)
        call.fail("input SL has the value " + std::to_string(lengths[n]) + " at " +
                  std::to_string(n) + ", expected 0.." + std::to_string(s.S) + " (S of X)");
    order_.resize(static_cast<std::size_t>(s.N));
    for (Dim n = 0; n < s.N; ++n) order_[static_cast<std::size_t>(n)] = n;
    std::stable_sort(order_.begin(), order_.end(),
                     [&](Dim a, Dim b) { return lengths[a] > lengths[b]; });
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

// Steps [t, t_end), worked on together: `rows` rows in all, time by time. The products that need no
// recurrence run over a whole chunk; its size bounds the workspace.
struct Chunk {
  Dim t, t_end, rows;
};

// Rows of a chunk: deep enough for the products over
// its rows, small enough for the second-level cache.
constexpr Dim kChunkRows = 256;

inline std::vector<Chunk> cut_into_chunks(const Lengths& lengths, Dim steps) {
  std::vector<Chunk> chunks;
  for (Dim t = 0; t < steps && lengths.active(t) > 0; ++t) {
    if (chunks.empty() || chunks.back().rows + lengths.active(t) > kChunkRows)
      chunks.push_back({t, t, 0});
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
  pack,    // the weights and the initial state, once
  gather,  // the rows of a chunk, for the products over them
  linear,  // the products of a chunk that its steps need
  step,    // one time step
  second,  // its second half, where a cell has two dependent products (GRU that resets before)
  after,   // what follows from a whole chunk: gradients of X and of the weights
  finish,  // what follows from the last step
};
struct Moment {
  Stage stage;
  Dim chunk = 0;
  Dim t = 0;                // the step; in `after`: the last one
  Dim row = 0;              // where its rows begin in the chunk
  Dim previous_row = 0;     // where the rows of the step before it begin
  Dim previous_active = 0;  // how many those are; 0 at the first step of a chunk
  Dim count = 0;            // steps before this one, in all chunks
  bool joined = false;      // belongs to the same phase as the moment before it
};

// Which stages an operator has, besides pack and step.
struct Stages {
  bool gather, linear, second, after, finish;
};

// The moments of one direction, in order; `backwards`: last time first. `joined`: the steps of a
// chunk are one phase. Every direction has as many phases as the others.
inline std::vector<Moment> program_of(const Lengths& lengths, const std::vector<Chunk>& chunks,
                                      Stages stages, bool backwards, bool joined) {
  std::vector<Moment> program = {{Stage::pack}};
  program.reserve(static_cast<std::size_t>(3 * Dim(chunks.size()) +
                                           2 * (chunks.empty() ? 0 : chunks.back().t_end) + 2));
  Dim count = 0;
  for (std::size_t n = 0; n < chunks.size(); ++n) {
    const std::size_t index = backwards ? chunks.size() - 1 - n : n;
    const Chunk& chunk = chunks[index];
    Moment m{Stage::gather, Dim(index)};
    const auto add = [&](Stage stage, bool join = false) {
      m.stage = stage, m.joined = join, program.push_back(m);
    };
    if (stages.gather) add(Stage::gather);
    if (stages.linear) add(Stage::linear);
    Dim next_row = backwards ? chunk.rows : 0;
    for (Dim i = 0; i < chunk.t_end - chunk.t; ++i) {
      m.previous_row = m.row, m.previous_active = i == 0 ? 0 : lengths.active(m.t);
      m.t = backwards ? chunk.t_end - 1 - i : chunk.t + i;
      m.row = backwards ? next_row - lengths.active(m.t) : next_row;
      m.count = count++;
      add(Stage::step, joined && i > 0);
      if (stages.second) add(Stage::second, joined);
      next_row = backwards ? m.row : m.row + lengths.active(m.t);
    }
    if (stages.after) add(Stage::after);
  }
  if (stages.finish) program.push_back({Stage::finish});
  return program;
}

// Where the phases of a program start, and its end.
using PhaseStarts = std::vector<const Moment*>;

inline PhaseStarts phase_starts(const std::vector<Moment>& program) {
  PhaseStarts starts;
  starts.reserve(program.size() + 1);
  for (const Moment& m : program)
    if (!m.joined) starts.push_back(&m);
  starts.push_back(program.data() + program.size());
  return starts;
}

// Phases of one slice per direction that follow each other become one: nobody else could help with
// them, and to tell the others of each would take time.
template <class Kernel>
void join_lone_phases(const Kernel& kernel, std::vector<PhaseStarts>& starts) {
  const auto is_lone = [&](std::size_t phase) {
    for (const PhaseStarts& of : starts)
      if (kernel.slices(*of[phase]) != 1) return false;
    return true;
  };
  std::size_t kept = 0;
  bool lone_before = false;
  for (std::size_t phase = 0; phase + 1 < starts[0].size(); ++phase) {
    const bool lone = is_lone(phase), joins = lone && lone_before;
    for (PhaseStarts& of : starts)
      if (!joins) of[kept] = of[phase];
    if (!joins) ++kept;
    lone_before = lone;
  }
  for (PhaseStarts& of : starts) of[kept] = of.back(), of.resize(kept + 1);
}

// Runs one program per direction side by side: kernel.slices(moment)
// slices of kernel.run(direction, moment, slice). Each direction's
// slices are neighbours, so that two threads take a direction each.
template <class Kernel>
void run_programs(Call& call, Kernel& kernel, const std::vector<std::vector<Moment>>& programs) {
  const Dim directions = Dim(programs.size());
  std::vector<PhaseStarts> starts;
  for (const std::vector<Moment>& program : programs) starts.push_back(phase_starts(program));
  join_lone_phases(kernel, starts);
  const auto start = [&](Dim d, Dim phase) {
    return starts[static_cast<std::size_t>(d)][static_cast<std::size_t>(phase)];
  };
  const auto slices_of = [&](Dim phase) {
    Dim slices = 0;
    for (Dim d = 0; d < directions; ++d) slices += kernel.slices(*start(d, phase));
    return slices;
  };
  run_phases(call, Dim(starts[0].size()) - 1, slices_of, [&](Dim phase, Dim slice) {
    const Dim first = kernel.slices(*start(0, phase)), d = slice < first ? 0 : 1;
    const Moment* other = directions == 2 ? start(1 - d, phase) : nullptr;
    for (const Moment* m = start(d, phase); m != start(d, phase + 1); ++m)
      kernel.run(d, *m, d == 0 ? slice : slice - first, other);
  });
}

// Into how many slices to cut work of so many multiplications, when it consists of so many equal
// units: about 10 µs each, so that taking one (0.1 µs) costs nothing and a busy core delays little.
// `finer`: so many times more of them where there is work for one at all, so that threads which
// share a phase with other work end together.
inline Dim slices_for(Dim multiplications, Dim units, Dim most = 8, Dim finer = 1) {
  constexpr Dim kSliceWork = Dim(1) << 18;
  if (multiplications < kSliceWork) return 1;
  return std::max(Dim(1), std::min({multiplications * finer / kSliceWork, units, most}));
}
// What it costs to pack an element of the weights, and of rows that lie apart, in multiplications.
constexpr Dim kPackWork = 5, kGatherWork = 16;
// The first unit of slice `slice`.
inline Dim cut(Dim units, Dim slices, Dim slice) {
  return units * slice / slices;
}

}  // namespace onnxgrad::ONNXGRAD_ISA
