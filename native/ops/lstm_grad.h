// The gradient of LSTM, last step first. With dh, dc the cotangents of Ht, Ct, and ' the slopes:
//
//   dao = dh ∘ h(C) ∘ o'                   dai = dc ∘ c ∘ i'        (with input_forget: dc ∘ (c − Ct-1) ∘ i')
//   dc += dh ∘ o ∘ h'(C) + Po ∘ dao        daf = dc ∘ Ct-1 ∘ f'     dac = dc ∘ i ∘ c'
//   dc of t−1 = dc ∘ f + Pi ∘ dai + Pf ∘ daf,    dh of t−1 = da R
//
// A step is one product, da R, and the pointwise work; each slice owns some hidden columns, so that a step is one
// phase. Over a whole chunk of steps: dX = da W, dW += daᵀ X, dR += daᵀ Hprev, dB += Σ da.
#pragma once
#include "ops/lstm.h"
#include "ops/recurrent_grad.h"

namespace onnxgrad::ONNXGRAD_ISA {

template <class T> struct LstmGradTensors {
  Tensor<const T> x, w, r, h0, c0, p, hall, call, iofc, grad_hall, grad_ht, grad_ct;
  Tensor<T> dx, dw, dr, db, dh0, dc0, dp;
};

template <class T, class Cell> class LstmGrad : public RecurrentGrad<T> {
  using Base = RecurrentGrad<T>;
  using Base::at, Base::lengths_, Base::memory, Base::s_;

 public:
  LstmGrad(const RecurrentCall& r, const Lengths& lengths, const std::vector<Chunk>& chunks, bool input_forget,
           Workspace& space)
      : Base(r, lengths, chunks, GradLayout{4, {4}}, space), input_forget_(input_forget) {
    for (Dim d = 0; d < s_.D; ++d) {
      if constexpr (std::is_same_v<Cell, AnyCell<T>>)
        cells_.emplace_back(&r.activations[static_cast<std::size_t>(3 * d)], 3, r.has_clip, r.clip);
      else
        cells_.emplace_back();
      dc_.push_back(space.template shared<T>(s_.N * s_.H));
      dp_.push_back(space.template shared<T>(3 * s_.H));
    }
  }

  void run(Call& call, const LstmGradTensors<T>& tensors) {
    tensors_ = tensors;
    Base::wants_dh0_ = bool(tensors.dh0);
    Base::tensors_ = {tensors.x, tensors.w, tensors.r, tensors.h0, tensors.hall, tensors.dx, tensors.dw, tensors.dr};
    run_programs(call, *this, Base::programs({true, false, false, true, true}));
  }

  void run(Dim d, const Moment& m, Dim slice, const Moment* other) {
    switch (m.stage) {
      case Stage::pack:
        if (slice == 0) set_initial_cotangents(d);
        return pack_weights(d, m, slice);
      case Stage::gather: return Base::pack_operands(d, m, slice);
      case Stage::step: return step(d, m, Base::hidden_columns(m, slice));
      case Stage::after: return after(d, m, slice, other);
      case Stage::finish: return finish(d);
      default: return;
    }
  }
  Dim slices(const Moment& m) const { return Base::slices(m); }

 private:
  void set_initial_cotangents(Dim d) {
    Base::set_dh(d, tensors_.grad_ht);
    Base::set_state(d, tensors_.grad_ct, at(dc_[static_cast<std::size_t>(d)]));
    clear(at(dp_[static_cast<std::size_t>(d)]), 3 * s_.H);
    if (tensors_.dp) clear(tensors_.dp.row(0, d, 0), 3 * s_.H);
  }

  // W and R as they are: rows are gate columns, which the products sum over.
  void pack_weights(Dim d, const Moment& m, Dim slice) const {
    const Dim count = slices(m), hidden = Base::hidden_panels(), panels = hidden + Base::input_panels();
    const Dim first = cut(panels, count, slice), last = cut(panels, count, slice + 1);
    pack_panels(tensors_.r.row(0, d, 0), s_.H, 4 * s_.H, s_.H, at(memory(d).packed_r), first, std::min(last, hidden));
    pack_panels(tensors_.w.row(0, d, 0), s_.I, 4 * s_.H, s_.I, at(memory(d).packed_w), std::max(first, hidden) - hidden,
                last - hidden);
  }

  // dh = da R for `rows` rows from `row` of the chunk on; other rows of dh keep what they have.
  void set_dh(Dim d, Dim row, Dim rows, ColumnRange columns) const {
    if (rows > 0)
      state_product<false>(Base::hidden_part(rows, columns), Rows<T>{Base::da_row(d, row), Base::da_pitch()}, 4 * s_.H,
                           at(memory(d).packed_r), s_.H, Base::dh_row(d, 0), s_.H);
  }

  void step(Dim d, const Moment& m, ColumnRange columns) {
    set_dh(d, m.previous_row, m.previous_active, columns);
    const bool with_p = bool(tensors_.p) || bool(tensors_.dp);
    if (with_p)
      step_cells<true>(d, m, columns);
    else
      step_cells<false>(d, m, columns);
    if (tensors_.dp) add_peephole_sums(d, columns);
  }

  struct Addresses {
    const T *iofc, *c, *c_before, *grad_h;
    T *da, *dh, *dc;
  };

  template <bool peepholes> void step_cells(Dim d, const Moment& m, ColumnRange columns) {
    for (Dim k = 0; k < lengths_.active(m.t); ++k) {
      const Dim n = lengths_.source(k);
      const Addresses a{tensors_.iofc.row(m.t, d, n),
                        tensors_.call.row(m.t, d, n),
                        Base::row_before(tensors_.call, tensors_.c0, d, m.t, k),
                        tensors_.grad_hall ? tensors_.grad_hall.row(m.t, d, n) : Base::zeros(),
                        Base::da_row(d, m.row + k),
                        Base::dh_row(d, k),
                        at(dc_[static_cast<std::size_t>(d)]) + k * s_.H};
      const T* p = tensors_.p ? tensors_.p.row(0, d, 0) : nullptr;
      if (k + kAhead < lengths_.active(m.t)) prefetch_row(d, m, lengths_.source(k + kAhead), columns);
      Dim c = columns.first;
      for (; c + lanes<T> <= columns.last; c += lanes<T>)
        cell<peepholes>(cells_[static_cast<std::size_t>(d)], a, p, at(dp_[static_cast<std::size_t>(d)]), c, lanes<T>);
      if (c < columns.last)
        cell<peepholes>(cells_[static_cast<std::size_t>(d)], a, p, at(dp_[static_cast<std::size_t>(d)]), c,
                        columns.last - c);
    }
  }

  static constexpr Dim kAhead = 3;
  ONNXGRAD_INLINE void prefetch_row(Dim d, const Moment& m, Dim n, ColumnRange columns) const {
    const T *gates = tensors_.iofc.row(m.t, d, n), *c = tensors_.call.row(m.t, d, n);
    const T* grad = tensors_.grad_hall ? tensors_.grad_hall.row(m.t, d, n) : Base::zeros();
    for (Dim j = columns.first; j < columns.last; j += 64 / Dim(sizeof(T))) {
      for (Dim gate = 0; gate < 4; ++gate) __builtin_prefetch(gates + gate * s_.H + j);
      __builtin_prefetch(c + j);
      __builtin_prefetch(grad + j);
    }
  }

  // `width` hidden units from `column` on.
  template <bool peepholes>
  ONNXGRAD_INLINE void cell(const Cell& cell, const Addresses& a, const T* p, T* dp, Dim column, Dim width) {
    const Dim H = s_.H;
    const auto load_at = [&](const T* row) ONNXGRAD_LAMBDA { return load_some<T>(row + column, width); };
    const Vec<T> i = load_at(a.iofc), o = load_at(a.iofc + H), f = load_at(a.iofc + 2 * H), c = load_at(a.iofc + 3 * H);
    const Vec<T> squashed = cell.squash(load_at(a.c)), c_before = load_at(a.c_before);
    const Vec<T> dh = load_at(a.dh) + load_at(a.grad_h);

    const Vec<T> dao = dh * squashed * cell.gate_slope(o);
    Vec<T> dc = fma(dh * o, cell.squash_slope(squashed), load_at(a.dc));
    if (peepholes && p) dc = fma(dao, load_at(p + H), dc);
    const Vec<T> dai = dc * (input_forget_ ? c - c_before : c) * cell.gate_slope(i);
    const Vec<T> daf = input_forget_ ? Vec<T>{} : dc * c_before * cell.gate_slope(f);
    const Vec<T> dac = dc * i * cell.candidate_slope(c);
    Vec<T> dc_before = dc * f;
    if (peepholes && p) dc_before = fma(daf, load_at(p + 2 * H), fma(dai, load_at(p), dc_before));

    store_some<T>(a.da + column, dai, width);
    store_some<T>(a.da + H + column, dao, width);
    store_some<T>(a.da + 2 * H + column, daf, width);
    store_some<T>(a.da + 3 * H + column, dac, width);
    store_some<T>(a.dc + column, dc_before, width);
    if (!peepholes) return;
    store_some<T>(dp + column, fma(dai, c_before, load_at(dp)), width);
    store_some<T>(dp + H + column, fma(dao, load_at(a.c), load_at(dp + H)), width);
    store_some<T>(dp + 2 * H + column, fma(daf, c_before, load_at(dp + 2 * H)), width);
  }

  // dP += the sums of one step: sums of sums, so that the error does not grow with S·N.
  void add_peephole_sums(Dim d, ColumnRange columns) {
    T *sums = at(dp_[static_cast<std::size_t>(d)]), *dp = tensors_.dp.row(0, d, 0);
    for (Dim gate = 0; gate < 3; ++gate)
      for (Dim c = gate * s_.H + columns.first; c < gate * s_.H + columns.last; ++c) dp[c] += sums[c], sums[c] = T(0);
  }

  void after(Dim d, const Moment& m, Dim slice, const Moment* other) {
    const auto dh = [&](ColumnRange columns) { set_dh(d, m.row, lengths_.active(m.t), columns); };
    Base::after(d, m, slice, other, dh, [&](Dim, Dim first, Dim count, const T* tiles, bool add) {
      const Dim rows = Base::chunk(m).rows;
      T* dw = tensors_.dw ? tensors_.dw.row(0, d, 0) + first * s_.I : nullptr;
      T* dr = tensors_.dr ? tensors_.dr.row(0, d, 0) + first * s_.H : nullptr;
      weight_gradient<T>(tiles, count, rows, {at(memory(d).packed_x), s_.I, dw}, add);
      weight_gradient<T>(tiles, count, rows, {at(memory(d).packed_h), s_.H, dr}, add);
      if (!tensors_.db) return;
      T* db = tensors_.db.row(0, d, 0) + first;
      column_sums(Base::da_row(d, 0) + first, Base::da_pitch(), rows, count, db, add);
      copy_row(db, count, db + 4 * s_.H);  // Wb and Rb are added to the same sums
    });
  }

  void finish(Dim d) {
    Base::take_state(d, Base::dh_row(d, 0), tensors_.dh0);
    Base::take_state(d, at(dc_[static_cast<std::size_t>(d)]), tensors_.dc0);
  }

  const bool input_forget_;
  std::vector<Cell> cells_;
  std::vector<Workspace::Shared<T>> dc_, dp_;  // [N][H]; [3][H], the sums of one step
  LstmGradTensors<T> tensors_;
};

}  // namespace onnxgrad::ONNXGRAD_ISA
