// Matrix products: one family of register tiles,
// the same source for float and double and every instruction set.
//
//   C[M][N] (+)= A[M][K] · B[K][N]
//
// B is packed into panels, kPanel<T> columns each: panel p holds columns
// [p·kPanel, (p+1)·kPanel) as [K][kPanel], the missing columns of the last
// panel filled with zeros. A is read where it lies, in one of three forms:
//
//   Rows      A[i][k] = data[i·pitch + k]        a row-major matrix
//   Columns   A[i][k] = data[k·pitch + i]        the transpose of one; also a packed tile
//   Gathered  A[i][k] = rows[i][offsets[k]]      a matrix that exists only as addresses:
//                                                the pixels that a convolution reads
//
// Every element of C is one chain of fma over k, in blocks of kDepthBlock<T>: its bits depend
// neither on the tile that it falls into nor on how rows and panels are divided among threads.
//
// The definitions are in gemm.cpp, compiled once for every operator of an instruction set.
#pragma once
#include "core/transpose.h"
#include "core/vector.h"

namespace onnxgrad::ONNXGRAD_ISA {

// Rows of a register tile. 2 registers per row:
// 12·2 of 32 registers, or 6·2 of 16, leave room for B and A.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kTileRows = 12;
#else
constexpr int kTileRows = 6;
#endif
// The same where each row of A has an address of its own:
// more than 10 do not fit into 16 integer registers.
constexpr int kAddressedRows = kTileRows < 10 ? kTileRows : 10;
template <class T> constexpr Dim kPanel = 2 * lanes<T>;
// Depth of a block: a panel's block (16 to 32 KiB) stays
// in the first two cache levels while rows pass over it.
template <class T> constexpr Dim kDepthBlock = 1024 / Dim(sizeof(T));
// Rows of a block: their kDepthBlock columns (1 KiB per row)
// stay in the second-level cache from panel to panel.
constexpr Dim kRowBlock = 240;

template <class T> constexpr Dim panel_count(Dim columns) {
  return (columns + kPanel<T> - 1) / kPanel<T>;
}
// Elements that a packed B[depth][columns] takes.
template <class T> constexpr Dim packed_size(Dim depth, Dim columns) {
  return panel_count<T>(columns) * kPanel<T> * depth;
}

// ---- the three forms of A. tile(i, k) is the part from row i and column k on.

template <class T> struct Rows {
  static constexpr int max_rows = kAddressedRows;
  const T* data;
  Dim pitch;
  Rows tile(Dim i, Dim k) const { return {data + i * pitch + k, pitch}; }
};

template <class T> struct Columns {
  static constexpr int max_rows = kTileRows;
  const T* data;
  Dim pitch;
  Columns tile(Dim i, Dim k) const { return {data + k * pitch + i, pitch}; }
};

template <class T> struct Gathered {
  static constexpr int max_rows = kAddressedRows;
  const T* const* rows;
  const std::int32_t* offsets;
  Gathered tile(Dim i, Dim k) const { return {rows + i, offsets + k}; }
};

// ---- products with all of B

// Which part of a product to compute: rows
// [row, row_end) and panels [panel, panel_end). Divide among threads so.
struct Part {
  Dim row, row_end, panel, panel_end;
};

// What a product is added to: one row everywhere, then another matrix; either may be absent.
template <class T> struct Addend {
  const T* data = nullptr;
  Dim pitch = 0;
  const T* row = nullptr;
  Addend at(Dim i, Dim j) const {
    return {data ? data + i * pitch + j : nullptr, pitch, row ? row + j : nullptr};
  }
};

// C = addend + A · B for one part of C[M][columns]; `packed` is B[depth][columns] in panels. A is
// Rows, Columns or Gathered; it and the addend cover all of C: `part` chooses among the rows.
// depth 0 is a product of zeros.
//
// Of a B with more rows than `depth` its `packed_depth` is given, and `packed` points to the first
// row that counts.
template <class T, class A> void product(Addend<T> addend, Part part, A a, Dim depth,
                                         const T* packed, Dim packed_depth, Dim columns, T* c,
                                         Dim c_pitch);
template <class T, class A> void product(Addend<T> addend, Part part, A a, Dim depth,
                                         const T* packed, Dim columns, T* c, Dim c_pitch) {
  product<T, A>(addend, part, a, depth, packed, depth, columns, c, c_pitch);
}

template <class T, class A>
void set_product(Part part, A a, Dim depth, const T* packed, Dim columns, T* c, Dim c_pitch) {
  product<T, A>(Addend<T>{}, part, a, depth, packed, columns, c, c_pitch);
}
template <class T, class A>
void add_product(Part part, A a, Dim depth, const T* packed, Dim columns, T* c, Dim c_pitch) {
  product<T, A>(Addend<T>{c, c_pitch}, part, a, depth, packed, columns, c, c_pitch);
}
template <class T, class A>
void product(bool add, Part part, A a, Dim depth, const T* packed, Dim columns, T* c, Dim c_pitch) {
  const Addend<T> addend = add ? Addend<T>{c, c_pitch} : Addend<T>{};
  product<T, A>(addend, part, a, depth, packed, columns, c, c_pitch);
}

// C[rows][columns] (+)= A · one panel;  1 <= rows <= A::max_rows, 1 <= columns <= kPanel.
template <class T, class A>
void panel_tile(bool add, A a, Dim rows, Dim depth, const T* panel, T* c, Dim c_pitch, Dim columns);

// Cuts `rows` into the fewest tiles, of nearly equal height
// (16 = 8 + 8, not 12 + 4); calls body(first, count).
template <int max_rows, class F> ONNXGRAD_INLINE void for_row_tiles(Dim first, Dim last, F&& body) {
  Dim tiles = (last - first + max_rows - 1) / max_rows;
  for (; tiles > 0; --tiles) {
    const Dim count = (last - first + tiles - 1) / tiles;
    body(first, count);
    first += count;
  }
}

// ---- packing

// Panels that are packed side by side: a row of B is read over 1 KiB, which the processor foresees,
// and not by lines from other pages: two thirds of the time where B comes from memory.
constexpr Dim kPackedTogether = 8;
// Rows [part.row, part.row_end) of the panels of `part`, of B[depth][columns] given row-major:
// B[k][j] = b[k·pitch + j].
template <class T>
void pack_part(const T* b, Dim pitch, Dim depth, Dim columns, T* packed, Part part);
// Panels [first, last).
template <class T>
void pack_panels(const T* b, Dim pitch, Dim depth, Dim columns, T* packed, Dim first, Dim last) {
  pack_part(b, pitch, depth, columns, packed, Part{0, depth, first, last});
}
template <class T> void pack(const T* b, Dim pitch, Dim depth, Dim columns, T* packed) {
  pack_panels(b, pitch, depth, columns, packed, 0, panel_count<T>(columns));
}

// Panels [first, last) of B[depth][columns], given as its transpose: B[k][j] = b[j·pitch + k].
template <class T> void pack_transposed_panels(const T* b, Dim pitch, Dim depth, Dim columns,
                                               T* packed, Dim first, Dim last);
template <class T> void pack_transposed(const T* b, Dim pitch, Dim depth, Dim columns, T* packed) {
  pack_transposed_panels(b, pitch, depth, columns, packed, 0, panel_count<T>(columns));
}

}  // namespace onnxgrad::ONNXGRAD_ISA
