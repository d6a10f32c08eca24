// LSTM forward, keeping what the gradient needs.
//
//   i = f(Xt Wiᵀ + Ht-1 Riᵀ + Pi ∘ Ct-1 + bi)      o = f(Xt Woᵀ + Ht-1 Roᵀ + Po ∘ Ct + bo)
//   f = f(Xt Wfᵀ + Ht-1 Rfᵀ + Pf ∘ Ct-1 + bf)      c = g(Xt Wcᵀ + Ht-1 Rcᵀ + bc)
//   Ct = f ∘ Ct-1 + i ∘ c                          Ht = o ∘ h(Ct)
//
// Pre-activations stand in blocks of two panels: i, o, f and c of one register of hidden units. A
// step is one product and the pointwise work on what it gave.
#pragma once
#include "ops/recurrent/lstm.h"
#include "ops/recurrent/recurrent_forward.h"

namespace onnxgrad::ONNXGRAD_ISA {

template <class T, class Cell> class LstmForward : public RecurrentForward<T, Cell> {
  using Base = RecurrentForward<T, Cell>;
  using Base::at, Base::lengths_, Base::memory, Base::s_;

 public:
  LstmForward(const Call& call, const RecurrentCall& r, const Lengths& lengths,
              const std::vector<Chunk>& chunks, Workspace& space)
      : Base(r, lengths, chunks, 4, unit_count<T>(r.shape.H),
             4 * lanes<T> * unit_count<T>(r.shape.H), space),
        input_forget_(call.integer("input_forget") != 0) {}

  void run(Call& call) {
    take_tensors(call);
    for (const Tensor<T>& kept : {h_all_, c_all_, iofc_}) clear_padding(call, kept, lengths_, s_.S);
    for (const Tensor<T>& final_state : {ht_, ct_}) clear_empty_rows(final_state, lengths_);
    if (!Base::chunks_.empty())
      Base::run_stages(call, *this, {Base::gathers(), true, false, false, false}, false);
  }

  void run(Dim d, const Moment& m, Dim slice, const Moment*) {
    Base::run_slice(*this, d, m, slice);
  }

 private:
  friend Base;

  void take_tensors(Call& call) {
    Tensors<T> of(call);
    Base::take_inputs(of);
    c0_ = of.input("C0"), p_ = of.input("P");
    h_all_ = of.output("HAll"), ht_ = of.output("Ht"), ct_ = of.output("Ct");
    c_all_ = of.output("CAll"), iofc_ = of.output("IOFC");
  }

  // Weights, biases and peepholes of blocks [first, last); one slice also sets the initial state.
  void pack(Dim d, Dim first, Dim last, bool with_state) {
    for (Dim block = first; block < last; ++block) {
      const Dim column = block * lanes<T>, width = std::min(s_.H - column, lanes<T>);
      for (Dim gate = 0; gate < 4; ++gate) {
        const Dim unit = 4 * block + gate;
        Base::pack_weights(d, gate, column, width, unit);
        const auto [wb, rb] = Base::biases(d, gate, column, width);
        store<T>(at(memory(d).bias) + unit * lanes<T>, wb + rb);
      }
      for (Dim gate = 0; gate < 3 && p_; ++gate)
        store<T>(peepholes(d) + gate * Base::padded_ + column,
                 load_some<T>(p_.row(0, d, 0) + gate * s_.H + column, width));
    }
    if (!with_state) return;
    Base::set_initial_h(d);
    clear(Base::state_row(d, 0), s_.N * Base::padded_);
    for (Dim k = 0; k < s_.N && c0_; ++k)
      copy_row(c0_.row(0, d, lengths_.source(k)), s_.H, Base::state_row(d, k));
  }
  void multiply_inputs(Dim d, const Chunk& chunk, Dim first, Dim last) const {
    if (!Base::w_in_place_) return Base::multiply_inputs(d, chunk, 2 * first, 2 * last);
    for (Dim unit = 4 * first; unit < 4 * last; ++unit) {
      const Dim column = unit / 4 * lanes<T>;
      Base::multiply_inputs(d, chunk, unit % 4, column, std::min(s_.H - column, lanes<T>), unit);
    }
  }
  T* peepholes(Dim d) const { return at(memory(d).more); }

  void step(Dim d, const Moment& m, StepBlock b) {
    Base::multiply_state(d, m, Part{b.row, b.row_end, 2 * b.unit, 2 * b.unit_end},
                         Base::h_before(d, m, 0));
    if (p_)
      step_cells<true>(d, m, b);
    else
      step_cells<false>(d, m, b);
  }

  // What one row of a step reads and writes. Worked out once per row:
  // between stores the compiler would do it anew for every register.
  struct LstmForwardRow {
    const T *from_x, *from_h, *bias, *peepholes;
    T *h, *c;                                   // the states
    T *h_all, *c_all, *iofc, *last_h, *last_c;  // the outputs; nullptr where one is not wanted
  };
  LstmForwardRow addresses(Dim d, const Moment& m, Dim k) const {
    const Dim n = lengths_.source(k);
    const bool last_step = Base::is_last_step(d, m, k);
    const auto row = [&](const Tensor<T>& of, Dim t) { return of ? of.row(t, d, n) : nullptr; };
    return {Base::from_x_row(d, m, k),
            Base::from_h_row(d, k),
            at(memory(d).bias),
            peepholes(d),
            Base::h_next(d, m, k),
            Base::state_row(d, k),
            row(h_all_, m.t),
            row(c_all_, m.t),
            row(iofc_, m.t),
            last_step ? row(ht_, 0) : nullptr,
            last_step ? row(ct_, 0) : nullptr};
  }

  template <bool with_peepholes> void step_cells(Dim d, const Moment& m, StepBlock b) const {
    const Dim end = std::min(b.unit_end * lanes<T>, s_.H);
    for (Dim k = b.row; k < b.row_end; ++k) {
      if (k + Base::kAhead < b.row_end) prefetch_row(d, m.t, lengths_.source(k + Base::kAhead), b);
      const LstmForwardRow to = addresses(d, m, k);
      Dim column = b.unit * lanes<T>;
      for (; column + lanes<T> <= end; column += lanes<T>)
        step_cell<with_peepholes>(Base::cell(d), to, column, lanes<T>);
      if (column < end) step_cell<with_peepholes>(Base::cell(d), to, column, end - column);
    }
  }
  template <bool with_peepholes> ONNXGRAD_INLINE void step_cell(const Cell& cell,
                                                                const LstmForwardRow& to,
                                                                Dim column, Dim width) const {
    const Dim unit = 4 * column;
    const Gates gates =
        compute<with_peepholes>(cell, to.from_x + unit, to.from_h + unit, to.bias + unit,
                                to.peepholes + column, load<T>(to.c + column));
    store<T>(to.h + column, gates.h);
    store<T>(to.c + column, gates.c);
    keep(to, column, width, gates);
  }

  struct Gates {
    Vec<T> i, o, f, candidate, c, h;
  };

  // One register of hidden units. The four gates stand side by side in from_x, from_h and bias.
  template <bool with_peepholes> ONNXGRAD_INLINE Gates compute(const Cell& cell, const T* from_x,
                                                               const T* from_h, const T* bias,
                                                               const T* p, Vec<T> c_before) const {
    const auto pre = [&](Dim gate) ONNXGRAD_LAMBDA {
      const Dim at = gate * lanes<T>;
      return load<T>(from_x + at) + load<T>(from_h + at) + load<T>(bias + at);
    };
    const auto peep = [&](Dim gate, Vec<T> c, Vec<T> a) ONNXGRAD_LAMBDA {
      return with_peepholes ? fma(load<T>(p + gate * Base::padded_), c, a) : a;
    };
    Gates s;
    s.i = cell.gate(peep(0, c_before, pre(0)));
    s.f = input_forget_ ? T(1) - s.i : cell.gate(peep(2, c_before, pre(2)));
    s.candidate = cell.candidate(pre(3));
    s.c = fma(s.f, c_before, s.i * s.candidate);
    s.o = cell.gate(peep(1, s.c, pre(1)));
    s.h = s.o * cell.squash(s.c);
    return s;
  }

  ONNXGRAD_INLINE void keep(const LstmForwardRow& to, Dim column, Dim width, const Gates& s) const {
    const auto keep_at = [&](T* row, Vec<T> value) ONNXGRAD_LAMBDA {
      if (row) store_some<T>(row + column, value, width);
    };
    keep_at(to.h_all, s.h);
    keep_at(to.c_all, s.c);
    if (to.iofc) {
      store_some<T>(to.iofc + column, s.i, width);
      store_some<T>(to.iofc + s_.H + column, s.o, width);
      store_some<T>(to.iofc + 2 * s_.H + column, s.f, width);
      store_some<T>(to.iofc + 3 * s_.H + column, s.candidate, width);
    }
    keep_at(to.last_h, s.h);
    keep_at(to.last_c, s.c);
  }
  ONNXGRAD_INLINE void prefetch_row(Dim d, Dim t, Dim n, StepBlock b) const {
    const Dim column = b.unit * lanes<T>, count = std::min(b.unit_end * lanes<T>, s_.H) - column;
    Base::prefetch_kept(h_all_, t, d, n, column, count);
    Base::prefetch_kept(c_all_, t, d, n, column, count);
    for (Dim gate = 0; gate < 4; ++gate)
      Base::prefetch_kept(iofc_, t, d, n, gate * s_.H + column, count);
  }

  const bool input_forget_;
  Tensor<const T> c0_{}, p_{};
  Tensor<T> h_all_{}, ht_{}, ct_{}, c_all_{}, iofc_{};
};

}  // namespace onnxgrad::ONNXGRAD_ISA
