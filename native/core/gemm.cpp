// The products and packers of gemm.h, for float and double and the three forms of A.
#include "core/gemm.h"

#include <utility>

namespace onnxgrad::ONNXGRAD_ISA {
namespace {

constexpr Dim smaller(Dim a, Dim b) {
  return a < b ? a : b;
}

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

constexpr Dim kFetchSteps = 16;  // ahead: about 400 cycles
// Lines that lie a multiple of 2 KiB apart share few places of the first cache, and push out those
// that were fetched too early: with 6 rows a fifth slower.
constexpr Dim kFetchStepsOfColliding = kTileRows > 6 ? kFetchSteps : 4;

template <class T, int R> struct Reader<Columns<T>, R> {
  const T* data;
  Dim pitch, ahead;
  ONNXGRAD_INLINE explicit Reader(Columns<T> a)
      : data(a.data),
        pitch(a.pitch),
        ahead((pitch * Dim(sizeof(T)) % 2048 ? kFetchSteps : kFetchStepsOfColliding) * pitch + R -
              1) {}
  // Every step reads another line, mostly of another page, which the processor does not foresee.
  ONNXGRAD_INLINE Dim step(Dim k) const {
    __builtin_prefetch(data + k * pitch + ahead);
    return k * pitch;
  }
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

// From this depth on a tile of C is fetched before the sums begin, and is there when they end.
// Rows of C that lie a multiple of 4 KiB apart share few places of the first cache: seldom in it.
constexpr Dim kFetchDepth = 64;

// C[R][columns] = addend + A[R][depth] · B[depth][columns], columns <= V·lanes.
// Register v of a row of B lies in panel v/2, `panel_pitch` elements after the one before it.
// V = 1 and 2 are for many rows; 4 and 8 for so few rows that fewer registers
// would wait for each other (an fma takes 4 cycles, and 2 can begin in each).
template <int R, int V, class T, class A> void tile_product(Addend<T> addend, A a, Dim depth,
                                                            const T* b, Dim panel_pitch, T* c,
                                                            Dim c_pitch, Dim columns) {
  const Reader<A, R> reader(a);
  Vec<T> sum[R][V];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) sum[i][v] = Vec<T>{};
  if (R > 3 && depth >= kFetchDepth)
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) __builtin_prefetch(c + i * c_pitch + v * lanes<T>, 1);
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
    if (addend.row)
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) {
        const Vec<T> row = load<T>(addend.row + v * lanes<T>);
#pragma GCC unroll 16
        for (int i = 0; i < R; ++i) sum[i][v] = row + sum[i][v];
      }
    if (addend.data)
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i)
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v)
          sum[i][v] = load<T>(addend.data + i * addend.pitch + v * lanes<T>) + sum[i][v];
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) store<T>(c + i * c_pitch + v * lanes<T>, sum[i][v]);
    return;
  }
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) {
      const Dim left = columns - v * lanes<T>, count = left < lanes<T> ? left : lanes<T>;
      if (count <= 0) continue;
      const Addend<T> more = addend.at(i, v * lanes<T>);
      if (more.row) sum[i][v] = load_some<T>(more.row, count) + sum[i][v];
      if (more.data) sum[i][v] = load_some<T>(more.data, count) + sum[i][v];
      store_some<T>(c + i * c_pitch + v * lanes<T>, sum[i][v], count);
    }
}

template <class T, class A>
using TileFunction = void (*)(Addend<T>, A, Dim, const T*, Dim, T*, Dim, Dim);

// The tile functions for 1 to max_rows rows.
template <int V, class T, class A, int... R>
TileFunction<T, A> tile_function(Dim rows, std::integer_sequence<int, R...>) {
  static constexpr TileFunction<T, A> functions[] = {&tile_product<R + 1, V, T, A>...};
  return functions[rows - 1];
}
template <int V, int max_rows, class T, class A> TileFunction<T, A> tile_function(Dim rows) {
  return tile_function<V, T, A>(rows, std::make_integer_sequence<int, max_rows>());
}

// C[rows][columns] = addend + A · one panel;  1 <= rows <= A::max_rows, 1 <= columns <= kPanel.
template <class T, class A> void tile_of_panel(Addend<T> addend, A a, Dim rows, Dim depth,
                                               const T* panel, T* c, Dim c_pitch, Dim columns) {
  const auto function = columns <= lanes<T> ? tile_function<1, A::max_rows, T, A>(rows)
                                            : tile_function<2, A::max_rows, T, A>(rows);
  function(addend, a, depth, panel, 0, c, c_pitch, columns);
}

// One to three rows: the panels are read once and nothing
// is reused, so as many of them as possible side by side.
template <int V, class T, class A> void product_of_few_rows(Addend<T> addend, Part part, A a,
                                                            Dim depth, const T* packed, Dim pitch,
                                                            Dim columns, T* c, Dim c_pitch) {
  constexpr Dim together = V / 2;
  const Dim rows = part.row_end - part.row;
  const auto function = tile_function<V, V == 8 ? 1 : 3, T, A>(rows);
  Dim p = part.panel;
  for (; p + together <= part.panel_end && p * kPanel<T> + V * lanes<T> <= columns; p += together)
    function(addend.at(part.row, p * kPanel<T>), a.tile(part.row, 0), depth, packed + p * pitch,
             pitch, c + part.row * c_pitch + p * kPanel<T>, c_pitch, V * lanes<T>);
  for (; p < part.panel_end; ++p) {
    const Dim left = columns - p * kPanel<T>;
    tile_of_panel<T, A>(addend.at(part.row, p * kPanel<T>), a.tile(part.row, 0), rows, depth,
                        packed + p * pitch, c + part.row * c_pitch + p * kPanel<T>, c_pitch,
                        left < kPanel<T> ? left : kPanel<T>);
  }
}

// The same part of C, one block of depth:
// columns [k, k + depth) of A against the same rows of every panel.
template <class T, class A> void product_block(Addend<T> addend, Part part, A a, Dim k, Dim depth,
                                               const T* packed, Dim panel_pitch, Dim columns, T* c,
                                               Dim c_pitch) {
  for (Dim p = part.panel; p < part.panel_end; ++p) {
    const T* panel = packed + p * panel_pitch + k * kPanel<T>;
    const Dim left = columns - p * kPanel<T>;
    for_row_tiles<A::max_rows>(part.row, part.row_end, [&](Dim row, Dim rows) {
      tile_of_panel<T, A>(addend.at(row, p * kPanel<T>), a.tile(row, k), rows, depth, panel,
                          c + row * c_pitch + p * kPanel<T>, c_pitch,
                          left < kPanel<T> ? left : kPanel<T>);
    });
  }
}

}  // namespace

template <class T, class A> void panel_tile(bool add, A a, Dim rows, Dim depth, const T* panel,
                                            T* c, Dim c_pitch, Dim columns) {
  const Addend<T> addend = add ? Addend<T>{c, c_pitch} : Addend<T>{};
  tile_of_panel<T, A>(addend, a, rows, depth, panel, c, c_pitch, columns);
}

template <class T, class A> void product(Addend<T> addend, Part part, A a, Dim depth,
                                         const T* packed, Dim packed_depth, Dim columns, T* c,
                                         Dim c_pitch) {
  const Dim rows = part.row_end - part.row, panel_pitch = packed_depth * kPanel<T>;
  if (rows <= 0 || part.panel >= part.panel_end) return;
  if (rows == 1 && depth <= kDepthBlock<T>)
    return product_of_few_rows<8>(addend, part, a, depth, packed, panel_pitch, columns, c, c_pitch);
  if (rows <= 3 && depth <= kDepthBlock<T>)
    return product_of_few_rows<4>(addend, part, a, depth, packed, panel_pitch, columns, c, c_pitch);
  const Dim blocks = (rows + kRowBlock - 1) / kRowBlock;
  for (Dim block = 0; block < blocks; ++block) {
    const Part rows_part{part.row + rows * block / blocks, part.row + rows * (block + 1) / blocks,
                         part.panel, part.panel_end};
    for (Dim k = 0; k < depth || k == 0; k += kDepthBlock<T>) {
      const Dim count = depth - k < kDepthBlock<T> ? depth - k : kDepthBlock<T>;
      product_block(k > 0 ? Addend<T>{c, c_pitch} : addend, rows_part, a, k, count, packed,
                    panel_pitch, columns, c, c_pitch);
    }
  }
}

template <class T>
void pack_part(const T* b, Dim pitch, Dim depth, Dim columns, T* packed, Part part) {
  const Dim whole = smaller(part.panel_end, columns / kPanel<T>);
  for (Dim first = part.panel; first < whole; first += kPackedTogether) {
    const Dim count = smaller(kPackedTogether, whole - first);
    for (Dim k = part.row; k < part.row_end; ++k) {
      const T* from = b + k * pitch + first * kPanel<T>;
      T* out = packed + (first * depth + k) * kPanel<T>;
      for (Dim p = 0; p < count; ++p, from += kPanel<T>, out += depth * kPanel<T>) {
        store<T>(out, load<T>(from));
        store<T>(out + lanes<T>, load<T>(from + lanes<T>));
      }
    }
  }
  if (part.panel_end <= whole || part.panel >= part.panel_end) return;
  const Dim left = columns - whole * kPanel<T>, low = smaller(left, lanes<T>), high = left - low;
  for (Dim k = part.row; k < part.row_end; ++k) {
    const T* from = b + k * pitch + whole * kPanel<T>;
    T* out = packed + (whole * depth + k) * kPanel<T>;
    store<T>(out, load_some<T>(from, low));
    store<T>(out + lanes<T>, high > 0 ? load_part<T>(from + lanes<T>, high) : Vec<T>{});
  }
}
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

#define ONNXGRAD_PRODUCTS(T, A)                                                      \
  template void product<T, A>(Addend<T>, Part, A, Dim, const T*, Dim, Dim, T*, Dim); \
  template void panel_tile<T, A>(bool, A, Dim, Dim, const T*, T*, Dim, Dim);
#define ONNXGRAD_PACKERS(T)                                      \
  template void pack_part<T>(const T*, Dim, Dim, Dim, T*, Part); \
  template void pack_transposed_panels<T>(const T*, Dim, Dim, Dim, T*, Dim, Dim);

ONNXGRAD_PRODUCTS(float, Rows<float>)
ONNXGRAD_PRODUCTS(float, Columns<float>)
ONNXGRAD_PRODUCTS(float, Gathered<float>)
ONNXGRAD_PRODUCTS(double, Rows<double>)
ONNXGRAD_PRODUCTS(double, Columns<double>)
ONNXGRAD_PRODUCTS(double, Gathered<double>)
ONNXGRAD_PACKERS(float)
ONNXGRAD_PACKERS(double)

}  // namespace onnxgrad::ONNXGRAD_ISA
