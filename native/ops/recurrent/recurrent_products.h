// The matrix products that LSTM and GRU share, and how their operands are laid out.
#pragma once
#include "core/gemm.h"
#include "ops/recurrent/recurrent_program.h"

namespace onnxgrad::ONNXGRAD_ISA {

// ---- layouts

template <class T> constexpr Dim kLine = 64 / Dim(sizeof(T));  // elements of a cache line

// Columns of the forward pass are cut into units of one register.
// A unit of a packed matrix is half a panel.
template <class T> constexpr Dim unit_count(Dim columns) {
  return (columns + lanes<T> - 1) / lanes<T>;
}

// A row length for matrices that are read by columns:
// rows a power of two apart would share cache sets.
template <class T> constexpr Dim pitch_for(Dim columns) {
  return (unit_count<T>(columns) | 1) * lanes<T>;
}

// Unit `unit` of the packed transpose of weights[.][depth]:
// its rows [first, first + width), width <= lanes.
template <class T>
void pack_unit(const T* weights, Dim depth, Dim first, Dim width, T* packed, Dim unit) {
  T* out = packed + unit / 2 * depth * kPanel<T> + unit % 2 * lanes<T>;
  if (width < lanes<T>)
    for (Dim k = 0; k < depth; ++k) store<T>(out + k * kPanel<T>, Vec<T>{});
  if (width > 0) transpose(weights + first * depth, depth, width, depth, out, kPanel<T>);
}

// A tensor [S, D, N, width], or [D, N, width] with t = 0; nullptr where it is absent.
template <class T> struct Tensor {
  T* data;
  Dim width, rows, directions;
  T* row(Dim t, Dim d, Dim n) const { return data + ((t * directions + d) * rows + n) * width; }
  explicit operator bool() const { return data != nullptr; }
};

template <class T> void copy_row(const T* from, Dim count, T* to) {
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(T));
}
template <class T> void clear(T* data, Dim count) {
  std::memset(data, 0, static_cast<std::size_t>(count) * sizeof(T));
}

template <class T> void clear_output(Call& call, const char* name) {
  const Span<T> out = call.optional_output<T>(name);
  if (out && out.size() > 0) clear(out.data(), out.size());
}

// Past a row's length the outputs of the forward pass are zero.
template <class T>
void clear_padding(Call& call, Tensor<T> kept, const Lengths& lengths, Dim steps) {
  if (!kept || !lengths.ragged()) return;
  call.parallel_ranges(steps, 8, [&](Dim begin, Dim end) {
    for (Dim t = begin; t < end; ++t)
      for (Dim d = 0; d < kept.directions; ++d)
        for (Dim k = lengths.active(t); k < kept.rows; ++k)
          clear(kept.row(t, d, lengths.source(k)), kept.width);
  });
}
// A row without any step has zeros as its final state, not its initial one: as in onnxruntime.
template <class T> void clear_empty_rows(Tensor<T> final_state, const Lengths& lengths) {
  if (!final_state) return;
  for (Dim d = 0; d < final_state.directions; ++d)
    for (Dim k = lengths.nonempty(); k < final_state.rows; ++k)
      clear(final_state.row(0, d, lengths.source(k)), final_state.width);
}

// body(row, t, k) for every row of the chunk:
// row counts them, k is the place in the order of lengths.
template <class F>
ONNXGRAD_INLINE void for_rows(const Lengths& lengths, const Chunk& chunk, F&& body) {
  Dim row = 0;
  for (Dim t = chunk.t; t < chunk.t_end; ++t)
    for (Dim k = 0, active = lengths.active(t); k < active; ++k) body(row++, t, k);
}

// A row that is read where it lies, and one that is the product of two.
template <class T> struct PlainRow {
  const T* data;
  ONNXGRAD_INLINE Vec<T> load(Dim column, Dim width) const {
    return load_some<T>(data + column, width);
  }
};
template <class T> struct ProductRow {
  const T *a, *b;
  ONNXGRAD_INLINE Vec<T> load(Dim column, Dim width) const {
    return load_some<T>(a + column, width) * load_some<T>(b + column, width);
  }
};

// Panels [first, last) of a matrix whose rows lie anywhere: row_of(t, k) is one.
template <class T, class RowOf> void pack_rows(const Lengths& lengths, const Chunk& chunk,
                                               Dim columns, T* packed, Dim first, Dim last,
                                               RowOf row_of) {
  for (Dim p = first; p < last; ++p) {
    T* out = packed + p * chunk.rows * kPanel<T>;
    const Dim column = p * kPanel<T>, left = columns - column, low = std::min(left, lanes<T>);
    const Dim high = std::min(std::max(left - lanes<T>, Dim(0)), lanes<T>);
    for_rows(lengths, chunk, [&](Dim, Dim t, Dim k) ONNXGRAD_LAMBDA {
      const auto row = row_of(t, k);
      store<T>(out, row.load(column, low));
      store<T>(out + lanes<T>, high > 0 ? row.load(column + lanes<T>, high) : Vec<T>{});
      out += kPanel<T>;
    });
  }
}

// Rows [at, at + rows) of panel p of a packed matrix of `depth` rows, from b[rows][columns].
template <class T>
void pack_panel_rows(const T* b, Dim columns, Dim rows, T* packed, Dim depth, Dim p, Dim at) {
  pack_panels(b + p * kPanel<T>, columns, rows, columns - p * kPanel<T>,
              packed + (p * depth + at) * kPanel<T>, 0, 1);
}

// ---- products with the state of a step

// A matrix B that rows of state are multiplied by. For more than one row it must be packed; a
// single row reads it once, and may read it where it lies.
template <class T> struct StateWeights {
  const T* data;
  Dim row_pitch, panel_pitch;
};
template <class T> StateWeights<T> packed_weights(const T* packed, Dim depth) {
  return {packed, kPanel<T>, depth * kPanel<T>};
}
template <class T> StateWeights<T> weights_in_place(const T* b, Dim columns) {
  return {b, columns, kPanel<T>};
}

namespace detail {

// One row of C, `panels` panels of it, summed in `chains` chains over the depth.
// `step` and `row_pitch` lead from an element of the row,
// and a row of B, to the next; negative ones lead backwards.
template <bool add, int panels, int chains, class T>
ONNXGRAD_INLINE void row_tile(const T* a, Dim step, Dim depth, const T* b, Dim row_pitch,
                              Dim panel_pitch, T* c, Dim columns) {
  constexpr int registers = 2 * panels;
  Vec<T> sum[chains][registers] = {};
  const auto add_row = [&](Vec<T>* sums) ONNXGRAD_LAMBDA {
#pragma GCC unroll 8
    for (int v = 0; v < registers; ++v)
      sums[v] = fma(splat<T>(*a), load<T>(b + v / 2 * panel_pitch + v % 2 * lanes<T>), sums[v]);
    a += step, b += row_pitch;
  };
  Dim k = 0;
  for (; k + chains <= depth; k += chains)
#pragma GCC unroll 4
    for (int chain = 0; chain < chains; ++chain) add_row(sum[chain]);
  for (; k < depth; ++k) add_row(sum[0]);
#pragma GCC unroll 8
  for (int v = 0; v < registers; ++v) {
    const Dim width = std::min(columns - v * lanes<T>, lanes<T>);
    if (width <= 0) return;
    Vec<T> total = sum[0][v];
#pragma GCC unroll 4
    for (int chain = 1; chain < chains; ++chain) total += sum[chain][v];
    T* out = c + v * lanes<T>;
    store_some<T>(out, add ? load_some<T>(out, width) + total : total, width);
  }
}

// Panels [p, p + panels) of one row of C, with B from its first row to its last or `backwards`.
template <bool add, int panels, class T>
ONNXGRAD_INLINE void row_product(const T* a, Dim depth, StateWeights<T> b, Dim p, Dim columns, T* c,
                                 bool backwards) {
  const Dim last = backwards && depth > 0 ? depth - 1 : 0, sign = backwards ? -1 : 1;
  row_tile<add, panels, 4 / panels>(
      a + last, sign, depth, b.data + p * b.panel_pitch + last * b.row_pitch, sign * b.row_pitch,
      b.panel_pitch, c + p * kPanel<T>, columns - p * kPanel<T>);
}

}  // namespace detail

// C (+)= A · B for part of C, as set_product and add_product do, for as few rows as a batch may
// have. A single row uses B once, so what counts is the number of loads in flight: eight sums
// side by side. Where B is little larger than the first-level cache, a step that reads it in the
// opposite order of the step before (`backwards`) finds half of it there.
template <bool add, class T> void state_product(Part part, Rows<T> a, Dim depth, StateWeights<T> b,
                                                Dim columns, T* c, Dim c_pitch, bool backwards) {
  if (part.row_end - part.row != 1)
    return product(add, part, a, depth, b.data, columns, c, c_pitch);
  const T* row = a.data + part.row * a.pitch;
  T* out = c + part.row * c_pitch;
  const Dim panels = part.panel_end - part.panel;
  if (panels % 2 != 0 && backwards)
    detail::row_product<add, 1>(row, depth, b, part.panel_end - 1, columns, out, true);
  for (Dim i = 0; i + 2 <= panels; i += 2)
    detail::row_product<add, 2>(row, depth, b,
                                part.panel + (backwards ? panels / 2 * 2 - 2 - i : i), columns, out,
                                backwards);
  if (panels % 2 != 0 && !backwards)
    detail::row_product<add, 1>(row, depth, b, part.panel_end - 1, columns, out, false);
}

// ---- products of few rows with weights that are used once

// Packing weights costs as much as kPackWork rows of products with them.
// Few rows do without: they become the columns of the transposed product,
// which reads the weights where they lie. Its unused lanes must cost less than the packing.
template <class T> constexpr bool leaves_weights_in_place(Dim rows) {
  return rows <= kPanel<T> && unit_count<T>(rows) * lanes<T> - rows < kPackWork;
}

// out[row][i] (+)= Σ over k of weights[i][k] · packed[k][row], i < count. `packed` is one panel;
// `scratch` has room for count·kPanel elements.
template <bool add, class T, class A> void transposed_product(A weights, Dim count, Dim depth,
                                                              const T* packed, Dim rows, T* scratch,
                                                              T* out, Dim pitch) {
  set_product(Part{0, count, 0, 1}, weights, depth, packed, rows, scratch, kPanel<T>);
  if (!add) return transpose(scratch, kPanel<T>, count, rows, out, pitch);
  for (Dim row = 0; row < rows; ++row)
    for (Dim i = 0; i < count; ++i) out[row * pitch + i] += scratch[i * kPanel<T> + row];
}

// ---- gradients of the weights:  C[gates][columns] (+)= dAᵀ · B, over the rows of a chunk

// Gate columns that are packed together:
// their tiles (1 KiB per column) stay in the second-level cache.
constexpr Dim kGateBlock = 4 * kTileRows;

// Columns [0, count) of dA as tiles of kTileRows: tile i is [rows][kTileRows], read as Columns.
template <class T> void pack_gate_tiles(const T* da, Dim pitch, Dim rows, Dim count, T* tiles) {
  const Dim whole = count / kTileRows * kTileRows;
  for (Dim r = 0; r < rows; ++r, da += pitch) {
    T* out = tiles + r * kTileRows;
    for (Dim i = 0; i < whole; i += kTileRows)
      std::memcpy(out + i * rows, da + i, kTileRows * sizeof(T));
    if (whole < count) copy_row(da + whole, count - whole, out + whole * rows);
  }
}

// One operand B of the product, packed, and the rows of C that belong to the first gate column.
template <class T> struct WeightGradient {
  const T* packed;
  Dim columns;
  T* c;  // nullptr: not wanted
};

struct ColumnRange {
  Dim first, last;
};

// The lines of a row that will soon be read.
template <class T> ONNXGRAD_INLINE void prefetch(const T* row, ColumnRange columns) {
  for (Dim j = columns.first; j < columns.last; j += kLine<T>) __builtin_prefetch(row + j);
}
// C may be larger than the caches, and a tile needs it only after its last product.
template <class T> ONNXGRAD_INLINE void prefetch_tile(const T* c, Dim pitch, Dim rows) {
  for (Dim i = 0; i < rows; ++i)
    for (Dim j = 0; j < kPanel<T>; j += kLine<T>) __builtin_prefetch(c + i * pitch + j, 1);
}

// For `count` <= kGateBlock gate columns, packed by pack_gate_tiles. `add`: C += …
template <class T>
void weight_gradient(const T* tiles, Dim count, Dim rows, WeightGradient<T> g, bool add) {
  if (!g.c) return;
  for (Dim p = 0; p < panel_count<T>(g.columns); ++p) {
    const T* panel = g.packed + p * rows * kPanel<T>;
    const Dim width = std::min(g.columns - p * kPanel<T>, kPanel<T>);
    for (Dim i = 0; i < count; i += kTileRows) {
      const Columns<T> a{tiles + i * rows, kTileRows};
      const Dim height = std::min(count - i, Dim(kTileRows));
      T* c = g.c + i * g.columns + p * kPanel<T>;
      if (add) prefetch_tile(c, g.columns, height);
      panel_tile(add, a, height, rows, panel, c, g.columns, width);
    }
  }
}

// sums[j] (+)= Σ over the rows of dA[row][j]
template <class T>
void column_sums(const T* da, Dim pitch, Dim rows, Dim count, T* sums, bool add) {
  for (Dim j = 0; j < count; j += lanes<T>) {
    const Dim width = std::min(count - j, lanes<T>);
    Vec<T> sum{};
    for (Dim r = 0; r < rows; ++r) sum += load_some<T>(da + r * pitch + j, width);
    store_some<T>(sums + j, add ? load_some<T>(sums + j, width) + sum : sum, width);
  }
}

}  // namespace onnxgrad::ONNXGRAD_ISA
