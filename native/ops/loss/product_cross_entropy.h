// Cross entropy of the scores X·W of a frozen matrix W, some rows at a time: scores of a large
// vocabulary never exist as a whole, and those of rows whose label is ignored not at all.
//
//   scores = X·W,  log_prob = scores − log Σ exp(scores),  loss = −Σ log_prob[label]·f
//   dX     = (exp(log_prob) − [class = label])·f·Wᵀ,   f = 1, or 1 / labels for "mean"
//
// dX is the gradient of the loss itself: it is made on the way, while the scores are there.
#pragma once
#include <algorithm>

#include "ops/loss/cross_entropy.h"
#include "ops/quant/packed_product.h"

namespace onnxgrad::ONNXGRAD_ISA {

constexpr Dim kScoreBytes = Dim(32) << 20;  // of the scores that exist at a time
constexpr Dim kFewestRows = 8, kMostRows = 512;

inline Contract with_labels(Contract c) {
  return c.attr("reduction", "mean", {"sum", "mean"}, "how the loss is reduced")
      .input("X", "T[rows..., in]", "what the product reads, K columns")
      .input("labels", "I[rows...]", "the class of each row");
}

inline Contract with_loss(Contract c) {
  return c.optional("ignore_index", "int64[]", "a label that does not count")
      .output("loss", "T[]", "the loss; 0 where no label counts")
      .optional_output("dX", "T[rows..., in]", "gradient of the loss, whose cotangent is 1 here");
}

// A matrix of floats, as `set_packed_product` reads it.
template <class T> struct PlainMatrix {
  PackedSizes size;
  const T* data;
  void row(Dim n, Dim k, Dim count, T* out) const {
    std::copy_n(data + n * size.k + k, count, out);
  }
};

// `class_rows`: the rows n of the matrix are the classes, W[K, N] otherwise.
template <bool class_rows, class T, class I, class Matrix> struct ProductCrossEntropy {
  const Matrix& w;
  Classes s;
  Dim depth;  // columns of X
  Dim used = 0;

  Dim chunk() const {
    const Dim fit = kScoreBytes / Dim(sizeof(T)) / larger_of(1, s.classes) / 8 * 8;
    return smaller_of(larger_of(used, 1), smaller_of(larger_of(fit, kFewestRows), kMostRows));
  }
  PackedProduct<T> forward() const { return {chunk(), depth, s.classes}; }
  PackedProduct<T> backward() const { return {chunk(), s.classes, depth}; }

  void run(Call& call, const T* x, const I* labels, bool with_gradient) {
    for (Dim k = 0; k < s.outer; ++k) used += !is_ignored(labels[k]);
    Workspace space;
    const auto scores_at = space.shared<T>(chunk() * s.classes);
    const auto some_at = space.shared<T>(chunk() * depth);
    const auto rows_at = space.shared<Dim>(larger_of(used, 1));
    const auto losses_at = space.shared<double>(larger_of(used, 1));
    const Dim most = larger_of(forward().unpacked(), backward().unpacked());
    const auto scratch =
        space.scratch<T>(2 * most, larger_of(forward().pieces(), backward().pieces()));
    Workspace::acquire(call, space.bytes());
    const Span<T> loss = call.output<T>("loss");
    T* dx = with_gradient ? call.optional_output<T>("dX").data() : nullptr;
    space.open();
    T *scores = space[scores_at].data(), *some = space[some_at].data();
    Dim* rows = space[rows_at].data();
    double* losses = space[losses_at].data();
    for (Dim k = 0, at = 0; k < s.outer; ++k) {
      if (!is_ignored(labels[k]))
        rows[at++] = k;
      else if (dx)
        std::fill_n(dx + k * depth, depth, T(0));
    }
    const double share = s.reduction == Reduction::mean ? 1 / double(larger_of(used, 1)) : 1;
    for (Dim first = 0; first < used; first += chunk()) {
      const Dim count = smaller_of(chunk(), used - first);
      for (Dim i = 0; i < count; ++i)
        std::copy_n(x + rows[first + i] * depth, depth, some + i * depth);
      set_packed_product<class_rows>(call, space, scratch,
                                     PackedProduct<T>{count, depth, s.classes}, w, some, scores);
      call.parallel_for(count, [&](Dim i) {
        T* row = scores + i * s.classes;
        const Dim label = Dim(labels[rows[first + i]]);
        set_log_row<T>(s.classes, row, row, false);
        losses[first + i] = -double(row[label]);
        if (dx) set_row<T>(s, row, nullptr, row, label, T(share), false);
      });
      if (!dx) continue;
      set_packed_product<!class_rows>(call, space, scratch,
                                      PackedProduct<T>{count, s.classes, depth}, w, scores, some);
      for (Dim i = 0; i < count; ++i)
        std::copy_n(some + i * depth, depth, dx + rows[first + i] * depth);
    }
    LongSum sum;
    for (Dim i = 0; i < used; ++i) sum.add(losses[i]);
    loss[0] = T(sum.value() * share);
  }

  bool is_ignored(I label) const { return s.has_ignored && Dim(label) == s.ignored; }
};

template <bool class_rows, class T, class Matrix>
void run_product_cross_entropy(Call& call, const Matrix& w, Dim classes, Dim depth) {
  const Shape& x = call.shape("X");
  if (x[x.rank() - 1] != depth)
    call.fail("input X has shape " + to_string(x) + ", expected " + std::to_string(depth) +
              " columns, as W has");
  Classes s{x.product(0, x.rank() - 1), classes, 1, reduction_of(call), false, 0};
  read_ignored(call, s);
  with_index_type(call, "labels", [&](auto zero) {
    using I = decltype(zero);
    check_labels<I>(call, "labels", s);
    ProductCrossEntropy<class_rows, T, I, Matrix>{w, s, depth}.run(
        call, call.input<T>("X").data(), call.input<I>("labels").data(), call.wants("dX"));
  });
}

}  // namespace onnxgrad::ONNXGRAD_ISA
