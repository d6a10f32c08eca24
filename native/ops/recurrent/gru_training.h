// GRU forward, keeping what the gradient needs.
//
//   z = f(Xt Wzᵀ + Ht-1 Rzᵀ + bz)      r = f(Xt Wrᵀ + Ht-1 Rrᵀ + br)
//   n = g(Xt Whᵀ + r ∘ (Ht-1 Rhᵀ + Rbh) + Wbh)      with linear_before_reset
//   n = g(Xt Whᵀ + (r ∘ Ht-1) Rhᵀ + Rbh + Wbh)      without
//   Ht = (1 − z) ∘ n + z ∘ Ht-1
//
// Pre-activations: z and r in panels, one register of hidden units of each; then h in panels.
// Without linear_before_reset a step has two halves, because the second product needs all of r.
#pragma once
#include "ops/recurrent/gru.h"
#include "ops/recurrent/recurrent_forward.h"

namespace onnxgrad::ONNXGRAD_ISA {

template <class T, class Cell> class GruForward : public RecurrentForward<T, Cell> {
  using Base = RecurrentForward<T, Cell>;
  using Base::at, Base::cell, Base::h_before, Base::lengths_, Base::memory, Base::padded_, Base::s_;

 public:
  GruForward(const Call& call, const RecurrentCall& r, const Lengths& lengths,
             const std::vector<Chunk>& chunks, Workspace& space)
      : Base(r, lengths, chunks, 3, panel_count<T>(r.shape.H),
             2 * lanes<T> * unit_count<T>(r.shape.H) + kPanel<T> * panel_count<T>(r.shape.H),
             space),
        linear_before_reset_(call.integer("linear_before_reset") != 0),
        registers_(unit_count<T>(r.shape.H)) {}

  void run(Call& call) {
    Tensors<T> of(call);
    Base::take_inputs(of);
    h_all_ = of.output("HAll"), ht_ = of.output("Ht"), zrh_ = of.output("ZRH");
    for (const Tensor<T>& kept : {h_all_, zrh_}) clear_padding(call, kept, lengths_, s_.S);
    clear_empty_rows(ht_, lengths_);
    if (!Base::chunks_.empty())
      Base::run_stages(call, *this, {Base::gathers(), true, !linear_before_reset_, false, false},
                       false);
  }

  void run(Dim d, const Moment& m, Dim slice, const Moment*) {
    if (m.stage == Stage::second) return second(d, m, Base::block(lengths_.active(m.t), slice));
    Base::run_slice(*this, d, m, slice);
  }

 private:
  friend Base;

  // Of panels of hidden units: their registers,
  // and the panels that hold their z and r, and their h.
  Dim end_register(Dim last) const { return std::min(2 * last, registers_); }
  Part gate_part(StepBlock b) const {
    return {b.row, b.row_end, 2 * b.unit, end_register(b.unit_end)};
  }
  Part candidate_part(StepBlock b) const {
    return {b.row, b.row_end, registers_ + b.unit, registers_ + b.unit_end};
  }
  T* rbh(Dim d) const { return at(memory(d).more); }

  // Weights and biases of panels [first, last); one slice also sets the initial state.
  void pack(Dim d, Dim first, Dim last, bool with_state) {
    for (Dim i = 2 * first; i < 2 * last; ++i) {  // the last panel may be half empty
      if (i < registers_) {
        pack_gate(d, 0, i, 2 * i);
        pack_gate(d, 1, i, 2 * i + 1);
      }
      pack_gate(d, 2, i, 2 * registers_ + i);
    }
    if (with_state) Base::set_initial_h(d);
  }

  void multiply_inputs(Dim d, const Chunk& chunk, Dim first, Dim last) const {
    if (!Base::w_in_place_) {
      Base::multiply_inputs(d, chunk, 2 * first, end_register(last));
      return Base::multiply_inputs(d, chunk, registers_ + first, registers_ + last);
    }
    for (Dim i = 2 * first; i < end_register(last); ++i) {
      const Dim column = i * lanes<T>, width = std::min(s_.H - column, lanes<T>);
      Base::multiply_inputs(d, chunk, 0, column, width, 2 * i);
      Base::multiply_inputs(d, chunk, 1, column, width, 2 * i + 1);
      Base::multiply_inputs(d, chunk, 2, column, width, 2 * registers_ + i);
    }
  }

  // One unit of columns of one gate. Rbh stands apart where the reset gate multiplies it.
  void pack_gate(Dim d, Dim gate, Dim i, Dim unit) {
    const Dim column = i * lanes<T>, width = std::max(Dim(0), std::min(s_.H - column, lanes<T>));
    Base::pack_weights(d, gate, column, width, unit);
    const auto [wb, rb] = Base::biases(d, gate, column, width);
    const bool apart = gate == 2 && linear_before_reset_;
    store<T>(at(memory(d).bias) + unit * lanes<T>, apart ? wb : wb + rb);
    if (gate == 2) store<T>(rbh(d) + column, apart ? rb : Vec<T>{});
  }

  // Every other step in the opposite order: see state_product.
  void multiply_state(Dim d, const Moment& m, StepBlock b) const {
    const bool backwards = Base::is_odd(m) && linear_before_reset_;
    if (backwards) Base::multiply_state(d, m, candidate_part(b), h_before(d, m, 0));
    Base::multiply_state(d, m, gate_part(b), h_before(d, m, 0));
    if (linear_before_reset_ && !backwards)
      Base::multiply_state(d, m, candidate_part(b), h_before(d, m, 0));
  }

  void step(Dim d, const Moment& m, StepBlock b) {
    multiply_state(d, m, b);
    for (Dim k = b.row; k < b.row_end; ++k) {
      if (linear_before_reset_) prefetch_row(d, m, k, b);
      for (Dim i = 2 * b.unit; i < end_register(b.unit_end); ++i) {
        const Dim column = i * lanes<T>;
        const Vec<T> z = cell(d).gate(gate_sum(d, m, k, 2 * column));
        const Vec<T> r = cell(d).gate(gate_sum(d, m, k, 2 * column + lanes<T>));
        if (linear_before_reset_)
          finish_cell(d, m, k, column, z, r, cell(d).candidate(linear_sum(d, m, k, column, r)));
        else
          keep_gates(d, m, k, column, z, r);
      }
    }
  }
  // For the second half.
  ONNXGRAD_INLINE void keep_gates(Dim d, const Moment& m, Dim k, Dim column, Vec<T> z,
                                  Vec<T> r) const {
    T* gates = Base::from_h_row(d, k) + 2 * column;
    store<T>(gates, z);
    store<T>(gates + lanes<T>, r);
    store<T>(Base::state_row(d, k) + column, r * load<T>(h_before(d, m, k) + column));
  }

  // n from (r ∘ Ht-1) Rhᵀ, and the new state.
  void second(Dim d, const Moment& m, StepBlock b) {
    Base::multiply_state(d, m, candidate_part(b), Base::state_row(d, 0));
    for (Dim k = b.row; k < b.row_end; ++k) {
      prefetch_row(d, m, k, b);
      for (Dim i = 2 * b.unit; i < end_register(b.unit_end); ++i) {
        const Dim column = i * lanes<T>;
        const T* gates = Base::from_h_row(d, k) + 2 * column;
        const Vec<T> n = cell(d).candidate(gate_sum(d, m, k, 2 * padded_ + column));
        finish_cell(d, m, k, column, load<T>(gates), load<T>(gates + lanes<T>), n);
      }
    }
  }

  ONNXGRAD_INLINE Vec<T> gate_sum(Dim d, const Moment& m, Dim k, Dim column) const {
    return load<T>(Base::from_x_row(d, m, k) + column) + load<T>(Base::from_h_row(d, k) + column) +
           load<T>(at(memory(d).bias) + column);
  }
  ONNXGRAD_INLINE Vec<T> linear_sum(Dim d, const Moment& m, Dim k, Dim column, Vec<T> r) const {
    const Dim at_h = 2 * padded_ + column;
    const Vec<T> linear = load<T>(Base::from_h_row(d, k) + at_h) + load<T>(rbh(d) + column);
    return fma(r, linear,
               load<T>(Base::from_x_row(d, m, k) + at_h) + load<T>(at(memory(d).bias) + at_h));
  }

  ONNXGRAD_INLINE void finish_cell(Dim d, const Moment& m, Dim k, Dim column, Vec<T> z, Vec<T> r,
                                   Vec<T> n) {
    const Dim width = std::min(s_.H - column, lanes<T>), row = lengths_.source(k);
    const Vec<T> h = fma(z, load<T>(h_before(d, m, k) + column) - n, n);
    store<T>(Base::h_next(d, m, k) + column, h);
    Base::keep(h_all_, m.t, d, row, column, h, width);
    Base::keep(zrh_, m.t, d, row, column, z, width);
    Base::keep(zrh_, m.t, d, row, s_.H + column, r, width);
    Base::keep(zrh_, m.t, d, row, 2 * s_.H + column, n, width);
    if (Base::is_last_step(d, m, k)) Base::keep(ht_, 0, d, row, column, h, width);
  }
  ONNXGRAD_INLINE void prefetch_row(Dim d, const Moment& m, Dim k, StepBlock b) const {
    if (k + Base::kAhead >= b.row_end) return;
    const Dim n = lengths_.source(k + Base::kAhead), column = b.unit * kPanel<T>;
    const Dim count = std::min(b.unit_end * kPanel<T>, s_.H) - column;
    Base::prefetch_kept(h_all_, m.t, d, n, column, count);
    for (Dim gate = 0; gate < 3; ++gate)
      Base::prefetch_kept(zrh_, m.t, d, n, gate * s_.H + column, count);
  }

  const bool linear_before_reset_;
  const Dim registers_;  // of hidden units
  Tensor<T> h_all_{}, ht_{}, zrh_{};
};

}  // namespace onnxgrad::ONNXGRAD_ISA
