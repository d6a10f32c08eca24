// The matrix products that LSTM and GRU share, and how their operands are laid out.
#pragma once
#include "core/gemm.h"
#include "ops/recurrent_program.h"

namespace onnxgrad::ONNXGRAD_ISA {

// ---- layouts

template <class T> constexpr Dim kLine = 64 / Dim(sizeof(T));  // elements of a cache line

// Columns of the forward pass are cut into units of one register. A unit of a packed matrix is half
// a panel.
template <class T> constexpr Dim unit_count(Dim columns) {
  return (columns + lanes<T> - 1) / lanes<T>;
}

// A row length for matrices that are read by columns: rows a power of two apart would share cache
// sets.
template <class T> constexpr Dim pitch_for(Dim columns) {
  return (unit_count<T>(columns) | 1) * lanes<T>;
}

// Unit `unit` of the packed transpose of weights[.][depth]: its rows [first, first + width), width
// <= lanes.
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
  const Span<T> out = call.output<T>(name);
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

// body(row, t, k) for every row of the chunk: row counts them, k is the place in the order of
// lengths.
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

namespace detail {

// One row of C, `panels` panels of it, summed in `chains` chains over the depth.
template <bool add, int panels, int chains, class T>
ONNXGRAD_INLINE void row_tile(const T* a, Dim depth, const T* b, Dim panel_pitch, T* c,
                              Dim columns) {
  constexpr int registers = 2 * panels;
  Vec<T> sum[chains][registers] = {};
  Dim k = 0;
  for (; k + chains <= depth; k += chains)
#pragma GCC unroll 4
    for (int chain = 0; chain < chains; ++chain)
#pragma GCC unroll 8
      for (int v = 0; v < registers; ++v)
        sum[chain][v] =
            fma(splat<T>(a[k + chain]),
                load<T>(b + v / 2 * panel_pitch + (k + chain) * kPanel<T> + v % 2 * lanes<T>),
                sum[chain][v]);
  for (; k < depth; ++k)
    for (int v = 0; v < registers; ++v)
      sum[0][v] =
          fma(splat<T>(a[k]), load<T>(b + v / 2 * panel_pitch + k * kPanel<T> + v % 2 * lanes<T>),
              sum[0][v]);
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

}  // namespace detail

// C (+)= A · B for part of C, as set_product and add_product do, for as few rows as a batch may
// have. A single row has no use for B but one, so it is a matter of loads in flight: eight sums
// side by side.
template <bool add, class T> void state_product(Part part, Rows<T> a, Dim depth, const T* packed,
                                                Dim columns, T* c, Dim c_pitch) {
  if (part.row_end - part.row != 1) {
    if constexpr (add) return add_product(part, a, depth, packed, columns, c, c_pitch);
    return set_product(part, a, depth, packed, columns, c, c_pitch);
  }
  const Dim pitch = depth * kPanel<T>;
  const T* row = a.data + part.row * a.pitch;
  T* out = c + part.row * c_pitch;
  Dim p = part.panel;
  for (; p + 2 <= part.panel_end; p += 2)
    detail::row_tile<add, 2, 2>(row, depth, packed + p * pitch, pitch, out + p * kPanel<T>,
                                columns - p * kPanel<T>);
  if (p < part.panel_end)
    detail::row_tile<add, 1, 4>(row, depth, packed + p * pitch, pitch, out + p * kPanel<T>,
                                columns - p * kPanel<T>);
}

// ---- gradients of the weights:  C[gates][columns] (+)= dAᵀ · B, over the rows of a chunk

// Gate columns that are packed together: their tiles (1 KiB per column) stay in the second-level
// cache.
constexpr Dim kGateBlock = 4 * kTileRows;
template <class T> constexpr Dim gate_block_size(Dim rows) {
  return kGateBlock * rows;
}

// Columns [0, count) of dA as tiles of kTileRows: tile i is [rows][kTileRows], read as Columns.
template <class T> void pack_gate_tiles(const T* da, Dim pitch, Dim rows, Dim count, T* tiles) {
  for (Dim i = 0; i < count; i += kTileRows) {
    const Dim width = std::min(count - i, Dim(kTileRows));
    T* out = tiles + i * rows;
    if (width == kTileRows)
      for (Dim r = 0; r < rows; ++r, out += kTileRows)
        std::memcpy(out, da + r * pitch + i, kTileRows * sizeof(T));
    else
      for (Dim r = 0; r < rows; ++r, out += kTileRows) copy_row(da + r * pitch + i, width, out);
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
      if (!add) {
        panel_tile<false>(a, height, rows, panel, c, g.columns, width);
        continue;
      }
      prefetch_tile(c, g.columns, height);
      panel_tile<true>(a, height, rows, panel, c, g.columns, width);
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
