#include "ops/product/linear.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& linear_grad_contract() {
  static const Contract c = Contract("LinearGrad")
                                .summary("Gradient of a linear layer, Y = X·W + B.")
                                .formula("dX = dY·Wᵀ; dW = Xᵀ·dY; dB = Σ dY over the rows")
                                .accuracy(Measure::rms, 2e-6, 1e-14)
                                .input("dY", "T[rows..., N]", "cotangent of Y")
                                .input("X", "T[rows..., K]", "what went in")
                                .input("W", "T[K, N]", "weights")
                                .optional_output("dX", "T[rows..., K]", "gradient of X")
                                .optional_output("dW", "T[K, N]", "gradient of the weights")
                                .optional_output("dB", "T[N]", "gradient of the bias");
  return c;
}

namespace {

template <class T> struct LinearBackward {
  const LinearShape s;
  const T *dy, *x, *w;
  T *dx, *dw, *db;
  T *packed_dy, *packed_w;

  // Panels of dY for dW, and of Wᵀ for dX: one block of columns of W.
  void pack_block(Call& call, Dim first, Dim columns) const {
    const auto of_dy = PackingCuts<T>::of(s.rows, columns);
    const Dim count_dy = dw ? of_dy.count() : 0, tall = dx ? panel_count<T>(s.depth) : 0;
    const Dim each = larger_of(1, kPackedGrain / (kPanel<T> * larger_of(1, columns)));
    call.parallel_for(count_dy + divide_up(tall, each), [&](Dim piece) {
      if (piece < count_dy)
        return pack_part(dy + first, s.columns, s.rows, columns, packed_dy, of_dy.part(piece));
      const Dim from = (piece - count_dy) * each, to = smaller_of(from + each, tall);
      pack_transposed_panels(w + first, s.columns, columns, s.depth, packed_w, from, to);
    });
  }

  // dB of the columns of one panel, from the packed panel where there is one.
  void sum_panel(Dim panel, Dim first, Dim columns) const {
    const Dim column = panel * kPanel<T>, width = smaller_of(kPanel<T>, columns - column);
    if (dw)
      sum_rows(packed_dy + column * s.rows, kPanel<T>, width, db + first + column);
    else
      sum_rows(dy + first + column, s.columns, width, db + first + column);
  }

  // sums[c] = Σ_i terms[i·pitch + c]. What rounding loses is summed beside the sum: equal
  // cotangents would drift otherwise. Rows go to four sums in turn, which do not wait.
  void sum_rows(const T* terms, Dim pitch, Dim width, T* sums) const {
    each_register<T>(0, width, [&](Dim c, Dim n) ONNXGRAD_LAMBDA {
      constexpr int chains = 4;
      Vec<T> sum[chains] = {}, excess[chains] = {};
      Dim i = 0;
      for (; i + chains <= s.rows; i += chains)
#pragma GCC unroll 4
        for (int r = 0; r < chains; ++r)
          add_compensated<T>(sum[r], excess[r], load_some<T>(terms + (i + r) * pitch + c, n));
      for (; i < s.rows; ++i)
        add_compensated<T>(sum[0], excess[0], load_some<T>(terms + i * pitch + c, n));
      for (int r = 1; r < chains; ++r) {
        add_compensated<T>(sum[0], excess[0], sum[r]);
        excess[0] += excess[r];
      }
      store_some<T>(sums + c, sum[0] - select(excess[0] == excess[0], excess[0], Vec<T>{}), n);
    });
  }

  void multiply_block(Call& call, Dim first, Dim columns) const {
    const auto of_dx = ProductCuts<T>::of(dx ? s.rows : 0, columns, s.depth);
    const auto of_dw = ProductCuts<T>::of(dw ? s.depth : 0, s.rows, columns, kLeastRows / 2);
    const Dim count_dx = dx ? of_dx.count() : 0, count_dw = dw ? of_dw.count() : 0;
    const Dim products = count_dx + count_dw, sums = db ? panel_count<T>(columns) : 0;
    call.parallel_for(products + sums, [&](Dim piece) {
      if (piece >= products) return sum_panel(piece - products, first, columns);
      if (piece >= count_dx)
        return set_product(of_dw.part(piece - count_dx), Columns<T>{x, s.depth}, s.rows, packed_dy,
                           columns, dw + first, s.columns);
      const Rows<T> rows{dy + first, s.columns};
      if (first == 0)
        set_product(of_dx.part(piece), rows, columns, packed_w, s.depth, dx, s.depth);
      else
        add_product(of_dx.part(piece), rows, columns, packed_w, s.depth, dx, s.depth);
    });
  }
};

}  // namespace

template <class T> void linear_grad(Call& call) {
  const LinearShape s = described_linear(call, "X");
  const Dim block = column_block<T>(s.columns, larger_of(s.rows, s.depth));
  Workspace space;
  const auto packed_dy = space.shared<T>(call.wants("dW") ? packed_size<T>(s.rows, block) : 0);
  const auto packed_w = space.shared<T>(call.wants("dX") ? packed_size<T>(block, s.depth) : 0);
  Workspace::acquire(call, space.bytes());
  const T *dy = call.input<T>("dY").data(), *x = call.input<T>("X").data();
  const Span<T> dx = call.optional_output<T>("dX"), dw = call.optional_output<T>("dW"),
                db = call.optional_output<T>("dB");
  space.open();
  const LinearBackward<T> back{s,
                               dy,
                               x,
                               call.input<T>("W").data(),
                               dx.data(),
                               dw.data(),
                               db.data(),
                               space[packed_dy].data(),
                               space[packed_w].data()};
  for (Dim first = 0; first < s.columns || first == 0; first += block) {
    const Dim columns = smaller_of(block, s.columns - first);
    back.pack_block(call, first, columns);
    back.multiply_block(call, first, columns);
  }
}
ONNXGRAD_FLOAT_AND_DOUBLE(linear_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
