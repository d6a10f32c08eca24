// The part of a recurrent forward pass that does not depend
// on the cell: memory, packing, and the two products.
//
// X Wᵀ is one product per chunk of steps, Ht-1 Rᵀ one per step.
// Their columns are the pre-activations, cut into units of one register;
// the cell decides in which order the gates' units stand.
#pragma once
#include "ops/recurrent/recurrent_kernel.h"

namespace onnxgrad::ONNXGRAD_ISA {

// Hp is H rounded up to whole registers; `columns` counts the pre-activations.
template <class T> struct ForwardMemory {
  Workspace::Shared<T> packed_w, packed_r;  // Wᵀ [I][columns], Rᵀ [H][columns], packed
  Workspace::Shared<T> bias;                // [columns]
  Workspace::Shared<T> more;                // [3 Hp]: the peepholes of LSTM, Rbh of GRU
  Workspace::Shared<T> x;                   // [chunk rows][I], where rows have lengths
  Workspace::Shared<T> x_columns;           // Xᵀ [I][rows], packed, where W is read in place
  Workspace::Shared<T> from_x, from_h;      // pre-activations: [chunk rows][pitch], [N][pitch]
  Workspace::Shared<T> h;                   // [2][N][Hp], by turns
  Workspace::Shared<T> state;               // [N][Hp]: Ct of LSTM, r ∘ Ht-1 of GRU
};

template <class T, class Cell> class RecurrentForward : public RecurrentKernel<T, Cell> {
  using Base = RecurrentKernel<T, Cell>;

 public:
  Dim slices(const Moment& m) const {
    const Dim gates = gates_ * s_.H;
    switch (m.stage) {
      case Stage::pack: return slices_for(gates * (s_.I + s_.H) * kPackWork, units_);
      case Stage::linear: return slices_for(chunk(m).rows * gates * s_.I, units_);
      case Stage::step:
      case Stage::second: return Base::step_slices();
      default: return 1;
    }
  }

 protected:
  using Base::at, Base::chunk, Base::chunks_, Base::gates_, Base::lengths_, Base::s_, Base::units_;

  RecurrentForward(const RecurrentCall& r, const Lengths& lengths, const std::vector<Chunk>& chunks,
                   Dim gates, Dim units, Dim columns, Workspace& space)
      : Base(r, lengths, chunks, gates, units, false, space),
        padded_(unit_count<T>(s_.H) * lanes<T>),
        columns_(columns),
        pitch_(pitch_for<T>(columns)),
        w_in_place_(chunks.size() == 1 && leaves_weights_in_place<T>(chunks[0].rows)) {
    const Dim rows = most_rows(chunks), copies = w_in_place_ ? 0 : 1;
    const auto shared = [&](Dim size) { return space.shared<T>(size); };
    for (Dim d = 0; d < s_.D; ++d)
      memory_.push_back(
          {shared(copies * packed_size<T>(s_.I, columns)), shared(packed_size<T>(s_.H, columns)),
           shared(columns), shared(3 * padded_ + kPanel<T>),
           shared(lengths.sorted() ? rows * s_.I : 0),
           shared(w_in_place_ ? packed_size<T>(s_.I, rows) : 0), shared(rows * pitch_),
           shared(s_.N * pitch_), shared(2 * s_.N * padded_), shared(s_.N * padded_)});
  }

  // One slice of a moment; `kernel` says what its cell does.
  template <class Kernel> void run_slice(Kernel& kernel, Dim d, const Moment& m, Dim slice) const {
    const Dim count = slices(m), first = cut(units_, count, slice);
    const Dim last = cut(units_, count, slice + 1);
    switch (m.stage) {
      case Stage::pack: return kernel.pack(d, first, last, slice == 0);
      case Stage::gather: return gather(d, chunk(m));
      case Stage::linear: return kernel.multiply_inputs(d, chunk(m), first, last);
      case Stage::step: return kernel.step(d, m, Base::block(lengths_.active(m.t), slice));
      default: return;
    }
  }

  void take_inputs(Tensors<T>& of) {
    x_ = of.input_sequence("X"), w_ = of.input("W"), r_ = of.input("R"), b_ = of.input("B");
    h0_ = of.input("H0");
  }

  const ForwardMemory<T>& memory(Dim d) const { return memory_[static_cast<std::size_t>(d)]; }
  T* h_before(Dim d, const Moment& m, Dim k) const { return h_row(d, m.count % 2, k); }
  T* h_next(Dim d, const Moment& m, Dim k) const { return h_row(d, (m.count + 1) % 2, k); }
  T* state_row(Dim d, Dim k) const { return at(memory(d).state) + k * padded_; }
  T* from_x_row(Dim d, const Moment& m, Dim k) const {
    return at(memory(d).from_x) + (m.row + k) * pitch_;
  }
  T* from_h_row(Dim d, Dim k) const { return at(memory(d).from_h) + k * pitch_; }
  bool is_last_step(Dim d, const Moment& m, Dim k) const {
    return Base::starts_at_the_end_[d] ? m.t == 0 : k >= lengths_.active(m.t + 1);
  }

  // ---- once

  // Both weights of `width` hidden units of a gate,
  // from `column` on; width 0 fills the rest of a panel.
  void pack_weights(Dim d, Dim gate, Dim column, Dim width, Dim unit) const {
    const Dim row = gate * s_.H + column;
    if (!w_in_place_) pack_unit(w_.row(0, d, 0), s_.I, row, width, at(memory(d).packed_w), unit);
    pack_unit(r_.row(0, d, 0), s_.H, row, width, at(memory(d).packed_r), unit);
  }
  struct Biases {
    Vec<T> wb, rb;
  };
  Biases biases(Dim d, Dim gate, Dim column, Dim width) const {
    if (!b_ || width == 0) return {Vec<T>{}, Vec<T>{}};
    const T* b = b_.row(0, d, 0) + gate * s_.H + column;
    return {load_some<T>(b, width), load_some<T>(b + gates_ * s_.H, width)};
  }
  // In both turns: a row that starts late finds its initial state in either.
  void set_initial_h(Dim d) const {
    clear(at(memory(d).h), memory(d).h.size);
    for (Dim k = 0; k < s_.N && h0_; ++k)
      for (Dim turn = 0; turn < 2; ++turn)
        copy_row(h0_.row(0, d, lengths_.source(k)), s_.H, h_row(d, turn, k));
  }

  // ---- a chunk, and a step

  bool gathers() const { return lengths_.sorted() || w_in_place_; }
  void gather(Dim d, const Chunk& chunk) const {
    if (lengths_.sorted())
      for_rows(lengths_, chunk, [&](Dim row, Dim t, Dim k) {
        copy_row(x_.row(t, 0, lengths_.source(k)), s_.I, at(memory(d).x) + row * s_.I);
      });
    if (w_in_place_)
      pack_transposed(x_rows(d, chunk), s_.I, s_.I, chunk.rows, at(memory(d).x_columns));
  }
  const T* x_rows(Dim d, const Chunk& chunk) const {
    return lengths_.sorted() ? at(memory(d).x) : x_.row(chunk.t, 0, 0);
  }
  // from_x = X · Wᵀ for some panels, where W is packed.
  void multiply_inputs(Dim d, const Chunk& chunk, Dim panel, Dim panel_end) const {
    set_product(Part{0, chunk.rows, panel, panel_end}, Rows<T>{x_rows(d, chunk), s_.I}, s_.I,
                at(memory(d).packed_w), columns_, at(memory(d).from_x), pitch_);
  }
  // The same for `width` hidden units of a gate, where W is read in place.
  void multiply_inputs(Dim d, const Chunk& chunk, Dim gate, Dim column, Dim width, Dim unit) const {
    T* from_x = at(memory(d).from_x) + unit * lanes<T>;
    for (Dim row = 0; row < chunk.rows && width < lanes<T>; ++row)
      store<T>(from_x + row * pitch_, Vec<T>{});
    T scratch[lanes<T> * kPanel<T>];
    const Rows<T> w{w_.row(0, d, gate * s_.H + column), s_.I};
    transposed_product<false>(w, width, s_.I, at(memory(d).x_columns), chunk.rows, scratch, from_x,
                              pitch_);
  }
  // from_h = state · Rᵀ for some panels. Nothing is multiplied in the first step from a zero state.
  void multiply_state(Dim d, const Moment& m, Part part, const T* state) const {
    if (m.count > 0 || h0_)
      return state_product<false>(part, Rows<T>{state, padded_}, s_.H,
                                  packed_weights<T>(at(memory(d).packed_r), s_.H), columns_,
                                  at(memory(d).from_h), pitch_, Base::is_odd(m));
    for (Dim k = part.row; k < part.row_end; ++k)
      clear(from_h_row(d, k) + part.panel * kPanel<T>, (part.panel_end - part.panel) * kPanel<T>);
  }

  // ---- results: rows [t, d, n] of the outputs that are wanted

  ONNXGRAD_INLINE static void keep(const Tensor<T>& to, Dim t, Dim d, Dim n, Dim column,
                                   Vec<T> value, Dim width) {
    if (to) store_some<T>(to.row(t, d, n) + column, value, width);
  }
  // The line of every wanted output that the cells of row n will write `kAhead` rows from now:
  // without it they wait for the old contents.
  ONNXGRAD_INLINE static void prefetch_kept(const Tensor<T>& to, Dim t, Dim d, Dim n, Dim column,
                                            Dim count) {
    for (Dim j = 0; to && j < count; j += kLine<T>)
      __builtin_prefetch(to.row(t, d, n) + column + j, 1);
  }
  static constexpr Dim kAhead = 2;

  const Dim padded_, columns_, pitch_;  // Hp; pre-activations; of from_x and from_h
  const bool w_in_place_;
  Tensor<const T> x_{}, w_{}, r_{}, b_{}, h0_{};

 private:
  T* h_row(Dim d, Dim turn, Dim k) const { return at(memory(d).h) + (turn * s_.N + k) * padded_; }
  std::vector<ForwardMemory<T>> memory_;
};

}  // namespace onnxgrad::ONNXGRAD_ISA
