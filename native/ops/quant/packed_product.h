// Products with a matrix W[N][K] that is kept in small integers: unpacked
// panel by panel into the cache of a core, never as a whole.
//
//   Y[M][N]  = A[M][K] · Wᵀ      forward
//   dA[M][K] = dY[M][N] · W      its input gradient
//
// A `Matrix` has size n() and k(), and row(n, k, count, out), which writes W[n][k … k+count).
#pragma once
#include "core/gemm.h"
#include "core/workspace.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

// Panels that are unpacked together: the rows of the other factor
// pass over them from the second-level cache.
constexpr Dim kUnpackedPanels = 4;

template <class T> struct PackedProduct {
  Dim rows, depth, columns;

  Dim width() const { return kUnpackedPanels * kPanel<T>; }
  Dim pieces() const { return (columns + width() - 1) / width(); }
  // Of one piece: rows that were unpacked, and the same in panels.
  Dim unpacked() const {
    const Dim deep = depth < kDepthBlock<T> ? depth : kDepthBlock<T>;
    return packed_size<T>(deep, columns < width() ? columns : width());
  }
};

// Panels of Wᵀ: columns are rows n of W, depth is k.
template <class T, class Matrix>
void unpack_transposed(const Matrix& w, Dim k, Dim depth, Dim n, Dim count, T* rows, T* panels) {
  for (Dim i = 0; i < count; ++i) w.row(n + i, k, depth, rows + i * depth);
  pack_transposed(rows, depth, depth, count, panels);
}

// Panels of W: columns are k, depth is n.
template <class T, class Matrix>
void unpack_rows(const Matrix& w, Dim n, Dim depth, Dim k, Dim count, T* rows, T* panels) {
  for (Dim i = 0; i < depth; ++i) w.row(n + i, k, count, rows + i * count);
  pack(rows, count, depth, count, panels);
}

// out[rows][columns] = a[rows][depth] · W or Wᵀ.
template <bool transposed, class T, class Matrix>
void set_packed_product(Call& call, Workspace& space, Workspace::Scratch<T> scratch,
                        PackedProduct<T> s, const Matrix& w, const T* a, T* out) {
  call.parallel_for(s.pieces(), [&](Dim piece) {
    const auto mine = space.borrow(scratch);
    T *rows = mine.data(), *panels = rows + s.unpacked();
    const Dim column = piece * s.width();
    const Dim count = s.columns - column < s.width() ? s.columns - column : s.width();
    const Part part{0, s.rows, 0, panel_count<T>(count)};
    for (Dim k = 0; k < s.depth || k == 0; k += kDepthBlock<T>) {
      const Dim depth = s.depth - k < kDepthBlock<T> ? s.depth - k : kDepthBlock<T>;
      if (transposed)
        unpack_transposed(w, k, depth, column, count, rows, panels);
      else
        unpack_rows(w, k, depth, column, count, rows, panels);
      const Rows<T> block{a + k, s.depth};
      if (k == 0)
        set_product(part, block, depth, panels, count, out + column, s.columns);
      else
        add_product(part, block, depth, panels, count, out + column, s.columns);
    }
  });
}

// The sizes that both formats have as attributes.
struct PackedSizes {
  Dim n, k, block;

  static PackedSizes of(const Call& call) {
    const PackedSizes s{call.integer("N"), call.integer("K"), call.integer("block_size")};
    for (const auto& [name, value] : {std::pair{"N", s.n}, {"K", s.k}, {"block_size", s.block}})
      if (value < 1 || value > (Dim(1) << 30))
        call.fail(std::string(name) + " is " + std::to_string(value) +
                  ", expected at least 1 and at most 2^30");
    return s;
  }
};

inline void check_size(const Call& call, const char* input, Dim expected) {
  if (call.shape(input).size() != expected)
    call.fail("input " + std::string(input) + " has " + std::to_string(call.shape(input).size()) +
              " elements, expected " + std::to_string(expected));
}

inline void check_last(const Call& call, const char* input, const char* name, Dim expected) {
  const Shape& shape = call.shape(input);
  if (shape[shape.rank() - 1] != expected)
    call.fail("input " + std::string(input) + " has shape " + to_string(shape) + ", expected " +
              std::to_string(expected) + " columns (attribute " + name + ")");
}

// One operator: `transposed` is the forward product, from [.., K] to [.., N].
template <bool transposed, class T, class Matrix>
void run_packed(Call& call, const Matrix& w, const char* input, const char* output) {
  check_last(call, input, transposed ? "K" : "N", transposed ? w.size.k : w.size.n);
  const Shape& shape = call.shape(input);
  const Dim rows = shape.product(0, shape.rank() - 1);
  const PackedProduct<T> s{rows, transposed ? w.size.k : w.size.n,
                           transposed ? w.size.n : w.size.k};
  call.set_dim("out", s.columns);
  call.end_if_empty();
  Workspace space;
  const auto scratch = space.scratch<T>(2 * s.unpacked(), s.pieces());
  Workspace::acquire(call, space.bytes());
  T* out = call.output<T>(output).data();
  space.open();
  if (rows > 0)
    set_packed_product<transposed>(call, space, scratch, s, w, call.input<T>(input).data(), out);
}

}  // namespace onnxgrad::ONNXGRAD_ISA
