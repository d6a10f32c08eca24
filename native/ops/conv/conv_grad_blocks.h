// How the algorithms cut images into pieces, and how
// a piece with its zero borders gets into working memory.
#pragma once
#include <algorithm>

#include "core/gemm.h"
#include "ops/conv/conv_grad_choose.h"

namespace onnxgrad::ONNXGRAD_ISA {

// Pieces of nearly equal size instead of full ones and a small rest.
inline Dim even_piece(Dim total, Dim most) {
  return total <= 0 ? 1 : divide_up(total, divide_up(total, larger_of(most, 1)));
}

// Pieces of `least` to `most`, as large as still gives `wanted` of them.
inline Dim finer_piece(Dim total, Dim least, Dim most, Dim wanted) {
  return even_piece(total, clamp(divide_up(total, larger_of(wanted, 1)), least, most));
}

// out[i] = Σ_part partial[part][i] for i in [begin, end), added in order;
// some numbers at a time, which the compiler keeps in registers.
template <class P, class T>
void add_parts(const P* partial, Dim parts, Span<T> out, Dim begin, Dim end) {
  constexpr Dim together = 64;
  for (Dim first = begin; first < end; first += together) {
    const Dim count = smaller_of(together, end - first);
    P sums[together] = {};
    std::copy(partial + first, partial + first + count, sums);
    for (Dim part = 1; part < parts; ++part) {
      const P* from = partial + part * out.size() + first;
      if (count == together)
        for (Dim i = 0; i < together; ++i) sums[i] += from[i];
      else
        for (Dim i = 0; i < count; ++i) sums[i] += from[i];
    }
    for (Dim i = 0; i < count; ++i) out[first + i] = T(sums[i]);
  }
}

template <class P, class T> void add_parts(Call& call, const P* partial, Dim parts, Span<T> out) {
  call.parallel_ranges(out.size(), 16384,
                       [&](Dim begin, Dim end) { add_parts(partial, parts, out, begin, end); });
}

// The parts of dW and, in a last piece, those of dBias. One part of dW lies where it belongs.
template <class T> Dim numbers_added(Dim parts, Span<T> dw) {  // of a piece
  return larger_of(divide_up(Dim(32768), parts), divide_up(larger_of(dw.size(), 1), 64));
}
template <class T> Dim sum_pieces(Dim parts, Span<T> dw, Span<T> dbias) {
  return (parts > 1 ? divide_up(dw.size(), numbers_added(parts, dw)) : 0) + (dbias ? 1 : 0);
}
template <class T> void add_parts(Dim piece, Dim parts, const T* partial, Span<T> dw,
                                  const double* partial_dbias, Span<T> dbias) {
  const Dim each = numbers_added(parts, dw), begin = piece * each;
  if (parts > 1 && begin < dw.size())
    return add_parts(partial, parts, dw, begin, smaller_of(begin + each, dw.size()));
  add_parts(partial_dbias, parts, dbias, 0, dbias.size());
}

// sums[j] += Σ_k B[k][j] for a packed B[depth][columns], in double.
template <class T> void add_column_sums(const T* packed, Dim depth, Dim columns, double* sums) {
  for (Dim first = 0; first < columns; first += lanes<double>) {
    const T* from = packed + first / kPanel<T> * depth * kPanel<T> + first % kPanel<T>;
    Vec<double> even{}, odd{};
    for (Dim k = 0; k + 1 < depth; k += 2)
      even += load_double(from + k * kPanel<T>), odd += load_double(from + (k + 1) * kPanel<T>);
    if (depth % 2) even += load_double(from + (depth - 1) * kPanel<T>);
    const Vec<double> total = even + odd;
    for (Dim j = 0; j < lanes<double> && first + j < columns; ++j) sums[first + j] += total[j];
  }
}

// A box of a three-dimensional grid in consecutive images.
struct PixelBlock {
  Dim image, images, at[3], size[3];
  Dim pixels() const { return images * size[0] * size[1] * size[2]; }
};

// Images × grid, cut into blocks of at most `most` pixels:
// several whole images, else slabs, else rows, else parts of a row.
class PixelBlocks {
 public:
  PixelBlocks(Dim images, const Dim (&grid)[3], Dim most) : images_(images) {
    Dim per_step = 1;
    for (int a = 2; a >= 0; --a) {
      grid_[a] = grid[a];
      size_[a] = even_piece(grid[a], most / per_step);
      per_step = size_[a] == grid[a] ? per_step * larger_of(grid[a], 1)
                                     : larger_of(most, 1);  // cut here: 1 of each outer dim
      pieces_[a] = grid[a] > 0 ? divide_up(grid[a], size_[a]) : 0;
    }
    together_ = even_piece(images, most / per_step);
  }
  Dim count() const { return divide_up(images_, together_) * pieces_[0] * pieces_[1] * pieces_[2]; }
  PixelBlock operator[](Dim index) const {
    PixelBlock b;
    for (int a = 2; a >= 0; --a) {
      b.at[a] = index % pieces_[a] * size_[a];
      b.size[a] = smaller_of(size_[a], grid_[a] - b.at[a]);
      index /= pieces_[a];
    }
    b.image = index * together_;
    b.images = smaller_of(together_, images_ - b.image);
    return b;
  }
  // As large as any of them.
  PixelBlock largest() const { return {0, together_, {0, 0, 0}, {size_[0], size_[1], size_[2]}}; }

 private:
  Dim images_, together_, grid_[3], size_[3], pieces_[3];
};

// body(first, length, image, d, h, w) for each run of pixels of a block that are neighbours in
// memory, when the grid itself is what lies in memory; `first` counts the pixels of the block.
template <class F> void for_runs(const PixelBlock& b, const Dim (&grid)[3], F&& body) {
  const bool whole_rows = b.size[2] == grid[2], whole_slabs = whole_rows && b.size[1] == grid[1];
  const Dim length = whole_slabs  ? b.size[0] * grid[1] * grid[2]
                     : whole_rows ? b.size[1] * grid[2]
                                  : b.size[2];
  const Dim slabs = whole_slabs ? 1 : b.size[0], rows = whole_rows ? 1 : b.size[1];
  Dim first = 0;
  for (Dim n = 0; n < b.images; ++n)
    for (Dim d = 0; d < slabs; ++d)
      for (Dim h = 0; h < rows; ++h, first += length)
        body(first, length, b.image + n, b.at[0] + d, b.at[1] + h, b.at[2]);
}

// The layout of a box in working memory.
struct Box {
  Dim size[3], row, slab, plane;  // row, slab, plane: elements from one to the next

  // Planes lie an odd number of cache lines apart: the same pixel of many channels is read in one
  // go, and would otherwise fall into few sets of the cache.
  template <class T> static Box of(const Dim (&size)[3]) {
    constexpr Dim line = 64 / Dim(sizeof(T));
    Box b{{size[0], size[1], size[2]}, size[2], size[1] * size[2], 0};
    b.plane = (divide_up(size[0] * b.slab, line) | 1) * line;
    return b;
  }
};

// Columns [x, x + lanes) of a row, read as if zeros stood
// before and after it; `inside` says that none are needed.
template <bool inside, class T>
ONNXGRAD_INLINE Vec<T> load_bordered(const T* row, Dim width, Dim x) {
  if constexpr (inside) return load<T>(row + x);
  return load_between<T>(row + x, clamp(-x, 0, lanes<T>), clamp(width - x, 0, lanes<T>));
}

// The part of a plane that begins at `origin`
// (which may lie outside), with zeros where there is no plane.
template <class T> void copy_box(const T* plane, const Dim (&dims)[3], const Dim (&origin)[3],
                                 const Dim (&size)[3], const Box& box, T* out) {
  for (Dim d = 0; d < size[0]; ++d)
    for (Dim h = 0; h < size[1]; ++h) {
      T* to = out + d * box.slab + h * box.row;
      const Dim from_d = origin[0] + d, from_h = origin[1] + h;
      const bool outside = from_d < 0 || from_d >= dims[0] || from_h < 0 || from_h >= dims[1];
      const T* from = outside ? plane : plane + (from_d * dims[1] + from_h) * dims[2];
      const Dim width = outside ? 0 : dims[2];
      for (Dim i = 0; i < size[2]; i += lanes<T>) {
        const Dim x = origin[2] + i;
        const bool inside = x >= 0 && x + lanes<T> <= width;
        const Vec<T> v =
            inside ? load_bordered<true>(from, width, x) : load_bordered<false>(from, width, x);
        store_some<T>(to + i, v, smaller_of(lanes<T>, size[2] - i));
      }
    }
}

}  // namespace onnxgrad::ONNXGRAD_ISA
