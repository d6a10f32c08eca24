// 1×1 kernels with stride 1 and no padding: plain matrix products on the tensors as they lie.
//
//   dX[c][pixel] = Σ_m W[m][c] · dY[m][pixel]
//   dW[m][c]     = Σ_pixel dY[m][pixel] · X[c][pixel]
#pragma once
#include "ops/conv/conv_grad_blocks.h"
#include "ops/conv/conv_grad_plain.h"

namespace onnxgrad::ONNXGRAD_ISA {

// Panels of pixels may run across images: pixel q is pixel q % plane of image q / plane.
template <class T> class PointwiseDx : public InputGradient<T> {
 public:
  explicit PointwiseDx(const ConvShape& s)
      : s_(s), plane_(s.in_size()), panels_(panel_count<T>(s.images * plane_)) {
    const Dim size = s.groups * s.filters * s.channels;
    packs_weights_ = s.turned || size * Dim(sizeof(T)) <= kWorkspaceBytes / 2;
    together_ = clamp(panels_ * s.groups / 32, 1, kMostPanels);
    tasks_ = divide_up(panels_, together_) * s.groups;
    weights_ = space_.shared<T>(packs_weights_ ? size : 0);
    scratch_ = space_.scratch<T>(
        kPanel<T> * (together_ * smaller_of(kDepthBlock<T>, s.filters) + s.channels), tasks_);
  }
  Dim bytes() const override { return space_.bytes(); }

  void begin(Span<const T> dy, Span<const T> w, Span<T> dx, Dim at) override {
    space_.open(at);
    dy_ = dy, w_ = w, dx_ = dx;
  }
  Dim stages() const override { return 2; }
  Dim pieces(Dim stage) const override {
    return stage > 0 ? tasks_ : packs_weights_ ? s_.groups * weight_pieces() : 0;
  }
  void run_piece(Dim stage, Dim task) override {
    if (stage == 0) return pack_weights(task);
    const auto memory = space_.borrow(scratch_);
    const Dim first = task / s_.groups * together_, last = smaller_of(first + together_, panels_);
    run_panels(task % s_.groups, first, last, memory.data());
  }

 private:
  static constexpr Dim kMostPanels = 8;

  Dim weight_pieces() const {  // of a group
    return clamp(s_.filters * s_.channels / 2048, 1, divide_up(s_.channels, kTileRows));
  }
  // Tile of rows [row, row + rows) as [filter][rows].
  void pack_weights(Dim task) {
    const Dim pieces = weight_pieces(), group = task / pieces, piece = task % pieces;
    const Dim at = group * s_.filters * s_.channels, pitch = s_.channel_pitch();
    const Dim begin = s_.channels * piece / pieces, end = s_.channels * (piece + 1) / pieces;
    for_row_tiles<Columns<T>::max_rows>(0, s_.channels, [&](Dim row, Dim rows) {
      if (row < begin || row >= end) return;
      T* to = space_[weights_].data() + at + row * s_.filters;
      for (Dim m = 0; m < s_.filters; ++m) {
        const T* from = w_.data() + s_.taps_at(group, m, row);
        for (Dim i = 0; i < rows; ++i) *to++ = from[i * pitch];
      }
    });
  }
  Columns<T> weights(Dim group, Dim row, Dim rows, Dim m) const {
    const Dim at = group * s_.filters * s_.channels;
    if (!packs_weights_) return {w_.data() + at + m * s_.channels + row, s_.channels};
    return {space_[weights_].data() + at + row * s_.filters + m * rows, rows};
  }

  // body(column, length, image, pixel) for each piece of a panel that lies in one image.
  template <class F> void for_pieces(Dim panel, F&& body) const {
    const Dim first = panel * kPanel<T>, last = smaller_of(first + kPanel<T>, s_.images * plane_);
    for (Dim q = first; q < last;) {
      const Dim length = smaller_of(last - q, plane_ - q % plane_);
      body(q - first, length, q / plane_, q % plane_);
      q += length;
    }
  }

  // Rows [m, m + count) of panels [first, last). Full panels of one image are filled row by row,
  // all panels at once: memory is then read in long runs.
  void pack_dy(Dim group, Dim first, Dim last, Dim m, Dim count, T* out) const {
    const Dim at = first * kPanel<T>, columns = (last - first) * kPanel<T>;
    if (at / plane_ < s_.images && at % plane_ + columns <= plane_) {
      const T* from =
          dy_.data() + ((at / plane_ * s_.groups + group) * s_.filters + m) * plane_ + at % plane_;
      for (Dim k = 0; k < count; ++k, from += plane_)
        for (Dim p = 0; p < last - first; ++p) {
          T* to = out + (p * count + k) * kPanel<T>;
          store<T>(to, load<T>(from + p * kPanel<T>));
          store<T>(to + lanes<T>, load<T>(from + p * kPanel<T> + lanes<T>));
        }
      return;
    }
    for (Dim p = first; p < last; ++p, out += count * kPanel<T>)
      pack_panel(group, p, m, count, out);
  }
  void pack_panel(Dim group, Dim panel, Dim m, Dim count, T* out) const {
    if ((panel + 1) * kPanel<T> > s_.images * plane_) std::fill(out, out + count * kPanel<T>, T(0));
    for_pieces(panel, [&](Dim column, Dim length, Dim image, Dim pixel) {
      const T* from = dy_.data() + ((image * s_.groups + group) * s_.filters + m) * plane_ + pixel;
      for (Dim k = 0; k < count; ++k)
        std::copy(from + k * plane_, from + k * plane_ + length, out + k * kPanel<T> + column);
    });
  }

  void run_panels(Dim group, Dim first, Dim last, T* memory) {
    T* const crossing = memory + together_ * smaller_of(kDepthBlock<T>, s_.filters) * kPanel<T>;
    for (Dim m = 0; m < s_.filters; m += kDepthBlock<T>) {
      const Dim depth = smaller_of(kDepthBlock<T>, s_.filters - m);
      pack_dy(group, first, last, m, depth, memory);
      for (Dim p = first; p < last; ++p) {
        const T* packed = memory + (p - first) * depth * kPanel<T>;
        const Dim columns = smaller_of(kPanel<T>, s_.images * plane_ - p * kPanel<T>),
                  at = p * kPanel<T>;
        if (at % plane_ + columns <= plane_)
          multiply(group, m, depth, packed, m > 0, address(group, at / plane_, at % plane_), plane_,
                   columns);
        else
          multiply_across(group, p, m, depth, packed, crossing);
      }
    }
  }
  T* address(Dim group, Dim image, Dim pixel) const {
    return dx_.data() + (image * s_.groups + group) * s_.channels * plane_ + pixel;
  }

  void multiply(Dim group, Dim m, Dim depth, const T* packed, bool add, T* to, Dim pitch,
                Dim columns) const {
    const bool begin = m == 0 && this->has_bias();
    for_row_tiles<Columns<T>::max_rows>(0, s_.channels, [&](Dim row, Dim rows) {
      const Columns<T> a = weights(group, row, rows, m);
      for (Dim i = row; i < row + rows && begin; ++i)
        std::fill(to + i * pitch, to + i * pitch + columns, this->bias(group * s_.channels + i));
      panel_tile(add || begin, a, rows, depth, packed, to + row * pitch, pitch, columns);
    });
  }

  // A panel with pixels of several images: into working memory first.
  void multiply_across(Dim group, Dim panel, Dim m, Dim depth, const T* packed, T* result) {
    multiply(group, m, depth, packed, false, result, kPanel<T>, kPanel<T>);
    for_pieces(panel, [&](Dim column, Dim length, Dim image, Dim pixel) {
      for (Dim c = 0; c < s_.channels; ++c) {
        T* to = address(group, image, pixel) + c * plane_;
        const T* from = result + c * kPanel<T> + column;
        for (Dim i = 0; i < length; ++i) to[i] = m > 0 ? to[i] + from[i] : from[i];
      }
    });
  }

  const ConvShape& s_;
  Dim plane_, panels_, together_, tasks_;
  bool packs_weights_;
  Workspace space_;
  Workspace::Shared<T> weights_{};
  Workspace::Scratch<T> scratch_{};
  Span<const T> dy_, w_;
  Span<T> dx_;
};

// The one of dY and X with more channels gives the rows and
// is read in place; the other is transposed into panels.
template <class T> class PointwiseDw : public FilterGradient<T> {
 public:
  explicit PointwiseDw(const ConvShape& s)
      : s_(s),
        plane_(s.in_size()),
        rows_are_filters_(s.filters >= s.channels),
        rows_(larger_of(s.filters, s.channels)),
        columns_(smaller_of(s.filters, s.channels)),
        blocks_(s.images, {1, 1, plane_}, clamp(s.images * plane_ / 8, 64, kDepthBlock<T>)) {
    // Panels first: each packs its own columns. Rows next: each piece of them packs all columns.
    const Dim panels = panel_count<T>(columns_), most_parts = this->most_parts();
    panel_piece_ = finer_piece(panels, 1, kMostPanels, kTasks / (s.groups * most_parts));
    panel_groups_ = divide_up(panels, panel_piece_);
    row_piece_ =
        finer_piece(rows_, kLeastRows, kMostRows, kTasks / (s.groups * most_parts * panel_groups_));
    row_groups_ = divide_up(rows_, row_piece_);
    const Dim size = s.groups * rows_ * columns_, others = s.groups * row_groups_ * panel_groups_;
    const Dim fitting = kPartialBytes / (size * Dim(sizeof(T)));
    parts_ = clamp(divide_up(kTasks, others), 1, larger_of(smaller_of(most_parts, fitting), 1));
    partial_ = space_.shared<T>(parts_ > 1 ? parts_ * size : 0);
    partial_dbias_ = space_.shared<double>(parts_ * s.groups * s.filters);
    pitch_ = panel_piece_ * kPanel<T> + lanes<T>;
    scratch_ = space_.scratch<T>(row_piece_ * pitch_ + kDepthBlock<T> * panel_piece_ * kPanel<T>,
                                 others * parts_);
  }
  Dim bytes() const override { return space_.bytes(); }
  bool gives_dbias() const override { return true; }

  void begin(Span<const T> dy, Span<const T> x, Span<T> dw, Span<T> dbias, Dim at) override {
    space_.open(at);
    row_data_ = rows_are_filters_ ? dy : x, column_data_ = rows_are_filters_ ? x : dy, dw_ = dw,
    dbias_ = dbias, wants_dbias_ = bool(dbias);
  }
  Dim stages() const override { return 2; }
  Dim pieces(Dim stage) const override {
    return stage == 0 ? s_.groups * row_groups_ * panel_groups_ * parts_
                      : sum_pieces(parts_, dw_, dbias_);
  }
  void run_piece(Dim stage, Dim task) override {
    if (stage > 0)
      return add_parts(task, parts_, space_[partial_].data(), dw_, space_[partial_dbias_].data(),
                       dbias_);
    const auto memory = space_.borrow(scratch_);
    const Dim row = task % row_groups_ * row_piece_,
              column = task / row_groups_ % panel_groups_ * panel_piece_ * kPanel<T>;
    const Dim rest = task / row_groups_ / panel_groups_;
    run_part(rest / parts_, rest % parts_, row, column, memory.data());
  }

 private:
  static constexpr Dim kLeastRows = 48, kMostRows = 500, kMostPanels = 8;
  static constexpr Dim kTasks = 16;
  static constexpr Dim kPartialBytes = Dim(16) << 20;

  // Of the sum over pixels: blocks, two of them where they are many.
  Dim most_parts() const {
    return larger_of(blocks_.count() < kTasks ? blocks_.count() : blocks_.count() / 2, 1);
  }

  void run_part(Dim group, Dim part, Dim row, Dim column, T* memory) {
    const Dim rows = smaller_of(row_piece_, rows_ - row),
              columns = smaller_of(panel_piece_ * kPanel<T>, columns_ - column);
    T *sums = memory, *packed = memory + row_piece_ * pitch_;
    double* dbias = space_[partial_dbias_].data() + (part * s_.groups + group) * s_.filters +
                    (rows_are_filters_ ? row : column);
    const bool sums_dy = wants_dbias_ && (rows_are_filters_ ? column : row) == 0;
    if (sums_dy) std::fill(dbias, dbias + (rows_are_filters_ ? rows : columns), 0.0);
    const Dim begin = blocks_.count() * part / parts_, end = blocks_.count() * (part + 1) / parts_;
    for (Dim b = begin; b < end; ++b) {
      const PixelBlock block = blocks_[b];
      for (Dim n = block.image; n < block.image + block.images; ++n) {
        const T* from_rows =
            row_data_.data() + ((n * s_.groups + group) * rows_ + row) * plane_ + block.at[2];
        const T* from_columns = column_data_.data() +
                                ((n * s_.groups + group) * columns_ + column) * plane_ +
                                block.at[2];
        const Dim depth = block.size[2];
        pack_transposed(from_columns, plane_, depth, columns, packed);
        const Part all_of_it{0, rows, 0, panel_count<T>(columns)};
        const Rows<T> a{from_rows, plane_};
        if (b == begin && n == block.image)
          set_product(all_of_it, a, depth, packed, columns, sums, pitch_);
        else
          add_product(all_of_it, a, depth, packed, columns, sums, pitch_);
        if (sums_dy && !rows_are_filters_) add_column_sums(packed, depth, columns, dbias);
        for (Dim i = 0; i < rows && sums_dy && rows_are_filters_; ++i)
          dbias[i] += plane_sum(from_rows + i * plane_, depth);
      }
    }
    store(group, part, row, rows, column, columns, sums);
  }

  void store(Dim group, Dim part, Dim row, Dim rows, Dim column, Dim columns, const T* sums) {
    const Dim matrix = rows_ * columns_;
    T* to = (parts_ > 1 ? space_[partial_].data() + part * s_.groups * matrix : dw_.data()) +
            group * matrix;
    if (!rows_are_filters_)
      return transpose(sums, pitch_, rows, columns, to + column * rows_ + row, rows_);
    for (Dim i = 0; i < rows; ++i)
      std::copy(sums + i * pitch_, sums + i * pitch_ + columns, to + (row + i) * columns_ + column);
  }

  const ConvShape& s_;
  Dim plane_;
  bool rows_are_filters_, wants_dbias_ = false;
  Dim rows_, columns_, row_piece_ = 1, row_groups_ = 1, panel_piece_ = 1, panel_groups_ = 1;
  Dim parts_ = 1, pitch_ = 0;
  PixelBlocks blocks_;
  Workspace space_;
  Workspace::Shared<T> partial_{};
  Workspace::Shared<double> partial_dbias_{};
  Workspace::Scratch<T> scratch_{};
  Span<const T> row_data_, column_data_;
  Span<T> dw_, dbias_;
};

}  // namespace onnxgrad::ONNXGRAD_ISA
