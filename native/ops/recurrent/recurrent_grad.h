// The part of a recurrent gradient that does not depend
// on the cell: memory, products, and who owns what.
//
// da holds the gradients of the pre-activations of a chunk, one row per active
// row and step. Its columns are gate by gate, H each. The weight gradients
// take them in sections: a section's columns are neighbouring rows of dW.
#pragma once
#include "ops/recurrent/recurrent_kernel.h"

namespace onnxgrad::ONNXGRAD_ISA {

struct GradLayout {
  Dim gates;  // of W and R
  Dim first;  // where the first gate of W stands in da; the last ones stand before it
  std::vector<Dim> sections;  // of da, in gates
  Dim columns() const {
    Dim sum = 0;
    for (Dim gates_of_section : sections) sum += gates_of_section;
    return sum;
  }
};

// The tensors that both cells have.
template <class T> struct RecurrentGradTensors {
  Tensor<const T> x, w, r, h0, h_all, grad_h_all, grad_ht;
  Tensor<T> dx, dw, dr, db, dh0;
};

// Working memory of one direction.
template <class T> struct RecurrentGradMemory {
  Workspace::Shared<T> packed_w, packed_r;  // W [gates·H][I] and R [gates·H][H], packed
  Workspace::Shared<T> packed_x, packed_h;  // X [rows][I] and Ht-1 [rows][H] of a chunk, packed
  Workspace::Shared<T> da;                  // [rows][da_pitch]
  Workspace::Shared<T> dh;                  // [N][H], the cotangent of Ht
  Workspace::Shared<T> tiles;    // [slices][gate block], da packed for the weight gradients
  Workspace::Shared<T> dx;       // [rows][I], where rows have lengths
  Workspace::Shared<T> columns;  // where W is read in place: daᵀ [gates·H][rows], packed, and dXᵀ
};

template <class T, class Cell> class RecurrentGrad : public RecurrentKernel<T, Cell> {
  using Base = RecurrentKernel<T, Cell>;

 public:
  Dim slices(const Moment& m) const {
    const Dim gates = gates_ * s_.H, rows = chunks_.empty() ? 0 : chunk(m).rows;
    switch (m.stage) {
      case Stage::pack:
        return slices_for(gates * (s_.I + s_.H) * kPackWork, hidden_panels() + input_panels());
      case Stage::gather:
        return slices_for(rows * (s_.I + s_.H) * kGatherWork, hidden_panels() + input_panels());
      case Stage::linear: return slices_for(rows * s_.H * s_.H, hidden_panels());
      case Stage::step:
      case Stage::second: return Base::step_slices();
      case Stage::after: return hidden_slices() + input_slices(rows) + weight_slices(rows);
      case Stage::finish: return 1;
    }
    return 1;
  }

 protected:
  using Base::at, Base::chunk, Base::chunks_, Base::gates_, Base::lengths_, Base::s_;

  RecurrentGrad(const RecurrentCall& r, const Lengths& lengths, const std::vector<Chunk>& chunks,
                GradLayout layout, bool sums_rows, Workspace& space)
      : Base(r, lengths, chunks, layout.gates, panel_count<T>(r.shape.H), sums_rows, space),
        layout_(layout),
        pitch_(pitch_for<T>(layout.columns() * s_.H)),
        w_in_place_(chunks.size() == 1 && leaves_weights_in_place<T>(chunks[0].rows)),
        r_in_place_(s_.N == 1 && s_.H % kPanel<T> == 0),
        zeros_(space.shared<T>(std::max(s_.H, s_.I))) {
    const Dim rows = most_rows(chunks), gates = layout.gates * s_.H;
    const auto shared = [&](Dim size) { return space.shared<T>(size); };
    for (Dim d = 0; d < s_.D; ++d)
      memory_.push_back({shared(packed_size<T>(gates, s_.I)), shared(packed_size<T>(gates, s_.H)),
                         shared(packed_size<T>(rows, s_.I)), shared(packed_size<T>(rows, s_.H)),
                         shared(rows * pitch_), shared(s_.N * s_.H),
                         shared(weight_slices(rows) * kGateBlock * rows),
                         shared(lengths.sorted() ? rows * s_.I : 0),
                         shared(w_in_place_ ? input_slices(rows) * columns_size() : 0)});
  }

  // `also`: the outputs that only this cell has.
  template <class Kernel> void run_gradient(Call& call, Kernel& kernel, Stages stages,
                                            std::initializer_list<const char*> also) {
    const bool empty = chunks_.empty();
    if (empty || s_.D == 2 || lengths_.sorted()) clear_output<T>(call, "dX");
    if (!empty) {
      clear(at(zeros_), zeros_.size);
      return Base::run_stages(call, kernel, stages, true);
    }
    for (const char* name : {"dW", "dR", "dB", "dH0"}) clear_output<T>(call, name);
    for (const char* name : also) clear_output<T>(call, name);
  }

  void take_tensors(Tensors<T>& of) {
    tensors_ = {of.input_sequence("X"), of.input("W"),
                of.input("R"),          of.input("H0"),
                of.input("HAll"),       of.input("grad_HAll"),
                of.input("grad_Ht"),    of.output_sequence("dX"),
                of.output("dW"),        of.output("dR"),
                of.output("dB"),        of.output("dH0")};
  }

  const RecurrentGradMemory<T>& memory(Dim d) const { return memory_[static_cast<std::size_t>(d)]; }
  const T* zeros() const { return at(zeros_); }
  T* da_row(Dim d, Dim row) const { return at(memory(d).da) + row * pitch_; }
  T* dh_row(Dim d, Dim k) const { return at(memory(d).dh) + k * s_.H; }
  Dim da_pitch() const { return pitch_; }
  Dim hidden_panels() const { return Base::units_; }
  Dim input_panels() const { return panel_count<T>(s_.I); }

  // Whole panels of hidden units, as columns.
  ColumnRange columns(Dim panel, Dim panel_end) const {
    return {panel * kPanel<T>, std::min(panel_end * kPanel<T>, s_.H)};
  }
  ColumnRange columns(StepBlock b) const { return columns(b.unit, b.unit_end); }
  static Part part(StepBlock b) { return {b.row, b.row_end, b.unit, b.unit_end}; }

  // Row k of Ht-1 or Ct-1: the state that the step at time t started from.
  const T* row_before(const Tensor<const T>& all, const Tensor<const T>& initial, Dim d, Dim t,
                      Dim k) const {
    const Dim before = Base::starts_at_the_end_[d] ? t + 1 : t - 1;
    if (k < lengths_.active(before)) return all.row(before, d, lengths_.source(k));
    return initial ? initial.row(0, d, lengths_.source(k)) : zeros();
  }

  // ---- the state: rows in the order of lengths

  // A cotangent of a final state; that of a row without steps goes nowhere.
  void set_state(Dim d, const Tensor<const T>& from, T* state) const {
    clear(state, s_.N * s_.H);
    if (!from) return;
    for (Dim k = 0; k < lengths_.nonempty(); ++k)
      copy_row(from.row(0, d, lengths_.source(k)), s_.H, state + k * s_.H);
  }
  void set_initial_dh(Dim d) const { set_state(d, tensors_.grad_ht, dh_row(d, 0)); }
  void take_state(Dim d, const T* state, const Tensor<T>& to) const {
    if (!to) return;
    for (Dim k = 0; k < s_.N; ++k)
      copy_row(state + k * s_.H, s_.H, to.row(0, d, lengths_.source(k)));
  }

  // ---- packing

  // X and Ht-1 of a chunk, for the weight gradients.
  void pack_operands(Dim d, const Moment& m, Dim slice) const {
    const Dim count = slices(m), panels = hidden_panels() + input_panels();
    const Dim first = cut(panels, count, slice), last = cut(panels, count, slice + 1),
              split = hidden_panels();
    if (tensors_.dr)
      pack_rows(lengths_, chunk(m), s_.H, at(memory(d).packed_h), first, std::min(last, split),
                [&](Dim t, Dim k) {
                  return PlainRow<T>{row_before(tensors_.h_all, tensors_.h0, d, t, k)};
                });
    if (tensors_.dw)
      pack_rows(lengths_, chunk(m), s_.I, at(memory(d).packed_x), std::max(first, split) - split,
                last - split, [&](Dim t, Dim k) {
                  return PlainRow<T>{tensors_.x.row(t, 0, lengths_.source(k))};
                });
  }

  // ---- products

  // Slices of `after`: at most 8 + 16 + 40 over all directions.
  Dim hidden_slices() const {
    return slices_for(s_.N * gates_ * s_.H * s_.H, hidden_panels(), 8 / s_.D);
  }
  Dim input_slices(Dim rows) const {
    return slices_for(rows * gates_ * s_.H * s_.I,
                      w_in_place_ ? input_panels() : (rows + kTileRows - 1) / kTileRows, 16 / s_.D,
                      2);
  }
  // Of one slice.
  Dim columns_size() const { return (gates_ * s_.H + s_.I) * kPanel<T>; }
  Dim weight_slices(Dim rows) const {
    return slices_for(rows * gates_ * s_.H * (s_.I + s_.H), gate_blocks(), 40 / s_.D, 4);
  }
  Dim gate_blocks() const {
    Dim blocks = 0;
    for (Dim gates : layout_.sections) blocks += (gates * s_.H + kGateBlock - 1) / kGateBlock;
    return blocks;
  }

  // A slice of `after`: some columns of dh for the step before the chunk, rows of dX, or rows of
  // weight gradients. set_dh(block) does the first; weights(section, first, count, tiles, add) the
  // last, for columns [first, first + count) of a section of da, packed in `tiles`.
  template <class SetDh, class Weights> void after(Dim d, const Moment& m, Dim slice,
                                                   const Moment* other, SetDh&& set_dh,
                                                   Weights&& weights) const {
    const Dim rows = chunk(m).rows, hidden = hidden_slices(), inputs = input_slices(rows);
    const Dim weight = weight_slices(rows), index = large_first(slice, weight, hidden + inputs);
    if (index < weight) return weight_slice(d, m, index, weights);
    const Dim small = index - weight;
    if (small < inputs && tensors_.dx) input_gradient(d, m, small, other);
    if (small < inputs || (!tensors_.dh0 && is_last(d, m))) return;
    set_dh(StepBlock{0, lengths_.active(m.t), cut(hidden_panels(), hidden, small - inputs),
                     cut(hidden_panels(), hidden, small - inputs + 1)});
  }
  // Threads begin at the halves of the slices (see first_slice). The slices of the weights, which
  // are large, come first in either half, and the others last, so that two threads end together.
  static Dim large_first(Dim slice, Dim large, Dim small) {
    const Dim first_large = (large + 1) / 2, first_small = (small + 1) / 2;
    if (slice < first_large) return slice;
    if (slice < first_large + first_small) return slice - first_large + large;
    const Dim second = slice - first_large - first_small, second_large = large - first_large;
    if (second < second_large) return first_large + second;
    return second - second_large + first_small + large;
  }
  template <class Weights>
  void weight_slice(Dim d, const Moment& m, Dim slice, Weights&& weights) const {
    const Dim rows = chunk(m).rows, count = weight_slices(rows), blocks = gate_blocks();
    const Dim first_block = cut(blocks, count, slice), last_block = cut(blocks, count, slice + 1);
    T* tiles = at(memory(d).tiles) + slice * kGateBlock * rows;
    Dim block = 0, column = 0;  // of all sections
    for (std::size_t section = 0; section < layout_.sections.size(); ++section) {
      const Dim columns = layout_.sections[section] * s_.H;
      for (Dim first = 0; first < columns; first += kGateBlock, ++block) {
        if (block < first_block || block >= last_block) continue;
        const Dim width = std::min(columns - first, kGateBlock);
        if (tensors_.dw || tensors_.dr)
          pack_gate_tiles(da_row(d, 0) + column + first, pitch_, rows, width, tiles);
        weights(Dim(section), first, width, static_cast<const T*>(tiles), !is_first(d, m));
      }
      column += columns;
    }
  }

  // Is this the chunk that the direction works on last, or first?
  bool is_last(Dim d, const Moment& m) const {
    return m.chunk == (Base::starts_at_the_end_[d] ? Dim(chunks_.size()) - 1 : 0);
  }
  bool is_first(Dim d, const Moment& m) const {
    return m.chunk == (Base::starts_at_the_end_[d] ? 0 : Dim(chunks_.size()) - 1);
  }

  // A slice of dX = da W. Two directions add to the same dX, one after the other: when both are at
  // the same chunk, direction 0 does the work of both.
  void input_gradient(Dim d, const Moment& m, Dim slice, const Moment* other) const {
    const bool together = other && other->stage == Stage::after && other->chunk == m.chunk;
    if (together && d == 1) return;
    add_input_gradient(d, m, slice);
    if (together) add_input_gradient(1, m, slice);
  }
  void add_input_gradient(Dim d, const Moment& m, Dim slice) const {
    T* dx = lengths_.sorted() ? at(memory(d).dx) : tensors_.dx.row(chunk(m).t, 0, 0);
    const bool add = !lengths_.sorted() && s_.D == 2;
    const Part part = input_part(m, slice);
    if (w_in_place_)
      add ? multiply_columns<true>(d, m, slice, dx) : multiply_columns<false>(d, m, slice, dx);
    else
      product(add, part, Rows<T>{da_row(d, 0), pitch_}, gates_ * s_.H, at(memory(d).packed_w), s_.I,
              dx, s_.I);
    if (lengths_.sorted()) add_sorted_rows(m, part, dx);
  }
  // A slice is some rows of dX or, where W is read in place, some columns.
  Part input_part(const Moment& m, Dim slice) const {
    const Dim rows = chunk(m).rows, panels = input_panels(), count = input_slices(rows);
    if (w_in_place_) return {0, rows, cut(panels, count, slice), cut(panels, count, slice + 1)};
    return {cut(rows, count, slice), cut(rows, count, slice + 1), 0, panels};
  }
  // dXᵀ = Wᵀ daᵀ for the columns of a slice. The gates of daᵀ stand as in W.
  template <bool add> void multiply_columns(Dim d, const Moment& m, Dim slice, T* dx) const {
    const Dim rows = chunk(m).rows, depth = gates_ * s_.H, before = layout_.first * s_.H;
    T* columns = at(memory(d).columns) + slice * columns_size();
    pack_transposed(da_row(d, 0) + before, pitch_, depth - before, rows, columns);
    pack_transposed(da_row(d, 0), pitch_, before, rows, columns + (depth - before) * kPanel<T>);
    const Part part = input_part(m, slice);
    const Dim first = part.panel * kPanel<T>, last = std::min(part.panel_end * kPanel<T>, s_.I);
    transposed_product<add>(Columns<T>{tensors_.w.row(0, d, 0) + first, s_.I}, last - first, depth,
                            columns, rows, columns + depth * kPanel<T>, dx + first, s_.I);
  }
  // dX += the rows of dx, each in its place.
  void add_sorted_rows(const Moment& m, Part part, const T* dx) const {
    const Dim first = part.panel * kPanel<T>, last = std::min(part.panel_end * kPanel<T>, s_.I);
    for_rows(lengths_, chunk(m), [&](Dim row, Dim t, Dim k) {
      if (row < part.row || row >= part.row_end) return;
      T* to = tensors_.dx.row(t, 0, lengths_.source(k));
      for (Dim i = first; i < last; ++i) to[i] += dx[row * s_.I + i];
    });
  }

  // ---- R, from its gate `gate` on: as it lies, or `packed` with `depth` rows

  StateWeights<T> r_weights(Dim d, Dim gate, const T* packed, Dim depth) const {
    if (!r_in_place_) return packed_weights(packed, depth);
    return weights_in_place(tensors_.r.row(0, d, gate * s_.H), s_.H);
  }

  const GradLayout layout_;
  const Dim pitch_;
  const bool w_in_place_, r_in_place_;
  Workspace::Shared<T> zeros_;
  std::vector<RecurrentGradMemory<T>> memory_;
  RecurrentGradTensors<T> tensors_{};
};

}  // namespace onnxgrad::ONNXGRAD_ISA
