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
#pragma once
#include <utility>

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

// How R rows of A are read: A[i][k] = at(i, step(k)).
template <class A, int R> struct Reader;

template <class T, int R> struct Reader<Rows<T>, R> {
  const T* row[R];
  ONNXGRAD_INLINE explicit Reader(Rows<T> a) {
    for (int i = 0; i < R; ++i) row[i] = a.data + i * a.pitch;
  }
  ONNXGRAD_INLINE Dim step(Dim k) const { return k; }
  ONNXGRAD_INLINE T at(int i, Dim step) const { return row[i][step]; }
};

template <class T, int R> struct Reader<Columns<T>, R> {
  const T* data;
  Dim pitch;
  ONNXGRAD_INLINE explicit Reader(Columns<T> a) : data(a.data), pitch(a.pitch) {}
  ONNXGRAD_INLINE Dim step(Dim k) const { return k * pitch; }
  ONNXGRAD_INLINE T at(int i, Dim step) const { return data[step + i]; }
};

template <class T, int R> struct Reader<Gathered<T>, R> {
  const T* row[R];
  const std::int32_t* offsets;
  ONNXGRAD_INLINE explicit Reader(Gathered<T> a) : offsets(a.offsets) {
    for (int i = 0; i < R; ++i) row[i] = a.rows[i];
  }
  ONNXGRAD_INLINE Dim step(Dim k) const { return offsets[k]; }
  ONNXGRAD_INLINE T at(int i, Dim step) const { return row[i][step]; }
};

// ---- the register tile

// C[R][columns] (+)= A[R][depth] · B[depth][columns], columns <= V·lanes.
// Register v of a row of B lies in panel v/2, `panel_pitch` elements after the one before it.
// V = 1 and 2 are for many rows; 4 and 8 for so few rows that fewer registers
// would wait for each other (an fma takes 4 cycles, and 2 can begin in each).
template <bool add, int R, int V, class T, class A>
void tile_product(A a, Dim depth, const T* b, Dim panel_pitch, T* c, Dim c_pitch, Dim columns) {
  const Reader<A, R> reader(a);
  Vec<T> sum[R][V];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) sum[i][v] = Vec<T>{};
  for (Dim k = 0; k < depth; ++k, b += kPanel<T>) {
    const Dim step = reader.step(k);
    Vec<T> b_row[V];
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) b_row[v] = load<T>(b + (v / 2) * panel_pitch + (v % 2) * lanes<T>);
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      const Vec<T> a_i = splat<T>(reader.at(i, step));
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) sum[i][v] = fma(a_i, b_row[v], sum[i][v]);
    }
  }
  if (columns == V * lanes<T>) {
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) {
        T* at = c + i * c_pitch + v * lanes<T>;
        store<T>(at, add ? load<T>(at) + sum[i][v] : sum[i][v]);
      }
    return;
  }
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) {
      const Dim left = columns - v * lanes<T>, count = left < lanes<T> ? left : lanes<T>;
      T* at = c + i * c_pitch + v * lanes<T>;
      if (count > 0)
        store_some<T>(at, add ? load_some<T>(at, count) + sum[i][v] : sum[i][v], count);
    }
}

namespace detail {

template <class T, class A> using TileFunction = void (*)(A, Dim, const T*, Dim, T*, Dim, Dim);

// The tile functions for 1 to max_rows rows.
template <bool add, int V, class T, class A, int... R>
ONNXGRAD_INLINE TileFunction<T, A> tile_function(Dim rows, std::integer_sequence<int, R...>) {
  static constexpr TileFunction<T, A> functions[] = {&tile_product<add, R + 1, V, T, A>...};
  return functions[rows - 1];
}
template <bool add, int V, int max_rows, class T, class A>
ONNXGRAD_INLINE TileFunction<T, A> tile_function(Dim rows) {
  return tile_function<add, V, T, A>(rows, std::make_integer_sequence<int, max_rows>());
}

}  // namespace detail

// C[rows][columns] (+)= A · one panel;  1 <= rows <= A::max_rows, 1 <= columns <= kPanel.
template <bool add, class T, class A> ONNXGRAD_INLINE void panel_tile(A a, Dim rows, Dim depth,
                                                                      const T* panel, T* c,
                                                                      Dim c_pitch, Dim columns) {
  const auto function = columns <= lanes<T>
                            ? detail::tile_function<add, 1, A::max_rows, T, A>(rows)
                            : detail::tile_function<add, 2, A::max_rows, T, A>(rows);
  function(a, depth, panel, 0, c, c_pitch, columns);
}

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

// ---- products with all of B

// Which part of a product to compute: rows
// [row, row_end) and panels [panel, panel_end). Divide among threads so.
struct Part {
  Dim row, row_end, panel, panel_end;
};

namespace detail {

// One to three rows: the panels are read once and nothing
// is reused, so as many of them as possible side by side.
template <bool add, int V, class T, class A> void product_of_few_rows(Part part, A a, Dim depth,
                                                                      const T* packed, Dim columns,
                                                                      T* c, Dim c_pitch) {
  constexpr Dim together = V / 2;
  const Dim rows = part.row_end - part.row, pitch = depth * kPanel<T>;
  const auto function = tile_function<add, V, V == 8 ? 1 : 3, T, A>(rows);
  Dim p = part.panel;
  for (; p + together <= part.panel_end && p * kPanel<T> + V * lanes<T> <= columns; p += together)
    function(a.tile(part.row, 0), depth, packed + p * pitch, pitch,
             c + part.row * c_pitch + p * kPanel<T>, c_pitch, V * lanes<T>);
  for (; p < part.panel_end; ++p) {
    const Dim left = columns - p * kPanel<T>;
    panel_tile<add>(a.tile(part.row, 0), rows, depth, packed + p * pitch,
                    c + part.row * c_pitch + p * kPanel<T>, c_pitch,
                    left < kPanel<T> ? left : kPanel<T>);
  }
}

// The same part of C, one block of depth:
// columns [k, k + depth) of A against the same rows of every panel.
template <bool add, class T, class A> void product_block(Part part, A a, Dim k, Dim depth,
                                                         const T* packed, Dim panel_pitch,
                                                         Dim columns, T* c, Dim c_pitch) {
  for (Dim p = part.panel; p < part.panel_end; ++p) {
    const T* panel = packed + p * panel_pitch + k * kPanel<T>;
    const Dim left = columns - p * kPanel<T>;
    for_row_tiles<A::max_rows>(part.row, part.row_end, [&](Dim row, Dim rows) {
      panel_tile<add>(a.tile(row, k), rows, depth, panel, c + row * c_pitch + p * kPanel<T>,
                      c_pitch, left < kPanel<T> ? left : kPanel<T>);
    });
  }
}

template <bool add, class T, class A>
void product(Part part, A a, Dim depth, const T* packed, Dim columns, T* c, Dim c_pitch) {
  const Dim rows = part.row_end - part.row;
  if (rows <= 0 || part.panel >= part.panel_end) return;
  if (rows == 1 && depth <= kDepthBlock<T>)
    return product_of_few_rows<add, 8>(part, a, depth, packed, columns, c, c_pitch);
  if (rows <= 3 && depth <= kDepthBlock<T>)
    return product_of_few_rows<add, 4>(part, a, depth, packed, columns, c, c_pitch);
  const Dim panel_pitch = depth * kPanel<T>;
  const Dim blocks = (rows + kRowBlock - 1) / kRowBlock;
  for (Dim block = 0; block < blocks; ++block) {
    const Part rows_part{part.row + rows * block / blocks, part.row + rows * (block + 1) / blocks,
                         part.panel, part.panel_end};
    for (Dim k = 0; k < depth || k == 0; k += kDepthBlock<T>) {
      const Dim count = depth - k < kDepthBlock<T> ? depth - k : kDepthBlock<T>;
      if (add || k > 0)
        product_block<true>(rows_part, a, k, count, packed, panel_pitch, columns, c, c_pitch);
      else
        product_block<false>(rows_part, a, k, count, packed, panel_pitch, columns, c, c_pitch);
    }
  }
}

}  // namespace detail

// C = A · B for one part of C[M][columns]; `packed` is B[depth][columns] in panels. A is Rows,
// Columns or Gathered, and covers all rows of C: `part` chooses among them. depth 0 gives zeros.
template <class T, class A>
void set_product(Part part, A a, Dim depth, const T* packed, Dim columns, T* c, Dim c_pitch) {
  detail::product<false>(part, a, depth, packed, columns, c, c_pitch);
}
// C += A · B, otherwise the same.
template <class T, class A>
void add_product(Part part, A a, Dim depth, const T* packed, Dim columns, T* c, Dim c_pitch) {
  detail::product<true>(part, a, depth, packed, columns, c, c_pitch);
}

// ---- packing

// Panels [first, last) of B[depth][columns], given row-major: B[k][j] = b[k·pitch + j].
template <class T>
void pack_panels(const T* b, Dim pitch, Dim depth, Dim columns, T* packed, Dim first, Dim last) {
  for (Dim p = first; p < last; ++p) {
    T* out = packed + p * depth * kPanel<T>;
    const T* from = b + p * kPanel<T>;
    const Dim left = columns - p * kPanel<T>;
    if (left >= kPanel<T>) {
      for (Dim k = 0; k < depth; ++k, out += kPanel<T>, from += pitch) {
        store<T>(out, load<T>(from));
        store<T>(out + lanes<T>, load<T>(from + lanes<T>));
      }
      continue;
    }
    const Dim low = left < lanes<T> ? left : lanes<T>, high = left - low;
    for (Dim k = 0; k < depth; ++k, out += kPanel<T>, from += pitch) {
      store<T>(out, load_some<T>(from, low));
      store<T>(out + lanes<T>, high > 0 ? load_part<T>(from + lanes<T>, high) : Vec<T>{});
    }
  }
}
template <class T> void pack(const T* b, Dim pitch, Dim depth, Dim columns, T* packed) {
  pack_panels(b, pitch, depth, columns, packed, 0, panel_count<T>(columns));
}

// Panels [first, last) of B[depth][columns], given as its transpose: B[k][j] = b[j·pitch + k].
template <class T> void pack_transposed_panels(const T* b, Dim pitch, Dim depth, Dim columns,
                                               T* packed, Dim first, Dim last) {
  for (Dim p = first; p < last; ++p) {
    T* out = packed + p * depth * kPanel<T>;
    const Dim left = columns - p * kPanel<T>, width = left < kPanel<T> ? left : kPanel<T>;
    transpose(b + p * kPanel<T> * pitch, pitch, width, depth, out, kPanel<T>);
    if (width < kPanel<T>)
      for (Dim k = 0; k < depth; ++k)
        for (Dim j = width; j < kPanel<T>; ++j) out[k * kPanel<T> + j] = T(0);
  }
}
template <class T> void pack_transposed(const T* b, Dim pitch, Dim depth, Dim columns, T* packed) {
  pack_transposed_panels(b, pitch, depth, columns, packed, 0, panel_count<T>(columns));
}

}  // namespace onnxgrad::ONNXGRAD_ISA
