// Linear maps that act on each axis by itself:
// dX = (M₁ ⊗ M₂ ⊗ …) dY, every M sparse. Pooling and resizing are such.
//
// An axis is applied to all others at once: rows of the axes after it are
// added as vectors, and the last axis, which has none after it, goes through
// a transposed block of lines. Axes that stay as they are cost nothing.
#pragma once
#include <vector>

#include "core/pointwise.h"
#include "core/reduce.h"
#include "core/transpose.h"
#include "core/workspace.h"

namespace onnxgrad::ONNXGRAD_ISA {

// One axis: out[i] = Σ_t weight[t]·in[source[t]] for
// t in [first[i], first[i + 1]); in: of dY, out: of dX.
template <class T> struct AxisMap {
  Dim in = 0, out = 0;
  bool identity = true;
  std::vector<Dim> first, source;
  std::vector<T> weight;
};

// What the entries of one axis may be: each takes memory before the outputs are known to fit.
constexpr Dim kMostEntries = Dim(1) << 26;

// Collects entries in any order and sorts them by the element
// of dX, entries of one element in the order they came.
template <class T> class AxisMapBuilder {
 public:
  AxisMapBuilder(Dim in, Dim out) {
    map_.in = in, map_.out = out, map_.identity = false, map_.first.assign(std::size_t(out) + 1, 0);
  }
  void add(Dim to, Dim from, double weight) { entries_.push_back({to, from, weight}); }
  AxisMap<T> take() {
    for (const Entry& e : entries_) ++map_.first[std::size_t(e.to) + 1];
    for (std::size_t i = 1; i < map_.first.size(); ++i) map_.first[i] += map_.first[i - 1];
    std::vector<Dim> next(map_.first.begin(), map_.first.end() - 1);
    map_.source.resize(entries_.size()), map_.weight.resize(entries_.size());
    for (const Entry& e : entries_) {
      const auto at = std::size_t(next[std::size_t(e.to)]++);
      map_.source[at] = e.from, map_.weight[at] = T(e.weight);
    }
    return std::move(map_);
  }

 private:
  struct Entry {
    Dim to, from;
    double weight;
  };
  AxisMap<T> map_;
  std::vector<Entry> entries_;
};

namespace detail {

// Rows [begin, end) of out[out, inner] from in[in, inner].
template <class T>
void apply_rows(const AxisMap<T>& m, Dim inner, const T* in, T* out, Dim begin, Dim end) {
  for (Dim i = begin; i < end; ++i) {
    const auto from = std::size_t(m.first[std::size_t(i)]),
               to = std::size_t(m.first[std::size_t(i) + 1]);
    each_register<T>(0, inner, [&](Dim c, Dim n) ONNXGRAD_LAMBDA {
      Vec<T> sum{};
      for (std::size_t t = from; t < to; ++t)
        sum = fma(splat<T>(m.weight[t]), load_some<T>(in + m.source[t] * inner + c, n), sum);
      store_some<T>(out + i * inner + c, sum, n);
    });
  }
}

// The last axis, lines [begin, end): a register holds the same element of several lines.
template <class T>
void apply_lines(const AxisMap<T>& m, const T* in, T* out, Dim begin, Dim end, T* scratch) {
  T *turned = scratch, *result = scratch + m.in * lanes<T>;
  for (Dim line = begin; line < end; line += lanes<T>) {
    const Dim count = smaller_of(lanes<T>, end - line);
    transpose<T>(in + line * m.in, m.in, count, m.in, turned, lanes<T>);
    for (Dim i = 0; i < m.out; ++i) {
      Vec<T> sum{};
      for (auto t = std::size_t(m.first[std::size_t(i)]);
           t < std::size_t(m.first[std::size_t(i) + 1]); ++t)
        sum = fma(splat<T>(m.weight[t]), load<T>(turned + m.source[t] * lanes<T>), sum);
      store<T>(result + i * lanes<T>, sum);
    }
    transpose<T>(result, lanes<T>, m.out, count, out + line * m.out, m.out);
  }
}

}  // namespace detail

// The axes of one block of dY, all of them mapped in turn; blocks (planes) are independent.
template <class T> class Separable {
 public:
  // `maps`: one per axis. Leading axes that stay are blocks, neighbours that stay are one axis.
  explicit Separable(std::vector<AxisMap<T>> maps) {
    std::size_t k = 0;
    for (; k < maps.size() && maps[k].identity; ++k) blocks_ *= maps[k].in;
    for (; k < maps.size(); ++k) {
      if (maps[k].identity && !axes_.empty() && axes_.back().identity)
        axes_.back().in *= maps[k].in, axes_.back().out *= maps[k].in;
      else
        axes_.push_back(std::move(maps[k]));
    }
    Dim in = 1, out = 1;
    for (const AxisMap<T>& m : axes_) in *= m.in, out *= m.out;
    in_ = in, out_ = out;
    choose_order();
    declare();
  }
  Dim bytes() const { return space_.bytes(); }

  void run(Call& call, const T* dy, T* dx) {
    if (blocks_ * out_ == 0) return;
    space_.open();
    if (steps_.empty()) return copy(call, dy, dx);
    const Dim group = larger_of(1, kPointwiseGrain / (in_ + out_));
    call.parallel_ranges(blocks_, group, [&](Dim begin, Dim end) {
      const auto loan = space_.borrow(scratch_);
      for (Dim b = begin; b < end; ++b) run_block(dy + b * in_, dx + b * out_, loan.data());
    });
  }

 private:
  struct Step {
    std::size_t axis;
    Dim outer, inner;
  };

  // What makes the block smaller comes first, what makes it larger last.
  void choose_order() {
    std::vector<std::size_t> order;
    for (std::size_t k = 0; k < axes_.size(); ++k)
      if (!axes_[k].identity && axes_[k].out < axes_[k].in) order.push_back(k);
    for (std::size_t k = axes_.size(); k-- > 0;)
      if (!axes_[k].identity && axes_[k].out >= axes_[k].in) order.push_back(k);
    std::vector<Dim> size;
    for (const AxisMap<T>& m : axes_) size.push_back(m.in);
    for (std::size_t axis : order) {
      Dim outer = 1, inner = 1;
      for (std::size_t k = 0; k < axes_.size(); ++k)
        (k < axis ? outer : inner) *= k == axis ? 1 : size[k];
      size[axis] = axes_[axis].out;
      steps_.push_back({axis, outer, inner});
      between_ = larger_of(between_, outer * size[axis] * inner);
      if (inner == 1) turned_ = larger_of(turned_, (axes_[axis].in + axes_[axis].out) * lanes<T>);
    }
  }
  void declare() {
    scratch_ = space_.scratch<T>(2 * aligned(between_) + turned_, larger_of(1, blocks_));
  }
  static Dim aligned(Dim count) { return (count + 15) / 16 * 16; }

  void run_block(const T* dy, T* dx, T* scratch) const {
    T *turned = scratch + 2 * aligned(between_),
      *buffers[2] = {scratch, scratch + aligned(between_)};
    const T* in = dy;
    for (std::size_t k = 0; k < steps_.size(); ++k) {
      T* out = k + 1 == steps_.size() ? dx : buffers[k % 2];
      const Step& step = steps_[k];
      const AxisMap<T>& m = axes_[step.axis];
      if (step.inner == 1)
        detail::apply_lines<T>(m, in, out, 0, step.outer, turned);
      else
        for (Dim o = 0; o < step.outer; ++o)
          detail::apply_rows<T>(m, step.inner, in + o * m.in * step.inner,
                                out + o * m.out * step.inner, 0, m.out);
      in = out;
    }
  }
  void copy(Call& call, const T* dy, T* dx) const {
    call.parallel_ranges(blocks_ * out_, kPointwiseGrain, [&](Dim begin, Dim end) {
      fill<T>(Span<T>(dx + begin, end - begin), false,
              [&](Dim i, Dim n) ONNXGRAD_LAMBDA { return load_some<T>(dy + begin + i, n); });
    });
  }

  Dim blocks_ = 1, in_ = 1, out_ = 1, between_ = 0, turned_ = 0;
  std::vector<AxisMap<T>> axes_;
  std::vector<Step> steps_;
  Workspace space_;
  Workspace::Scratch<T> scratch_{};
};

}  // namespace onnxgrad::ONNXGRAD_ISA
