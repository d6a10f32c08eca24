// LSTM forward, keeping what the gradient needs.
//
//   i = f(Xt Wiᵀ + Ht-1 Riᵀ + Pi ∘ Ct-1 + bi)      o = f(Xt Woᵀ + Ht-1 Roᵀ + Po ∘ Ct + bo)
//   f = f(Xt Wfᵀ + Ht-1 Rfᵀ + Pf ∘ Ct-1 + bf)      c = g(Xt Wcᵀ + Ht-1 Rcᵀ + bc)
//   Ct = f ∘ Ct-1 + i ∘ c                          Ht = o ∘ h(Ct)
//
// X Wᵀ is one product per chunk of steps. A step is one product, Ht-1 Rᵀ, and the pointwise work; each slice owns
// some hidden columns of all four gates, so that a step is one phase.
#pragma once
#include "ops/lstm.h"

namespace onnxgrad::ONNXGRAD_ISA {

template <class T> struct LstmForwardTensors {
  Tensor<const T> x, w, r, b, h0, c0, p;
  Tensor<T> hall, ht, ct, call, iofc;
};

// Working memory of one direction. Columns stand in blocks of 4·lanes: i, o, f and c of `lanes` hidden units.
template <class T> struct LstmForwardMemory {
  Workspace::Shared<T> packed_w, packed_r;  // Wᵀ [I][4 Hp], Rᵀ [H][4 Hp], packed;  Hp = H rounded up to lanes
  Workspace::Shared<T> bias;                // [4 Hp]
  Workspace::Shared<T> peephole;            // [3][Hp]
  Workspace::Shared<T> x;                   // [chunk rows][I], where rows have lengths
  Workspace::Shared<T> from_x, from_h;      // pre-activations: [chunk rows][pitch], [N][pitch]
  Workspace::Shared<T> h, c;                // [2][N][Hp] by turns, [N][Hp]
};

template <class T, class Cell> class LstmForward {
 public:
  LstmForward(const RecurrentCall& r, const Lengths& lengths, const std::vector<Chunk>& chunks, bool input_forget,
              bool peepholes, Workspace& space)
      : s_(r.shape), lengths_(lengths), chunks_(chunks), input_forget_(input_forget), peepholes_(peepholes),
        space_(space), blocks_(unit_count<T>(s_.H)), padded_(blocks_ * lanes<T>), pitch_(pitch_for<T>(4 * padded_)) {
    for (Dim d = 0; d < s_.D; ++d) {
      if constexpr (std::is_same_v<Cell, AnyCell<T>>)
        cells_.emplace_back(&r.activations[static_cast<std::size_t>(3 * d)], 3, r.has_clip, r.clip);
      else
        cells_.emplace_back();
      memory_.push_back(reserve());
      backwards_[d] = r.starts_at_the_end[d] || d == 1;
    }
  }

  void run(Call& call, const LstmForwardTensors<T>& tensors) {
    tensors_ = tensors;
    std::vector<std::vector<Moment>> programs;
    for (Dim d = 0; d < s_.D; ++d)
      programs.push_back(program_of(lengths_, chunks_, {lengths_.sorted(), true, false, false, false}, backwards_[d]));
    run_programs(call, *this, programs);
  }

  Dim slices(const Moment& m) const {
    switch (m.stage) {
      case Stage::pack: return slices_for(4 * s_.H * (s_.I + s_.H) * kPackWork, blocks_);
      case Stage::linear: return slices_for(chunk(m).rows * 4 * s_.H * s_.I, blocks_);
      case Stage::step: return slices_for(s_.N * 4 * s_.H * s_.H, blocks_);
      default: return 1;
    }
  }

  void run(Dim d, const Moment& m, Dim slice, const Moment*) {
    const Dim count = slices(m), first = cut(blocks_, count, slice), last = cut(blocks_, count, slice + 1);
    switch (m.stage) {
      case Stage::pack: return pack(d, first, last, slice == 0);
      case Stage::gather: return gather(d, chunk(m));
      case Stage::linear: return multiply_inputs(d, chunk(m), first, last);
      case Stage::step: return step(d, m, first, last);
      default: return;
    }
  }

 private:
  const Chunk& chunk(const Moment& m) const { return chunks_[static_cast<std::size_t>(m.chunk)]; }
  const LstmForwardMemory<T>& memory(Dim d) const { return memory_[static_cast<std::size_t>(d)]; }
  T* at(Workspace::Shared<T> block) const { return space_[block].data(); }

  LstmForwardMemory<T> reserve() {
    const Dim rows = most_rows(chunks_), columns = 4 * padded_;
    return {space_.shared<T>(packed_size<T>(s_.I, columns)), space_.shared<T>(packed_size<T>(s_.H, columns)),
            space_.shared<T>(columns), space_.shared<T>(3 * padded_),
            space_.shared<T>(lengths_.sorted() ? rows * s_.I : 0), space_.shared<T>(rows * pitch_),
            space_.shared<T>(s_.N * pitch_), space_.shared<T>(2 * s_.N * padded_), space_.shared<T>(s_.N * padded_)};
  }

  // Weights, biases and peepholes of blocks [first, last); one slice also sets the initial state.
  void pack(Dim d, Dim first, Dim last, bool with_state) {
    const LstmForwardMemory<T>& mem = memory(d);
    const T *w = tensors_.w.row(0, d, 0), *r = tensors_.r.row(0, d, 0);
    for (Dim block = first; block < last; ++block) {
      const Dim column = block * lanes<T>, width = std::min(s_.H - column, lanes<T>);
      for (Dim gate = 0; gate < 4; ++gate) {
        const Dim row = gate * s_.H + column, unit = 4 * block + gate;
        pack_unit(w, s_.I, row, width, at(mem.packed_w), unit);
        pack_unit(r, s_.H, row, width, at(mem.packed_r), unit);
        Vec<T> bias{};
        if (tensors_.b) {
          const T* b = tensors_.b.row(0, d, 0);
          bias = load_some<T>(b + row, width) + load_some<T>(b + 4 * s_.H + row, width);
        }
        store<T>(at(mem.bias) + unit * lanes<T>, bias);
      }
      for (Dim gate = 0; gate < 3; ++gate)
        store<T>(at(mem.peephole) + gate * padded_ + column,
                 tensors_.p ? load_some<T>(tensors_.p.row(0, d, 0) + gate * s_.H + column, width) : Vec<T>{});
    }
    if (with_state) set_initial_state(d);
  }

  void set_initial_state(Dim d) {
    const LstmForwardMemory<T>& mem = memory(d);
    clear(at(mem.h), mem.h.size);
    clear(at(mem.c), mem.c.size);
    for (Dim k = 0; k < s_.N; ++k) {
      const Dim n = lengths_.source(k);
      for (Dim turn = 0; turn < 2; ++turn)  // a row that starts late finds H0 in either
        if (tensors_.h0) copy_row(tensors_.h0.row(0, d, n), s_.H, at(mem.h) + (turn * s_.N + k) * padded_);
      if (tensors_.c0) copy_row(tensors_.c0.row(0, d, n), s_.H, at(mem.c) + k * padded_);
    }
  }

  void gather(Dim d, const Chunk& chunk) {
    for_rows(lengths_, chunk, [&](Dim row, Dim t, Dim k) {
      copy_row(tensors_.x.row(t, 0, lengths_.source(k)), s_.I, at(memory(d).x) + row * s_.I);
    });
  }

  // from_x = X Wᵀ for blocks [first, last), two panels each.
  void multiply_inputs(Dim d, const Chunk& chunk, Dim first, Dim last) {
    const LstmForwardMemory<T>& mem = memory(d);
    const T* x = lengths_.sorted() ? at(mem.x) : tensors_.x.row(chunk.t, 0, 0);
    set_product(Part{0, chunk.rows, 2 * first, 2 * last}, Rows<T>{x, s_.I}, s_.I, at(mem.packed_w), 4 * padded_,
                at(mem.from_x), pitch_);
  }

  void step(Dim d, const Moment& m, Dim first, Dim last) {
    const LstmForwardMemory<T>& mem = memory(d);
    const T* h = at(mem.h) + m.count % 2 * s_.N * padded_;
    if (m.count == 0 && !tensors_.h0)
      for (Dim k = 0; k < lengths_.active(m.t); ++k)
        clear(at(mem.from_h) + k * pitch_ + first * 4 * lanes<T>, (last - first) * 4 * lanes<T>);
    else
      state_product<false>(Part{0, lengths_.active(m.t), 2 * first, 2 * last}, Rows<T>{h, padded_}, s_.H,
                           at(mem.packed_r), 4 * padded_, at(mem.from_h), pitch_);
    if (peepholes_)
      step_cells<true>(d, m, first, last);
    else
      step_cells<false>(d, m, first, last);
  }

  template <bool peepholes> void step_cells(Dim d, const Moment& m, Dim first, Dim last) {
    const LstmForwardMemory<T>& mem = memory(d);
    const Dim active = lengths_.active(m.t);
    // rows from here on have their last step now
    const Dim last_step = backwards_[d] ? (m.t == 0 ? 0 : active) : lengths_.active(m.t + 1);
    for (Dim k = 0; k < active; ++k) {
      const Dim n = lengths_.source(k);
      const T *from_x = at(mem.from_x) + (m.row + k) * pitch_, *from_h = at(mem.from_h) + k * pitch_;
      T* h_next = at(mem.h) + ((m.count + 1) % 2 * s_.N + k) * padded_;
      T* c_state = at(mem.c) + k * padded_;
      if (k + kAhead < active) prefetch_kept(d, m.t, lengths_.source(k + kAhead), first, last);
      for (Dim block = first; block < last; ++block) {
        const Dim column = block * lanes<T>, unit = 4 * column, width = std::min(s_.H - column, lanes<T>);
        const State out = cell<peepholes>(cells_[static_cast<std::size_t>(d)], from_x + unit, from_h + unit,
                                          at(mem.bias) + unit, at(mem.peephole) + column, load<T>(c_state + column));
        store<T>(h_next + column, out.h);
        store<T>(c_state + column, out.c);
        keep(d, m.t, n, column, width, out, k >= last_step);
      }
    }
  }

  static constexpr Dim kAhead = 2;
  ONNXGRAD_INLINE void prefetch_kept(Dim d, Dim t, Dim n, Dim first, Dim last) const {
    for (Dim column = first * lanes<T>; column < last * lanes<T>; column += 64 / Dim(sizeof(T))) {
      if (tensors_.hall) __builtin_prefetch(tensors_.hall.row(t, d, n) + column, 1);
      if (tensors_.call) __builtin_prefetch(tensors_.call.row(t, d, n) + column, 1);
      if (!tensors_.iofc) continue;
      for (Dim gate = 0; gate < 4; ++gate) __builtin_prefetch(tensors_.iofc.row(t, d, n) + gate * s_.H + column, 1);
    }
  }

  struct State { Vec<T> i, o, f, candidate, c, h; };

  // One register of hidden units. The four gates stand side by side in from_x, from_h and bias.
  template <bool peepholes>
  ONNXGRAD_INLINE State cell(const Cell& cell, const T* from_x, const T* from_h, const T* bias, const T* p,
                             Vec<T> c_before) const {
    const auto pre = [&](Dim gate) ONNXGRAD_LAMBDA {
      const Dim at = gate * lanes<T>;
      return load<T>(from_x + at) + load<T>(from_h + at) + load<T>(bias + at);
    };
    const auto peep = [&](Dim gate, Vec<T> c, Vec<T> a) ONNXGRAD_LAMBDA {
      return peepholes ? fma(load<T>(p + gate * padded_), c, a) : a;
    };
    State s;
    s.i = cell.gate(peep(0, c_before, pre(0)));
    s.f = input_forget_ ? T(1) - s.i : cell.gate(peep(2, c_before, pre(2)));
    s.candidate = cell.candidate(pre(3));
    s.c = fma(s.f, c_before, s.i * s.candidate);
    s.o = cell.gate(peep(1, s.c, pre(1)));
    s.h = s.o * cell.squash(s.c);
    return s;
  }

  // Into the outputs that are wanted.
  ONNXGRAD_INLINE void keep(Dim d, Dim t, Dim n, Dim column, Dim width, const State& s, bool final_state) {
    if (tensors_.hall) store_some<T>(tensors_.hall.row(t, d, n) + column, s.h, width);
    if (tensors_.call) store_some<T>(tensors_.call.row(t, d, n) + column, s.c, width);
    if (tensors_.iofc) {
      T* gates = tensors_.iofc.row(t, d, n) + column;
      store_some<T>(gates, s.i, width);
      store_some<T>(gates + s_.H, s.o, width);
      store_some<T>(gates + 2 * s_.H, s.f, width);
      store_some<T>(gates + 3 * s_.H, s.candidate, width);
    }
    if (!final_state) return;
    if (tensors_.ht) store_some<T>(tensors_.ht.row(0, d, n) + column, s.h, width);
    if (tensors_.ct) store_some<T>(tensors_.ct.row(0, d, n) + column, s.c, width);
  }

  const RecurrentShape s_;
  const Lengths& lengths_;
  const std::vector<Chunk>& chunks_;
  const bool input_forget_, peepholes_;
  Workspace& space_;
  const Dim blocks_, padded_, pitch_;  // of `lanes` hidden units; Hp; of from_x and from_h
  bool backwards_[2] = {};
  std::vector<Cell> cells_;
  std::vector<LstmForwardMemory<T>> memory_;
  LstmForwardTensors<T> tensors_;
};

}  // namespace onnxgrad::ONNXGRAD_ISA
