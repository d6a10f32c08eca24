// The gradient of LSTM, last step first. With dh, dc the cotangents of Ht, Ct, and ' the slopes:
//
//   dao = dh ∘ h(C) ∘ o'
//   dc += dh ∘ o ∘ h'(C) + Po ∘ dao
//   dai = dc ∘ c ∘ i'     (with input_forget: dc ∘ (c − Ct-1) ∘ i')
//   daf = dc ∘ Ct-1 ∘ f'
//   dac = dc ∘ i ∘ c'
//   dc of t−1 = dc ∘ f + Pi ∘ dai + Pf ∘ daf
//   dh of t−1 = da R
//
// A step is one product, da R, and the pointwise work;
// each slice owns some hidden columns, so that a step is one phase.
// Over a whole chunk of steps: dX = da W, dW += daᵀ X, dR += daᵀ Hprev, dB += Σ da.
#pragma once
#include "ops/recurrent/lstm.h"
#include "ops/recurrent/recurrent_grad.h"

namespace onnxgrad::ONNXGRAD_ISA {

template <class T, class Cell> class LstmGrad : public RecurrentGrad<T, Cell> {
  using Base = RecurrentGrad<T, Cell>;
  using Base::at, Base::lengths_, Base::memory, Base::s_, Base::tensors_;

 public:
  LstmGrad(const Call& call, const RecurrentCall& r, const Lengths& lengths,
           const std::vector<Chunk>& chunks, Workspace& space)
      : Base(r, lengths, chunks, GradLayout{4, 0, {4}}, call.wants("dP"), space),
        input_forget_(call.integer("input_forget") != 0) {
    for (Dim d = 0; d < s_.D; ++d)
      more_.push_back({space.shared<T>(s_.N * s_.H), space.shared<T>(3 * s_.H)});
  }

  void run(Call& call) {
    Tensors<T> of(call);
    Base::take_tensors(of);
    c0_ = of.input("C0"), p_ = of.input("P"), c_all_ = of.input("CAll"), iofc_ = of.input("IOFC");
    grad_ct_ = of.input("grad_Ct"), dc0_ = of.output("dC0"), dp_ = of.output("dP");
    Base::run_gradient(call, *this, {true, false, false, true, true}, {"dC0", "dP"});
  }

  void run(Dim d, const Moment& m, Dim slice, const Moment* other) {
    switch (m.stage) {
      case Stage::pack:
        if (slice == 0) set_initial_cotangents(d);
        return pack_weights(d, m, slice);
      case Stage::gather: return Base::pack_operands(d, m, slice);
      case Stage::step: return step(d, m, slice);
      case Stage::after: return after(d, m, slice, other);
      case Stage::finish: return finish(d);
      default: return;
    }
  }

 private:
  // Working memory of one direction, beyond what every recurrent gradient has.
  struct Memory {
    Workspace::Shared<T> dc;  // [N][H], the cotangent of Ct
    Workspace::Shared<T> dp;  // [3][H], the sums of one step
  };
  T* dc_row(Dim d, Dim k) const { return at(more_[static_cast<std::size_t>(d)].dc) + k * s_.H; }
  T* peephole_sums(Dim d) const { return at(more_[static_cast<std::size_t>(d)].dp); }

  void set_initial_cotangents(Dim d) {
    Base::set_initial_dh(d);
    Base::set_state(d, grad_ct_, dc_row(d, 0));
    clear(peephole_sums(d), 3 * s_.H);
    if (dp_) clear(dp_.row(0, d, 0), 3 * s_.H);
  }

  // W and R as they are: rows are gate columns, which the products sum over.
  void pack_weights(Dim d, const Moment& m, Dim slice) const {
    const Dim count = Base::slices(m), hidden = Base::hidden_panels(),
              panels = hidden + Base::input_panels();
    const Dim first = cut(panels, count, slice), last = cut(panels, count, slice + 1);
    if (!Base::r_in_place_)
      pack_panels(tensors_.r.row(0, d, 0), s_.H, 4 * s_.H, s_.H, at(memory(d).packed_r), first,
                  std::min(last, hidden));
    if (!Base::w_in_place_)
      pack_panels(tensors_.w.row(0, d, 0), s_.I, 4 * s_.H, s_.I, at(memory(d).packed_w),
                  std::max(first, hidden) - hidden, last - hidden);
  }

  // dh = da R, where the rows of da begin at `row` of the chunk;
  // other rows of dh keep what they have.
  void set_dh(Dim d, const Moment& m, Dim row, StepBlock b) const {
    if (b.row == b.row_end) return;
    const StateWeights<T> r = Base::r_weights(d, 0, at(memory(d).packed_r), 4 * s_.H);
    state_product<false>(Base::part(b), Rows<T>{Base::da_row(d, row), Base::da_pitch()}, 4 * s_.H,
                         r, s_.H, Base::dh_row(d, 0), s_.H, Base::is_odd(m));
  }

  void step(Dim d, const Moment& m, Dim slice) {
    set_dh(d, m, m.previous_row, Base::block(m.previous_active, slice));
    const StepBlock b = Base::block(lengths_.active(m.t), slice);
    if (p_ || dp_)
      step_cells<true>(d, m, b);
    else
      step_cells<false>(d, m, b);
    if (dp_) add_peephole_sums(d, Base::columns(b));
  }

  struct LstmGradRow {
    const T *iofc, *c, *c_before, *grad_h;
    T *da, *dh, *dc;
  };

  template <bool peepholes> void step_cells(Dim d, const Moment& m, StepBlock b) {
    const ColumnRange columns = Base::columns(b);
    const T* p = p_ ? p_.row(0, d, 0) : nullptr;
    for (Dim k = b.row; k < b.row_end; ++k) {
      if (k + kAhead < b.row_end) prefetch_row(d, m.t, lengths_.source(k + kAhead), columns);
      const Dim n = lengths_.source(k);
      const LstmGradRow a{iofc_.row(m.t, d, n),
                          c_all_.row(m.t, d, n),
                          Base::row_before(c_all_, c0_, d, m.t, k),
                          tensors_.grad_h_all ? tensors_.grad_h_all.row(m.t, d, n) : Base::zeros(),
                          Base::da_row(d, m.row + k),
                          Base::dh_row(d, k),
                          dc_row(d, k)};
      Dim c = columns.first;
      for (; c + lanes<T> <= columns.last; c += lanes<T>)
        compute<peepholes>(Base::cell(d), a, p, peephole_sums(d), c, lanes<T>);
      if (c < columns.last)
        compute<peepholes>(Base::cell(d), a, p, peephole_sums(d), c, columns.last - c);
    }
  }

  // What the forward pass kept of a row is long gone from the caches,
  // and comes in pieces too short for the hardware to foresee.
  static constexpr Dim kAhead = 3;  // rows
  ONNXGRAD_INLINE void prefetch_row(Dim d, Dim t, Dim n, ColumnRange columns) const {
    prefetch(c_all_.row(t, d, n), columns);
    for (Dim gate = 0; gate < 4; ++gate) prefetch(iofc_.row(t, d, n) + gate * s_.H, columns);
    if (tensors_.grad_h_all) prefetch(tensors_.grad_h_all.row(t, d, n), columns);
  }

  // `width` hidden units from `column` on.
  template <bool peepholes> ONNXGRAD_INLINE void compute(const Cell& cell, const LstmGradRow& a,
                                                         const T* p, T* dp, Dim column, Dim width) {
    const Dim H = s_.H;
    const auto load_at = [&](const T* row)
                             ONNXGRAD_LAMBDA { return load_some<T>(row + column, width); };
    const Vec<T> i = load_at(a.iofc), o = load_at(a.iofc + H), f = load_at(a.iofc + 2 * H),
                 c = load_at(a.iofc + 3 * H);
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
    T *sums = peephole_sums(d), *dp = dp_.row(0, d, 0);
    for (Dim gate = 0; gate < 3; ++gate)
      for (Dim c = gate * s_.H + columns.first; c < gate * s_.H + columns.last; ++c)
        dp[c] += sums[c], sums[c] = T(0);
  }

  void after(Dim d, const Moment& m, Dim slice, const Moment* other) {
    const auto set_dh_before = [&](StepBlock b) { set_dh(d, m, m.row, b); };
    Base::after(d, m, slice, other, set_dh_before,
                [&](Dim, Dim first, Dim count, const T* tiles, bool add) {
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
    Base::take_state(d, dc_row(d, 0), dc0_);
  }

  const bool input_forget_;
  std::vector<Memory> more_;
  Tensor<const T> c0_{}, p_{}, c_all_{}, iofc_{}, grad_ct_{};
  Tensor<T> dc0_{}, dp_{};
};

}  // namespace onnxgrad::ONNXGRAD_ISA
