// What the four recurrent kernels share: their tensors, the cells of each direction, who owns which
// part of a step, and how a call becomes a running kernel.
#pragma once
#include "core/workspace.h"
#include "ops/recurrent/recurrent_products.h"

namespace onnxgrad::ONNXGRAD_ISA {

// The tensors of a call by name: [S, D, N, width],
// [D, N, width] or [D, width]; `sequence`: [S, N, width].
template <class T> class Tensors {
 public:
  explicit Tensors(Call& call) : call_(call), directions_(call.dim("D")) {}
  Tensor<const T> input(const char* name) const { return input(name, directions_); }
  Tensor<const T> input_sequence(const char* name) const { return input(name, 1); }
  Tensor<T> output(const char* name) { return output(name, directions_); }
  Tensor<T> output_sequence(const char* name) { return output(name, 1); }

 private:
  template <class U> static Tensor<U> tensor(const TensorView& view, Dim directions) {
    if (!view.present) return {};
    const Shape& shape = view.shape;
    const int rank = shape.rank();
    return {static_cast<U*>(view.data), shape[rank - 1], rank == 2 ? 1 : shape[rank - 2],
            directions};
  }
  Tensor<const T> input(const char* name, Dim directions) const {
    return tensor<const T>(call_.view(name), directions);
  }
  Tensor<T> output(const char* name, Dim directions) {
    return tensor<T>(call_.output_view(name), directions);
  }

  Call& call_;
  const Dim directions_;
};

// A part of a step: rows [row, row_end) of the batch, units [unit, unit_end) of the hidden columns.
struct StepBlock {
  Dim row, row_end, unit, unit_end;
};

template <class T, class Cell> class RecurrentKernel {
 public:
  Dim step_slices() const {
    return slices_for(s_.N * gates_ * s_.H * s_.H, by_rows_ ? s_.N / kFewestRows : units_);
  }

 protected:
  // Hidden columns are cut into `units`. `sums_rows`: a step adds something up over the rows.
  RecurrentKernel(const RecurrentCall& r, const Lengths& lengths, const std::vector<Chunk>& chunks,
                  Dim gates, Dim units, bool sums_rows, Workspace& space)
      : s_(r.shape),
        gates_(gates),
        units_(units),
        lengths_(lengths),
        chunks_(chunks),
        space_(space),
        by_rows_(!lengths.ragged() && !sums_rows && s_.N >= 2 * kFewestRows &&
                 gates * s_.H * s_.H * Dim(sizeof(T)) <= kPrivateWeights) {
    for (Dim d = 0; d < s_.D; ++d) {
      cells_.push_back(make_cell(r, d));
      starts_at_the_end_[d] = r.starts_at_the_end[d];
    }
  }

  // `against`: the gradient runs against the direction.
  template <class Kernel> void run_stages(Call& call, Kernel& kernel, Stages stages, bool against) {
    std::vector<std::vector<Moment>> programs;
    for (Dim d = 0; d < s_.D; ++d)
      programs.push_back(
          program_of(lengths_, chunks_, stages, starts_at_the_end_[d] != against, by_rows_));
    run_programs(call, kernel, programs);
  }

  const Chunk& chunk(const Moment& m) const { return chunks_[static_cast<std::size_t>(m.chunk)]; }
  const Cell& cell(Dim d) const { return cells_[static_cast<std::size_t>(d)]; }
  T* at(Workspace::Shared<T> block) const { return space_[block].data(); }

  static bool is_odd(const Moment& m) { return m.count % 2 != 0; }

  // What a slice has to do with the first `rows` rows.
  StepBlock block(Dim rows, Dim slice) const {
    const Dim count = step_slices();
    if (by_rows_) return {cut(rows, count, slice), cut(rows, count, slice + 1), 0, units_};
    return {0, rows, cut(units_, count, slice), cut(units_, count, slice + 1)};
  }

  const RecurrentShape s_;
  const Dim gates_, units_;
  const Lengths& lengths_;
  const std::vector<Chunk>& chunks_;
  Workspace& space_;
  bool starts_at_the_end_[2] = {};

 private:
  // Slices of a step are hidden columns: each reads its own part of R, and what all the others
  // computed. Where R fits into the second-level cache of every core, they are rows instead. Such a
  // slice needs nothing of the others and walks through all steps of a chunk in one phase.
  static constexpr Dim kFewestRows = 8;                   // of a slice: a tile
  static constexpr Dim kPrivateWeights = Dim(512) << 10;  // bytes
  const bool by_rows_;
  std::vector<Cell> cells_;

  static Cell make_cell(const RecurrentCall& r, Dim d) {
    if constexpr (std::is_default_constructible_v<Cell>) {
      return Cell();
    } else {
      const std::size_t count = r.activations.size() / static_cast<std::size_t>(r.shape.D);
      return Cell(&r.activations[count * static_cast<std::size_t>(d)], int(count), r.has_clip,
                  r.clip);
    }
  }
};

// From a checked call to its results.
template <class Kernel>
void run_kernel(Call& call, const RecurrentCall& r, const Lengths& lengths) {
  std::vector<Chunk> chunks;
  if (r.shape.H > 0) chunks = cut_into_chunks(lengths, r.shape.S);
  Workspace space;
  Kernel kernel(call, r, lengths, chunks, space);
  Workspace::acquire(call, space.bytes());
  space.open();
  kernel.run(call);
}

// Checks a call and runs the kernel; the standard cell is compiled by itself where it counts.
template <class T, template <class, class> class Kernel>
void run_recurrent(Call& call, const CellSpec& spec) {
  const RecurrentCall r = prepare_recurrent(call, spec.functions, !kTuned<T>);
  const Lengths lengths(call, r.shape, call.input<std::int32_t>("SL"));
  if constexpr (kTuned<T>)
    if (r.standard) return run_kernel<Kernel<T, StandardCell<T>>>(call, r, lengths);
  run_kernel<Kernel<T, AnyCell<T>>>(call, r, lengths);
}

}  // namespace onnxgrad::ONNXGRAD_ISA
