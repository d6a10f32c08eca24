// The gradient of GRU, last step first. With dh the cotangent of Ht, and ' the slopes:
//
//   daz = dh ∘ (Ht-1 − n) ∘ z'
//   dan = dh ∘ (1 − z) ∘ n'
//   with linear_before_reset:   dar = dan ∘ (Ht-1 Rhᵀ + Rbh) ∘ r'
//                               dh of t−1 = dh ∘ z + [daz dar dan∘r] R
//   without:    q = dan Rh,     dar = q ∘ Ht-1 ∘ r'
//                               dh of t−1 = dh ∘ z + q ∘ r + [daz dar] Rzr
//
// Ht-1 Rhᵀ is one product per chunk. A step is one phase with linear_before_reset
// and two without. The columns of da are n z r and, with linear_before_reset,
// n∘r: what multiplies W stands together, and what multiplies R.
#pragma once
#include "ops/recurrent/gru.h"
#include "ops/recurrent/recurrent_grad.h"

namespace onnxgrad::ONNXGRAD_ISA {

// Working memory of one direction, beyond what every recurrent gradient has.
template <class T> struct GruGradMemory {
  Workspace::Shared<T> packed_rht;  // linear_before_reset: Rhᵀ [H][H], packed
  Workspace::Shared<T> h, linear;   // linear_before_reset: Ht-1 and Ht-1 Rhᵀ of a chunk, [rows][H]
  Workspace::Shared<T> packed_reset;  // otherwise: r ∘ Ht-1 of a chunk, packed
  Workspace::Shared<T> q;             // otherwise: dan Rh, [N][H]
};

template <class T, class Cell> class GruGrad : public RecurrentGrad<T, Cell> {
  using Base = RecurrentGrad<T, Cell>;
  using Base::at, Base::cell, Base::lengths_, Base::memory, Base::s_, Base::tensors_;
  enum Section : Dim { kCandidate, kGates, kReset };  // of da: n; z r; n∘r

 public:
  GruGrad(const Call& call, const RecurrentCall& r, const Lengths& lengths,
          const std::vector<Chunk>& chunks, Workspace& space)
      : Base(r, lengths, chunks, layout(resets_after(call)), false, space),
        linear_before_reset_(resets_after(call)) {
    const Dim rows = most_rows(chunks), H = s_.H, with = linear_before_reset_ ? 1 : 0,
              without = 1 - with;
    const auto shared = [&](Dim size) { return space.shared<T>(size); };
    for (Dim d = 0; d < s_.D; ++d)
      more_.push_back({shared(with * packed_size<T>(H, H)), shared(with * rows * H),
                       shared(with * rows * H), shared(without * packed_size<T>(rows, H)),
                       shared(without * s_.N * H)});
  }

  void run(Call& call) {
    Tensors<T> of(call);
    Base::take_tensors(of);
    b_ = of.input("B"), zrh_ = of.input("ZRH");
    Base::run_gradient(call, *this, {true, linear_before_reset_, !linear_before_reset_, true, true},
                       {});
  }

  void run(Dim d, const Moment& m, Dim slice, const Moment* other) {
    switch (m.stage) {
      case Stage::pack:
        if (slice == 0) Base::set_initial_dh(d);
        return pack_weights(d, m, slice);
      case Stage::gather: return gather(d, m, slice);
      case Stage::linear: return multiply_state(d, m, slice);
      case Stage::step: return step(d, m, slice);
      case Stage::second: return second(d, m, Base::block(lengths_.active(m.t), slice));
      case Stage::after: return after(d, m, slice, other);
      case Stage::finish: return Base::take_state(d, Base::dh_row(d, 0), tensors_.dh0);
    }
  }

 private:
  static bool resets_after(const Call& call) { return call.integer("linear_before_reset") != 0; }
  static GradLayout layout(bool linear_before_reset) {
    return {3, 1, linear_before_reset ? std::vector<Dim>{1, 2, 1} : std::vector<Dim>{1, 2}};
  }
  const GruGradMemory<T>& more(Dim d) const { return more_[static_cast<std::size_t>(d)]; }
  const T* h_before(Dim d, Dim t, Dim k) const {
    return Base::row_before(tensors_.h_all, tensors_.h0, d, t, k);
  }
  Rows<T> da_part(Dim d, Dim row, Dim gate) const {
    return {Base::da_row(d, row) + gate * s_.H, Base::da_pitch()};
  }
  // Gates of R that [daz dar …] is multiplied by in one product.
  Dim r_gates() const { return linear_before_reset_ ? 3 : 2; }
  // Without linear_before_reset Rh is packed behind Rz and Rr.
  T* packed_rh(Dim d) const { return at(memory(d).packed_r) + packed_size<T>(2 * s_.H, s_.H); }

  // W with its gates in the order of da: h z r. R as it is, or Rz Rr and Rh apart.
  void pack_weights(Dim d, const Moment& m, Dim slice) const {
    const Dim H = s_.H, I = s_.I, hidden = Base::hidden_panels(),
              panels = hidden + Base::input_panels();
    const Dim count = Base::slices(m), first = cut(panels, count, slice),
              last = cut(panels, count, slice + 1);
    const T *w = tensors_.w.row(0, d, 0), *r = tensors_.r.row(0, d, 0);
    T* packed_r = at(memory(d).packed_r);
    for (Dim p = first; p < std::min(last, hidden); ++p) {
      if (linear_before_reset_)
        pack_transposed_panels(r + 2 * H * H, H, H, H, at(more(d).packed_rht), p, p + 1);
      if (Base::r_in_place_) continue;
      pack_panel_rows(r, H, r_gates() * H, packed_r, r_gates() * H, p, 0);
      if (!linear_before_reset_) pack_panel_rows(r + 2 * H * H, H, H, packed_rh(d), H, p, 0);
    }
    if (Base::w_in_place_) return;
    for (Dim p = std::max(first, hidden) - hidden; p < last - hidden; ++p) {
      pack_panel_rows(w + 2 * H * I, I, H, at(memory(d).packed_w), 3 * H, p, 0);
      pack_panel_rows(w, I, 2 * H, at(memory(d).packed_w), 3 * H, p, H);
    }
  }

  void gather(Dim d, const Moment& m, Dim slice) const {
    Base::pack_operands(d, m, slice);
    const Dim count = Base::slices(m), panels = Base::hidden_panels();
    const Dim first = cut(panels, count, slice), last = cut(panels, count, slice + 1);
    if (!linear_before_reset_ && tensors_.dr)
      pack_rows(
          lengths_, Base::chunk(m), s_.H, at(more(d).packed_reset), first, last, [&](Dim t, Dim k) {
            return ProductRow<T>{zrh_.row(t, d, lengths_.source(k)) + s_.H, h_before(d, t, k)};
          });
    if (!linear_before_reset_) return;
    const Dim column = first * kPanel<T>, width = std::min(last * kPanel<T>, s_.H) - column;
    if (width > 0)
      for_rows(lengths_, Base::chunk(m), [&](Dim row, Dim t, Dim k) {
        copy_row(h_before(d, t, k) + column, width, at(more(d).h) + row * s_.H + column);
      });
  }

  void multiply_state(Dim d, const Moment& m, Dim slice) const {
    const Dim panels = Base::hidden_panels(), count = Base::slices(m);
    const Part part{0, Base::chunk(m).rows, cut(panels, count, slice),
                    cut(panels, count, slice + 1)};
    set_product(part, Rows<T>{at(more(d).h), s_.H}, s_.H, at(more(d).packed_rht), s_.H,
                at(more(d).linear), s_.H);
  }

  // dh += the products with R, where the rows of da begin at
  // `row` of the chunk. dh holds dh ∘ z (+ q ∘ r) already.
  void complete_dh(Dim d, const Moment& m, Dim row, StepBlock b) const {
    if (b.row == b.row_end) return;
    const Dim depth = r_gates() * s_.H;
    const StateWeights<T> r = Base::r_weights(d, 0, at(memory(d).packed_r), depth);
    state_product<true>(Base::part(b), da_part(d, row, 1), depth, r, s_.H, Base::dh_row(d, 0), s_.H,
                        Base::is_odd(m));
  }

  void step(Dim d, const Moment& m, Dim slice) const {
    complete_dh(d, m, m.previous_row, Base::block(m.previous_active, slice));
    const StepBlock b = Base::block(lengths_.active(m.t), slice);
    const ColumnRange columns = Base::columns(b);
    for (Dim k = b.row; k < b.row_end; ++k) {
      if (k + kAhead < b.row_end) prefetch_row(d, m.t, lengths_.source(k + kAhead), columns);
      for (Dim c = columns.first; c < columns.last; c += lanes<T>)
        first_cell(d, m, k, c, std::min(columns.last - c, lanes<T>));
    }
  }
  // See LstmGrad.
  static constexpr Dim kAhead = 3;  // rows
  ONNXGRAD_INLINE void prefetch_row(Dim d, Dim t, Dim n, ColumnRange columns) const {
    for (Dim gate = 0; gate < 3; ++gate) prefetch(zrh_.row(t, d, n) + gate * s_.H, columns);
    if (tensors_.grad_h_all) prefetch(tensors_.grad_h_all.row(t, d, n), columns);
  }

  ONNXGRAD_INLINE void first_cell(Dim d, const Moment& m, Dim k, Dim c, Dim width) const {
    const Dim H = s_.H, row = lengths_.source(k);
    const auto load_at = [&](const T* p) ONNXGRAD_LAMBDA { return load_some<T>(p + c, width); };
    const auto store_at = [&](T* p, Vec<T> v) ONNXGRAD_LAMBDA { store_some<T>(p + c, v, width); };
    const T* gates = zrh_.row(m.t, d, row);
    T *da = Base::da_row(d, m.row + k), *dh_state = Base::dh_row(d, k);
    const Vec<T> z = load_at(gates), n = load_at(gates + 2 * H), h = load_at(h_before(d, m.t, k));
    Vec<T> dh = load_at(dh_state);
    if (tensors_.grad_h_all) dh += load_at(tensors_.grad_h_all.row(m.t, d, row));
    const Vec<T> dan = dh * (T(1) - z) * cell(d).candidate_slope(n);
    store_at(da, dan);
    store_at(da + H, dh * (h - n) * cell(d).gate_slope(z));
    if (!linear_before_reset_) return store_at(dh_state, dh);
    const Vec<T> r = load_at(gates + H);
    Vec<T> linear = load_at(at(more(d).linear) + (m.row + k) * H);
    if (b_) linear += load_at(b_.row(0, d, 0) + 5 * H);
    store_at(da + 2 * H, dan * linear * cell(d).gate_slope(r));
    store_at(da + 3 * H, dan * r);
    store_at(dh_state, dh * z);
  }

  // Without linear_before_reset: q, and what needs it.
  void second(Dim d, const Moment& m, StepBlock b) const {
    const Dim H = s_.H;
    state_product<false>(Base::part(b), da_part(d, m.row, 0), H,
                         Base::r_weights(d, 2, packed_rh(d), H), H, at(more(d).q), H,
                         Base::is_odd(m));
    const ColumnRange columns = Base::columns(b);
    for (Dim k = b.row; k < b.row_end; ++k)
      for (Dim c = columns.first; c < columns.last; c += lanes<T>) {
        const Dim width = std::min(columns.last - c, lanes<T>);
        const T* gates = zrh_.row(m.t, d, lengths_.source(k)) + c;
        T* dh = Base::dh_row(d, k) + c;
        const Vec<T> z = load_some<T>(gates, width), r = load_some<T>(gates + H, width);
        const Vec<T> q = load_some<T>(at(more(d).q) + k * H + c, width);
        const Vec<T> dr = q * load_some<T>(h_before(d, m.t, k) + c, width);
        store_some<T>(Base::da_row(d, m.row + k) + 2 * H + c, dr * cell(d).gate_slope(r), width);
        store_some<T>(dh, fma(q, r, load_some<T>(dh, width) * z), width);
      }
  }

  void after(Dim d, const Moment& m, Dim slice, const Moment* other) const {
    const auto complete_dh_before = [&](StepBlock b) { complete_dh(d, m, m.row, b); };
    Base::after(d, m, slice, other, complete_dh_before,
                [&](Dim section, Dim first, Dim count, const T* tiles, bool add) {
                  const Dim rows = Base::chunk(m).rows, H = s_.H;
                  const Dim row = section == kGates ? first : 2 * H + first;  // of W and R
                  T* dw = tensors_.dw && section != kReset ? tensors_.dw.row(0, d, 0) + row * s_.I
                                                           : nullptr;
                  weight_gradient<T>(tiles, count, rows, {at(memory(d).packed_x), s_.I, dw}, add);
                  const bool candidate = section == kCandidate;
                  T* dr = tensors_.dr && !(candidate && linear_before_reset_)
                              ? tensors_.dr.row(0, d, 0) + row * H
                              : nullptr;
                  weight_gradient<T>(
                      tiles, count, rows,
                      {at(candidate ? more(d).packed_reset : memory(d).packed_h), H, dr}, add);
                  if (tensors_.db) add_biases(d, section, first, count, rows, row, add);
                });
  }

  // Wb and Rb are added to the same sums, but for Rbh under
  // linear_before_reset, which the reset gate multiplies.
  void add_biases(Dim d, Dim section, Dim first, Dim count, Dim rows, Dim row, bool add) const {
    const Dim gate = section == kCandidate ? 0 : section == kGates ? 1 : 3;
    T *wb = tensors_.db.row(0, d, 0) + row, *rb = wb + 3 * s_.H;
    T* sums = section == kReset ? rb : wb;
    column_sums(Base::da_row(d, 0) + gate * s_.H + first, Base::da_pitch(), rows, count, sums, add);
    if (section == kGates || (section == kCandidate && !linear_before_reset_))
      copy_row(wb, count, rb);
  }

  const bool linear_before_reset_;
  std::vector<GruGradMemory<T>> more_;
  Tensor<const T> b_{}, zrh_{};
};

}  // namespace onnxgrad::ONNXGRAD_ISA
