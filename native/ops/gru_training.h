// GRU forward, keeping what the gradient needs.
//
//   z = f(Xt Wzᵀ + Ht-1 Rzᵀ + bz)      r = f(Xt Wrᵀ + Ht-1 Rrᵀ + br)
//   n = g(Xt Whᵀ + r ∘ (Ht-1 Rhᵀ + Rbh) + Wbh)      with linear_before_reset
//   n = g(Xt Whᵀ + (r ∘ Ht-1) Rhᵀ + Rbh + Wbh)      without
//   Ht = (1 − z) ∘ n + z ∘ Ht-1
//
// X Wᵀ is one product per chunk of steps. A step is one phase with linear_before_reset and two without, because
// the second product then needs all of r.
#pragma once
#include "ops/gru.h"

namespace onnxgrad::ONNXGRAD_ISA {

template <class T> struct GruForwardTensors {
  Tensor<const T> x, w, r, b, h0;
  Tensor<T> hall, ht, zrh;
};

// Working memory of one direction. Columns: z and r in blocks of 2·lanes (a panel: `lanes` hidden units of each),
// then h in panels. Hp is H rounded up to lanes, Hq to a panel.
template <class T> struct GruForwardMemory {
  Workspace::Shared<T> packed_w, packed_r;  // Wᵀ [I][2 Hp + Hq], Rᵀ [H][2 Hp + Hq], packed
  Workspace::Shared<T> bias, rbh;           // [2 Hp + Hq], [Hq]
  Workspace::Shared<T> x;                   // [chunk rows][I], where rows have lengths
  Workspace::Shared<T> from_x, from_h;      // pre-activations: [chunk rows][pitch], [N][pitch]
  Workspace::Shared<T> h;                   // [2][N][Hp], by turns
  Workspace::Shared<T> reset;               // [N][Hp], r ∘ Ht-1
};

template <class T, class Cell> class GruForward {
 public:
  GruForward(const RecurrentCall& r, const Lengths& lengths, const std::vector<Chunk>& chunks, bool linear_before_reset,
             Workspace& space)
      : s_(r.shape), lengths_(lengths), chunks_(chunks), linear_before_reset_(linear_before_reset), space_(space),
        blocks_(unit_count<T>(s_.H)), panels_(panel_count<T>(s_.H)), padded_(blocks_ * lanes<T>),
        columns_(2 * padded_ + panels_ * kPanel<T>), pitch_(pitch_for<T>(columns_)) {
    for (Dim d = 0; d < s_.D; ++d) {
      if constexpr (std::is_same_v<Cell, AnyCell<T>>)
        cells_.emplace_back(&r.activations[static_cast<std::size_t>(2 * d)], 2, r.has_clip, r.clip);
      else
        cells_.emplace_back();
      memory_.push_back(reserve());
      backwards_[d] = r.starts_at_the_end[d] || d == 1;
    }
  }

  void run(Call& call, const GruForwardTensors<T>& tensors) {
    tensors_ = tensors;
    const Stages stages{lengths_.sorted(), true, !linear_before_reset_, false, false};
    std::vector<std::vector<Moment>> programs;
    for (Dim d = 0; d < s_.D; ++d) programs.push_back(program_of(lengths_, chunks_, stages, backwards_[d]));
    run_programs(call, *this, programs);
  }

  Dim slices(const Moment& m) const {
    switch (m.stage) {
      case Stage::pack: return slices_for(3 * s_.H * (s_.I + s_.H) * kPackWork, panels_);
      case Stage::linear: return slices_for(chunk(m).rows * 3 * s_.H * s_.I, panels_);
      case Stage::step:
      case Stage::second: return slices_for(s_.N * 3 * s_.H * s_.H, panels_);
      default: return 1;
    }
  }

  void run(Dim d, const Moment& m, Dim slice, const Moment*) {
    const Dim count = slices(m), first = cut(panels_, count, slice), last = cut(panels_, count, slice + 1);
    switch (m.stage) {
      case Stage::pack: return pack(d, first, last, slice == 0);
      case Stage::gather: return gather(d, chunk(m));
      case Stage::linear: return multiply_inputs(d, chunk(m), first, last);
      case Stage::step: return step(d, m, first, last);
      case Stage::second: return second(d, m, first, last);
      default: return;
    }
  }

 private:
  const Chunk& chunk(const Moment& m) const { return chunks_[static_cast<std::size_t>(m.chunk)]; }
  const GruForwardMemory<T>& memory(Dim d) const { return memory_[static_cast<std::size_t>(d)]; }
  const Cell& cell(Dim d) const { return cells_[static_cast<std::size_t>(d)]; }
  T* at(Workspace::Shared<T> block) const { return space_[block].data(); }
  T* h_before(Dim d, const Moment& m, Dim k) const { return at(memory(d).h) + (m.count % 2 * s_.N + k) * padded_; }
  T* h_next(Dim d, const Moment& m, Dim k) const { return at(memory(d).h) + ((m.count + 1) % 2 * s_.N + k) * padded_; }
  // Of panels [first, last) of hidden units: the blocks, and the panels that hold their z and r, and their h.
  Dim end_block(Dim last) const { return std::min(2 * last, blocks_); }
  Part gate_part(Dim rows, Dim first, Dim last) const { return {0, rows, 2 * first, end_block(last)}; }
  Part candidate_part(Dim rows, Dim first, Dim last) const { return {0, rows, blocks_ + first, blocks_ + last}; }

  GruForwardMemory<T> reserve() {
    const Dim rows = most_rows(chunks_);
    return {space_.shared<T>(packed_size<T>(s_.I, columns_)), space_.shared<T>(packed_size<T>(s_.H, columns_)),
            space_.shared<T>(columns_), space_.shared<T>(panels_ * kPanel<T>),
            space_.shared<T>(lengths_.sorted() ? rows * s_.I : 0), space_.shared<T>(rows * pitch_),
            space_.shared<T>(s_.N * pitch_), space_.shared<T>(2 * s_.N * padded_), space_.shared<T>(s_.N * padded_)};
  }

  // Weights and biases of panels [first, last); one slice also sets the initial state.
  void pack(Dim d, Dim first, Dim last, bool with_state) {
    for (Dim block = 2 * first; block < 2 * last; ++block) {  // the last panel may be half empty
      if (block < blocks_) {
        pack_gate(d, 0, block, 2 * block);
        pack_gate(d, 1, block, 2 * block + 1);
      }
      pack_gate(d, 2, block, 2 * blocks_ + block);
    }
    if (!with_state) return;
    const GruForwardMemory<T>& mem = memory(d);
    clear(at(mem.h), mem.h.size);
    for (Dim k = 0; k < s_.N && tensors_.h0; ++k)
      for (Dim turn = 0; turn < 2; ++turn)  // a row that starts late finds H0 in either
        copy_row(tensors_.h0.row(0, d, lengths_.source(k)), s_.H, at(mem.h) + (turn * s_.N + k) * padded_);
  }

  // One unit of columns of one gate. Rbh stands apart where the reset gate multiplies it.
  void pack_gate(Dim d, Dim gate, Dim block, Dim unit) {
    const GruForwardMemory<T>& mem = memory(d);
    const Dim column = block * lanes<T>, width = std::max(Dim(0), std::min(s_.H - column, lanes<T>));
    const Dim row = gate * s_.H + column;
    pack_unit(tensors_.w.row(0, d, 0), s_.I, row, width, at(mem.packed_w), unit);
    pack_unit(tensors_.r.row(0, d, 0), s_.H, row, width, at(mem.packed_r), unit);
    Vec<T> wb{}, rb{};
    if (tensors_.b && width > 0) {
      wb = load_some<T>(tensors_.b.row(0, d, 0) + row, width);
      rb = load_some<T>(tensors_.b.row(0, d, 0) + 3 * s_.H + row, width);
    }
    const bool apart = gate == 2 && linear_before_reset_;
    store<T>(at(mem.bias) + unit * lanes<T>, apart ? wb : wb + rb);
    if (gate == 2) store<T>(at(mem.rbh) + column, apart ? rb : Vec<T>{});
  }

  void gather(Dim d, const Chunk& chunk) {
    for_rows(lengths_, chunk, [&](Dim row, Dim t, Dim k) {
      copy_row(tensors_.x.row(t, 0, lengths_.source(k)), s_.I, at(memory(d).x) + row * s_.I);
    });
  }

  void multiply_inputs(Dim d, const Chunk& chunk, Dim first, Dim last) {
    const GruForwardMemory<T>& mem = memory(d);
    const T* x = lengths_.sorted() ? at(mem.x) : tensors_.x.row(chunk.t, 0, 0);
    for (const Part& part : {gate_part(chunk.rows, first, last), candidate_part(chunk.rows, first, last)})
      set_product(part, Rows<T>{x, s_.I}, s_.I, at(mem.packed_w), columns_, at(mem.from_x), pitch_);
  }

  void multiply_state(Dim d, Part part, const T* state) {
    state_product<false>(part, Rows<T>{state, padded_}, s_.H, at(memory(d).packed_r), columns_, at(memory(d).from_h),
                         pitch_);
  }

  void step(Dim d, const Moment& m, Dim first, Dim last) {
    const Dim active = lengths_.active(m.t);
    multiply_state(d, gate_part(active, first, last), h_before(d, m, 0));
    if (linear_before_reset_) multiply_state(d, candidate_part(active, first, last), h_before(d, m, 0));
    for (Dim k = 0; k < active; ++k)
      for (Dim block = 2 * first; block < end_block(last); ++block) {
        const Dim column = block * lanes<T>;
        const Vec<T> z = cell(d).gate(gate_sum(d, m, k, 2 * column));
        const Vec<T> r = cell(d).gate(gate_sum(d, m, k, 2 * column + lanes<T>));
        if (linear_before_reset_) {
          const GruForwardMemory<T>& mem = memory(d);
          const Dim at_h = 2 * padded_ + column;
          const Vec<T> linear = load<T>(at(mem.from_h) + k * pitch_ + at_h) + load<T>(at(mem.rbh) + column);
          const Vec<T> input = load<T>(at(mem.from_x) + (m.row + k) * pitch_ + at_h) + load<T>(at(mem.bias) + at_h);
          finish_cell(d, m, k, column, z, r, cell(d).candidate(fma(r, linear, input)));
        } else {
          T* gates = at(memory(d).from_h) + k * pitch_ + 2 * column;  // kept there for the second half
          store<T>(gates, z);
          store<T>(gates + lanes<T>, r);
          store<T>(at(memory(d).reset) + k * padded_ + column, r * load<T>(h_before(d, m, k) + column));
        }
      }
  }

  // n from (r ∘ Ht-1) Rhᵀ, and the new state.
  void second(Dim d, const Moment& m, Dim first, Dim last) {
    const Dim active = lengths_.active(m.t);
    multiply_state(d, candidate_part(active, first, last), at(memory(d).reset));
    for (Dim k = 0; k < active; ++k)
      for (Dim block = 2 * first; block < end_block(last); ++block) {
        const Dim column = block * lanes<T>;
        const T* gates = at(memory(d).from_h) + k * pitch_ + 2 * column;
        const Vec<T> n = cell(d).candidate(gate_sum(d, m, k, 2 * padded_ + column));
        finish_cell(d, m, k, column, load<T>(gates), load<T>(gates + lanes<T>), n);
      }
  }

  ONNXGRAD_INLINE Vec<T> gate_sum(Dim d, const Moment& m, Dim k, Dim column) const {
    const GruForwardMemory<T>& mem = memory(d);
    return load<T>(at(mem.from_x) + (m.row + k) * pitch_ + column) + load<T>(at(mem.from_h) + k * pitch_ + column) +
           load<T>(at(mem.bias) + column);
  }

  ONNXGRAD_INLINE void finish_cell(Dim d, const Moment& m, Dim k, Dim column, Vec<T> z, Vec<T> r, Vec<T> n) {
    const Dim width = std::min(s_.H - column, lanes<T>), row = lengths_.source(k);
    const Vec<T> h = fma(z, load<T>(h_before(d, m, k) + column) - n, n);
    store<T>(h_next(d, m, k) + column, h);
    if (tensors_.hall) store_some<T>(tensors_.hall.row(m.t, d, row) + column, h, width);
    if (tensors_.zrh) {
      T* gates = tensors_.zrh.row(m.t, d, row) + column;
      store_some<T>(gates, z, width);
      store_some<T>(gates + s_.H, r, width);
      store_some<T>(gates + 2 * s_.H, n, width);
    }
    const bool last_step = backwards_[d] ? m.t == 0 : k >= lengths_.active(m.t + 1);
    if (tensors_.ht && last_step) store_some<T>(tensors_.ht.row(0, d, row) + column, h, width);
  }

  const RecurrentShape s_;
  const Lengths& lengths_;
  const std::vector<Chunk>& chunks_;
  const bool linear_before_reset_;
  Workspace& space_;
  const Dim blocks_, panels_, padded_, columns_, pitch_;  // of hidden units; Hp; 2 Hp + Hq; of from_x and from_h
  bool backwards_[2] = {};
  std::vector<Cell> cells_;
  std::vector<GruForwardMemory<T>> memory_;
  GruForwardTensors<T> tensors_;
};

}  // namespace onnxgrad::ONNXGRAD_ISA
