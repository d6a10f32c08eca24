#include <algorithm>

#include "ops/product/linear.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& linear_grad_contract() {
  static const Contract c = Contract("LinearGrad")
                                .summary(
                                    "Gradient of a linear layer, Y = X·W + B. Rows of dY that are "
                                    "all zero (padding, ignored labels) take part in no product.")
                                .formula("dX = dY·Wᵀ + added; dW = Xᵀ·dY; dB = Σ dY over the rows")
                                .accuracy(Measure::rms, 2e-6, 1e-14)
                                .input("dY", "T[rows..., N]", "cotangent of Y")
                                .input("X", "T[rows..., K]", "what went in")
                                .input("W", "T[K, N]", "weights")
                                .optional("added", "T[rows..., K]", "what is added to dX")
                                .optional_output("dX", "T[rows..., K]", "gradient of X")
                                .optional_output("dW", "T[K, N]", "gradient of the weights")
                                .optional_output("dB", "T[N]", "gradient of the bias")
                                .inplace("added", "dX");
  return c;
}

namespace {

// The rows with cotangents, as runs. Fewer zero rows than kLeastGap side by side are not worth a
// cut; of more runs than kMostRuns all rows are one.
constexpr Dim kLeastGap = 16;
constexpr int kMostRuns = 64;
struct Runs {
  Dim first[kMostRuns], end[kMostRuns];
  int count = 0;

  static Runs of(const unsigned char* live, Dim rows) {
    Runs runs;
    for (Dim i = 0; i < rows; ++i) {
      if (!live[i]) continue;
      if (runs.count == 0 || i - runs.end[runs.count - 1] >= kLeastGap) {
        if (runs.count == kMostRuns) return all(rows);
        runs.first[runs.count++] = i;
      }
      runs.end[runs.count - 1] = i + 1;
    }
    return runs;
  }
  static Runs all(Dim rows) {
    Runs runs;
    runs.count = 1, runs.first[0] = 0, runs.end[0] = rows;
    return runs;
  }
};

// Rows that one piece looks at for zeros: most have a number at their beginning.
constexpr Dim kRowsLookedAt = 256;

template <class T> struct LinearBackward {
  const LinearShape s;
  const T *dy, *x, *w, *added;
  T *dx, *dw, *db;
  T *packed_dy, *packed_w;
  unsigned char* live;  // of each row: whether its cotangents are not all zero

  // Panels of dY for dW, and of Wᵀ for dX: one block of columns of W. Which rows of dY are zero.
  void pack_block(Call& call, Dim first, Dim columns) const {
    const auto of_dy = PackingCuts<T>::of(s.rows, columns);
    const Dim count_dy = dw ? of_dy.count() : 0, tall = dx ? panel_count<T>(s.depth) : 0;
    const Dim each = larger_of(1, kPackedGrain / (kPanel<T> * larger_of(1, columns)));
    const Dim packs = count_dy + divide_up(tall, each);
    call.parallel_for(packs + divide_up(s.rows, kRowsLookedAt), [&](Dim piece) {
      if (piece >= packs) return look_at_rows((piece - packs) * kRowsLookedAt, first, columns);
      if (piece < count_dy)
        return pack_part(dy + first, s.columns, s.rows, columns, packed_dy, of_dy.part(piece));
      const Dim from = (piece - count_dy) * each, to = smaller_of(from + each, tall);
      pack_transposed_panels(w + first, s.columns, columns, s.depth, packed_w, from, to);
    });
  }

  void look_at_rows(Dim from, Dim first, Dim columns) const {
    for (Dim i = from; i < smaller_of(from + kRowsLookedAt, s.rows); ++i) {
      const T* row = dy + i * s.columns + first;
      Dim c = 0;
      while (c < columns && row[c] == T(0)) ++c;
      live[i] = c < columns;
    }
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
    const Runs runs = Runs::of(live, s.rows);
    const Dim products = count_dx + count_dw, sums = db ? panel_count<T>(columns) : 0;
    call.parallel_for(products + sums, [&](Dim piece) {
      if (piece >= products) return sum_panel(piece - products, first, columns);
      if (piece >= count_dx)
        multiply_weights(of_dw.part(piece - count_dx), runs, first, columns);
      else
        multiply_rows(of_dx.part(piece), runs, first, columns);
    });
  }

  // dX (+)= dY·Wᵀ for the columns of W that are packed; the first of them on what is added, and
  // rows without cotangents get that alone.
  void multiply_rows(Part part, const Runs& runs, Dim first, Dim columns) const {
    const Addend<T> before{first > 0 ? dx : added, s.depth};
    Dim done = part.row;
    for (int r = 0; r < runs.count; ++r) {
      const Part live{larger_of(part.row, runs.first[r]), smaller_of(part.row_end, runs.end[r]),
                      part.panel, part.panel_end};
      if (live.row >= live.row_end) continue;
      if (first == 0) rows_without(done, live.row, part);
      product(before, live, Rows<T>{dy + first, s.columns}, columns, packed_w, s.depth, dx,
              s.depth);
      done = live.row_end;
    }
    if (first == 0) rows_without(done, part.row_end, part);
  }
  void rows_without(Dim from, Dim to, Part part) const {
    const Part rows{from, to, part.panel, part.panel_end};
    if (!added) return clear(dx, s.depth, s.depth, rows);
    if (added == dx) return;  // the host gave dX its place
    const Dim left = rows.panel * kPanel<T>,
              right = smaller_of(rows.panel_end * kPanel<T>, s.depth);
    for (Dim i = from; i < to; ++i)
      std::copy(added + i * s.depth + left, added + i * s.depth + right, dx + i * s.depth + left);
  }
  // The part of a matrix of so many columns.
  static void clear(T* c, Dim pitch, Dim columns, Part part) {
    const Dim left = part.panel * kPanel<T>,
              right = smaller_of(part.panel_end * kPanel<T>, columns);
    for (Dim i = part.row; i < part.row_end; ++i)
      std::fill(c + i * pitch + left, c + i * pitch + right, T(0));
  }

  // dW = Xᵀ·dY for the columns that are packed.
  void multiply_weights(Part part, const Runs& runs, Dim first, Dim columns) const {
    T* c = dw + first;
    if (runs.count == 0) clear(c, s.columns, columns, part);
    for (int r = 0; r < runs.count; ++r) {
      const Dim from = runs.first[r], depth = runs.end[r] - from;
      const Addend<T> before = r > 0 ? Addend<T>{c, s.columns} : Addend<T>{};
      product(before, part, Columns<T>{x + from * s.depth, s.depth}, depth,
              packed_dy + from * kPanel<T>, s.rows, columns, c, s.columns);
    }
  }
};

}  // namespace

template <class T> void linear_grad(Call& call) {
  const LinearShape s = described_linear(call, "X");
  const Dim block = column_block<T>(s.columns, larger_of(s.rows, s.depth));
  Workspace space;
  const auto packed_dy = space.shared<T>(call.wants("dW") ? packed_size<T>(s.rows, block) : 0);
  const auto packed_w = space.shared<T>(call.wants("dX") ? packed_size<T>(block, s.depth) : 0);
  const auto live = space.shared<unsigned char>(s.rows);
  Workspace::acquire(call, space.bytes());
  const T *dy = call.input<T>("dY").data(), *x = call.input<T>("X").data();
  const Span<T> dx = call.optional_output<T>("dX"), dw = call.optional_output<T>("dW"),
                db = call.optional_output<T>("dB");
  space.open();
  const LinearBackward<T> back{s,
                               dy,
                               x,
                               call.input<T>("W").data(),
                               call.input<T>("added").data(),
                               dx.data(),
                               dw.data(),
                               db.data(),
                               space[packed_dy].data(),
                               space[packed_w].data(),
                               space[live].data()};
  for (Dim first = 0; first < s.columns || first == 0; first += block) {
    const Dim columns = smaller_of(block, s.columns - first);
    back.pack_block(call, first, columns);
    back.multiply_block(call, first, columns);
  }
}
ONNXGRAD_FLOAT_AND_DOUBLE(linear_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
