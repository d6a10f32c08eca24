// What both Winograd gradients share: the transforms
// of F(m×m, r×r), and tiles of images in working memory.
//
// A 3-tap correlation of 4 inputs to 2 outputs takes
// 4 products instead of 6 (Lavin and Gray 2015, Winograd 1980):
//
//   y = Aᵀ[(G g) ⊙ (Bᵀ d)]        d: m + r − 1 inputs, g: r taps, y: m outputs
//
// In two dims each transform acts on columns, then on rows.
// Summed over channels, ⊙ becomes (m + r − 1)² matrix products.
// The gradient of g is dg = Gᵀ[(A dy) ⊙ (Bᵀ d)]: the same matrices, transposed.
//
// Two convolutions are made of such ones: a third dim is a sum over the slabs
// that an output reads, and r·s taps with stride s are s² convolutions of r×r
// taps with stride 1, each on the pixels of one residue of the stride.
#pragma once
#include <algorithm>
#include <cstring>

#include "ops/conv/conv_grad_blocks.h"

namespace onnxgrad::ONNXGRAD_ISA {

// One-dimensional transforms; V is a register.
template <int m, int r> struct Winograd;

// 3 products instead of 4, and nothing but additions of two numbers.
template <> struct Winograd<2, 2> {
  template <class V> static ONNXGRAD_INLINE void input(const V (&d)[3], V (&out)[3]) {  // Bᵀ d
    out[0] = d[0] - d[1], out[1] = d[1], out[2] = d[2] - d[1];
  }
  template <class V> static ONNXGRAD_INLINE void output(const V (&p)[3], V (&y)[2]) {  // Aᵀ p
    y[0] = p[0] + p[1], y[1] = p[1] + p[2];
  }
  template <class V>
  static ONNXGRAD_INLINE void output_grad(const V (&dy)[2], V (&out)[3]) {  // A dy
    out[0] = dy[0], out[1] = dy[0] + dy[1], out[2] = dy[1];
  }
  template <class V> static ONNXGRAD_INLINE void filter(const V (&g)[2], V (&out)[3]) {  // G g
    out[0] = g[0], out[1] = g[0] + g[1], out[2] = g[1];
  }
  template <class V> static ONNXGRAD_INLINE void filter_grad(const V (&p)[3], V (&dg)[2]) {  // Gᵀ p
    dg[0] = p[0] + p[1], dg[1] = p[1] + p[2];
  }
};

// 4 products instead of 6. All entries are 0, ±1 and ½, so hardly any accuracy is lost.
template <> struct Winograd<2, 3> {
  template <class V> static ONNXGRAD_INLINE void input(const V (&d)[4], V (&out)[4]) {  // Bᵀ d
    out[0] = d[0] - d[2], out[1] = d[1] + d[2], out[2] = d[2] - d[1], out[3] = d[1] - d[3];
  }
  template <class V> static ONNXGRAD_INLINE void output(const V (&p)[4], V (&y)[2]) {  // Aᵀ p
    y[0] = p[0] + p[1] + p[2], y[1] = p[1] - p[2] - p[3];
  }
  template <class V>
  static ONNXGRAD_INLINE void output_grad(const V (&dy)[2], V (&out)[4]) {  // A dy
    out[0] = dy[0], out[1] = dy[0] + dy[1], out[2] = dy[0] - dy[1], out[3] = -dy[1];
  }
  template <class V> static ONNXGRAD_INLINE void filter(const V (&g)[3], V (&out)[4]) {  // G g
    const V ends = (g[0] + g[2]) * 0.5f, middle = g[1] * 0.5f;
    out[0] = g[0], out[1] = ends + middle, out[2] = ends - middle, out[3] = g[2];
  }
  template <class V> static ONNXGRAD_INLINE void filter_grad(const V (&p)[4], V (&dg)[3]) {  // Gᵀ p
    const V sum = (p[1] + p[2]) * 0.5f, difference = (p[1] - p[2]) * 0.5f;
    dg[0] = p[0] + sum, dg[1] = difference, dg[2] = sum + p[3];
  }
};

// 6 products instead of 12, interpolation at 0, ±1, ±2, ∞: 36 products for 16 outputs where m = 2
// takes 64, but entries up to 8 cancel each other: about ten times the error.
template <> struct Winograd<4, 3> {
  template <class V> static ONNXGRAD_INLINE void input(const V (&d)[6], V (&out)[6]) {
    const V a = d[4] - d[2] * 4.f, b = d[3] - d[1] * 4.f, c = d[4] - d[2], e = (d[3] - d[1]) * 2.f;
    out[0] = d[0] * 4.f - d[2] * 5.f + d[4];
    out[1] = a + b, out[2] = a - b, out[3] = c + e, out[4] = c - e;
    out[5] = d[1] * 4.f - d[3] * 5.f + d[5];
  }
  template <class V> static ONNXGRAD_INLINE void output(const V (&p)[6], V (&y)[4]) {
    const V a = p[1] + p[2], b = p[1] - p[2], c = p[3] + p[4], d = p[3] - p[4];
    y[0] = p[0] + a + c, y[1] = b + d * 2.f, y[2] = a + c * 4.f, y[3] = b + d * 8.f + p[5];
  }
  template <class V> static ONNXGRAD_INLINE void output_grad(const V (&dy)[4], V (&out)[6]) {
    const V even = dy[0] + dy[2], odd = dy[1] + dy[3], far_even = dy[0] + dy[2] * 4.f,
            far_odd = dy[1] * 2.f + dy[3] * 8.f;
    out[0] = dy[0], out[1] = even + odd, out[2] = even - odd, out[3] = far_even + far_odd,
    out[4] = far_even - far_odd;
    out[5] = dy[3];
  }
  template <class V> static ONNXGRAD_INLINE void filter(const V (&g)[3], V (&out)[6]) {
    const V near = (g[0] + g[2]) / 6.f, far = g[0] / 24.f + g[2] / 6.f;
    const V near_middle = g[1] / 6.f, far_middle = g[1] / 12.f;
    out[0] = g[0] * 0.25f, out[1] = -near - near_middle, out[2] = near_middle - near;
    out[3] = far + far_middle, out[4] = far - far_middle, out[5] = g[2];
  }
  template <class V> static ONNXGRAD_INLINE void filter_grad(const V (&p)[6], V (&dg)[3]) {
    const V near = (p[1] + p[2]) / 6.f, far = p[3] + p[4];
    dg[0] = p[0] * 0.25f - near + far / 24.f;
    dg[1] = (p[2] - p[1]) / 6.f + (p[3] - p[4]) / 12.f;
    dg[2] = far / 6.f - near + p[5];
  }
};

// Applies a one-dimensional transform of `from` to `to`
// numbers to the columns, then to the rows, of a square.
template <int from, int to, class V, class F>
ONNXGRAD_INLINE void both_ways(const V (&in)[from][from], V (&out)[to][to], F&& transform) {
  V half[from][to];  // half[j] is column j, transformed
#pragma GCC unroll 8
  for (int j = 0; j < from; ++j) {
    V column[from];
#pragma GCC unroll 8
    for (int i = 0; i < from; ++i) column[i] = in[i][j];
    transform(column, half[j]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < to; ++i) {
    V row[from];
#pragma GCC unroll 8
    for (int j = 0; j < from; ++j) row[j] = half[j][i];
    transform(row, out[i]);
  }
}

template <class T> Dim whole_registers(Dim channels) {
  return divide_up(channels, lanes<T>) * lanes<T>;
}

// out[j·rows + i] = in[i·pitch + j] for j < columns: the transpose of a few rows that are whole
// registers. A register is stored in full where what it holds too much of is overwritten next.
template <int rows, class T>
ONNXGRAD_INLINE void transpose_rows(const T* in, Dim pitch, Dim columns, T* out) {
  if constexpr (rows > lanes<T>) return transpose(in, pitch, rows, columns, out, Dim(rows));
  if constexpr (rows <= lanes<T>)
    for (Dim j = 0; j < columns; j += lanes<T>) {
      Vec<T> square[lanes<T>] = {};
#pragma GCC unroll 16
      for (int i = 0; i < rows; ++i) square[i] = load<T>(in + i * pitch + j);
      transpose_square<T>(square);
#pragma GCC unroll 16
      for (int k = 0; k < int(lanes<T>); ++k) {
        T* to = out + (j + k) * rows;
        if ((j + k) * rows + lanes<T> <= columns * rows)
          store<T>(to, square[k]);
        else if (j + k < columns)
          store_part<T>(to, square[k], rows);
      }
    }
}

// The planes of one tensor that tiles are cut from: one slab of each channel of each image.
template <class T> struct SlabPlanes {
  const T* data;
  Dim image_pitch, channel_pitch, channels, height, width;
};

// A rectangle of an image, pixel by pixel with the channels side by side ([y][x][channel], so that
// a register holds one pixel of several channels), channels filled up to whole registers with
// zeros. The rectangle begins at (y, x), which may lie outside: there it is zero.
template <class T> void gather_pixels(const SlabPlanes<T>& from, Dim image, Dim y, Dim x, Dim rows,
                                      Dim columns, T* out) {
  const Dim pitch = whole_registers<T>(from.channels);
  const T* planes = from.data + image * from.image_pitch;
  const Dim left = clamp(-x, 0, columns),
            copied = larger_of(smaller_of(columns, from.width - x) - left, 0);
  const auto clear = [](T* first, Dim count) {
    std::memset(first, 0, static_cast<std::size_t>(count) * sizeof(T));
  };
  for (Dim i = 0; i < rows; ++i, out += columns * pitch) {
    const bool outside = y + i < 0 || y + i >= from.height;
    if (outside || pitch != from.channels) clear(out, columns * pitch);
    if (outside) continue;
    clear(out, left * pitch);
    transpose(planes + (y + i) * from.width + x + left, from.channel_pitch, from.channels, copied,
              out + left * pitch, pitch);
    clear(out + (left + copied) * pitch, (columns - left - copied) * pitch);
  }
}

// The tiles of a grid of m×m tiles.
template <int m> struct TileGrid {
  Dim rows, columns;
  TileGrid(Dim height, Dim width) : rows(divide_up(height, m)), columns(divide_up(width, m)) {}
  PixelBlocks blocks(Dim images, Dim most) const {
    return PixelBlocks(images, {1, rows, columns}, most);
  }
};

// Where the patches of tiles lie in a plane: those of neighbouring tiles begin m·step
// pixels apart, the first at (y, x); the elements of a patch are `step` pixels apart.
// Residue (i, j) is the same i rows down and j columns to the right.
struct PatchGrid {
  Dim y, x, step;
  Dim residues() const { return step * step; }
};

// For each tile of a block, each residue, each register of channels:
//   body(tile, residue · whole_registers(channels) + channel, patch[size][size]).
// `strip` is working memory for strip_size<m, size>() elements.
template <int m, int size, class T, class F>
ONNXGRAD_INLINE void for_tiles(const PixelBlock& b, const SlabPlanes<T>& from,
                               const PatchGrid& grid, T* strip, F&& body) {
  const Dim step = grid.step, rows = step * (b.size[1] * m + size - m),
            columns = step * (b.size[2] * m + size - m);
  const Dim pitch = whole_registers<T>(from.channels);
  Dim tile = 0;
  for (Dim n = 0; n < b.images; ++n) {
    gather_pixels(from, b.image + n, step * b.at[1] * m + grid.y, step * b.at[2] * m + grid.x, rows,
                  columns, strip);
    for (Dim ty = 0; ty < b.size[1]; ++ty)
      for (Dim tx = 0; tx < b.size[2]; ++tx, ++tile)
        for (Dim residue = 0; residue < grid.residues(); ++residue) {
          const Dim y = step * ty * m + residue / step, x = step * tx * m + residue % step;
          for (Dim c = 0; c < pitch; c += lanes<T>) {
            const T* at = strip + (y * columns + x) * pitch + c;
            Vec<T> patch[size][size];
#pragma GCC unroll 8
            for (int i = 0; i < size; ++i)
#pragma GCC unroll 8
              for (int j = 0; j < size; ++j)
                patch[i][j] = load<T>(at + (i * columns + j) * step * pitch);
            body(tile, residue * pitch + c, patch);
          }
        }
  }
}
template <int m, int size, class T> Dim strip_size(const PixelBlock& most, Dim channels, Dim step) {
  return step * (most.size[1] * m + size - m) * step * (most.size[2] * m + size - m) *
         whole_registers<T>(channels);
}

}  // namespace onnxgrad::ONNXGRAD_ISA
