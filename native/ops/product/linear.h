// A linear layer, Y = X·W + B with W[K, N], forward and backward, on the register tiles of
// core/gemm.h.
//
//   linear.h             how a product is cut into pieces, and packed
//   linear_training.cpp  Y
//   linear_grad.cpp      dX = dY·Wᵀ, dW = Xᵀ·dY, dB = Σ dY, all in one call
//
// The columns of W are taken a block at a time, so that what is packed stays within the working
// memory.
#pragma once
#include "core/gemm.h"
#include "core/reduce.h"
#include "core/workspace.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

// Bytes of one packed matrix.
constexpr Dim kMostPacked = Dim(24) << 20;
// Multiplications of a piece: about 20 µs, above the cost of waking a thread.
constexpr Dim kProductGrain = Dim(1) << 20;
// Pieces that a large product is cut into: enough for many cores, whatever their number.
constexpr Dim kProductPieces = 128;
// Rows of a piece: several register tiles.
constexpr Dim kLeastRows = 4 * kTileRows;

struct LinearShape {
  Dim rows, depth, columns;  // of X; K; N
};

inline LinearShape described_linear(const Call& call, const char* rows_of) {
  const Shape& x = call.shape(rows_of);
  return {x.product(0, x.rank() - 1), call.dim("K"), call.dim("N")};
}

// Columns of W that are packed at once, whole panels. `tallest` is the number of rows of what is
// packed.
template <class T> Dim column_block(Dim columns, Dim tallest) {
  const Dim most = kMostPacked / (larger_of(1, tallest) * Dim(sizeof(T)));
  const Dim blocks = divide_up(columns, larger_of(kPanel<T>, most / kPanel<T> * kPanel<T>));
  return larger_of(1, divide_up(divide_up(columns, larger_of(1, blocks)), kPanel<T>)) * kPanel<T>;
}

// C[rows][columns] in pieces: blocks of rows, each by a few panels. Cut by shape alone.
template <class T> struct ProductCuts {
  Dim rows, panels, row_cuts, panel_cuts;

  static ProductCuts of(Dim rows, Dim depth, Dim columns, Dim least_rows = kLeastRows) {
    const Dim panels = panel_count<T>(columns), work = rows * depth * columns;
    const Dim pieces = smaller_of(kProductPieces, larger_of(1, work / kProductGrain));
    // few panels: lower blocks of rows instead, as long as a panel is worth reading for them
    const Dim wanted = smaller_of(divide_up(pieces, larger_of(1, panels)), rows / least_rows);
    const Dim row_cuts = smaller_of(larger_of(wanted, divide_up(larger_of(1, rows), kRowBlock)),
                                    larger_of(1, pieces));
    // a panel each where most pieces would be one panel and the others two
    const Dim cuts = larger_of(1, smaller_of(panels, divide_up(pieces, row_cuts)));
    return {rows, panels, row_cuts, 2 * panels <= 3 * cuts ? larger_of(1, panels) : cuts};
  }
  Dim count() const { return row_cuts * panel_cuts; }
  // Pieces of the same panels follow each other: a core reads them again from its own cache.
  Part part(Dim piece) const {
    const Dim r = piece % row_cuts, p = piece / row_cuts;
    return {rows * r / row_cuts, rows * (r + 1) / row_cuts, panels * p / panel_cuts,
            panels * (p + 1) / panel_cuts};
  }
};

// Elements that one piece of packing takes.
constexpr Dim kPackedGrain = Dim(1) << 13;

// B[depth][columns] in pieces of packing: some rows of a few panels side by side.
template <class T> struct PackingCuts {
  Dim depth, panels, depth_cuts, panel_cuts;

  static PackingCuts of(Dim depth, Dim columns) {
    const Dim panels = panel_count<T>(columns), width = smaller_of(panels, kPackedTogether);
    const Dim rows = larger_of(1, kPackedGrain / (kPanel<T> * larger_of(1, width)));
    return {depth, panels, divide_up(depth, rows), divide_up(panels, kPackedTogether)};
  }
  Dim count() const { return depth_cuts * panel_cuts; }
  Part part(Dim piece) const {
    const Dim d = piece % depth_cuts, p = piece / depth_cuts * kPackedTogether;
    return {depth * d / depth_cuts, depth * (d + 1) / depth_cuts, p,
            smaller_of(p + kPackedTogether, panels)};
  }
};

}  // namespace onnxgrad::ONNXGRAD_ISA
