#include "ops/loss/cross_entropy.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& softmax_cross_entropy_loss_internal_contract() {
  static const Contract c =
      Contract("SoftmaxCrossEntropyLossInternal")
          .summary(
              "SoftmaxCrossEntropyLoss with ignore_index as an input; keeps what its gradient "
              "needs.")
          .formula(
              "log_prob = scores − log Σ exp(scores); output = −weight[label]·log_prob[label], "
              "summed, or divided by Σ weight[label] for 'mean'")
          .accuracy(Measure::rms, 2e-6, 1e-13)
          .attr("reduction", "mean", {"none", "sum", "mean"}, "how the loss is reduced")
          .attr("output_type", Kind::integer,
                "ONNX's number of the type of the outputs; only that of the scores")
          .input("scores", "T[N, C, d...]", "scores of the classes")
          .input("labels", "I[labels...]", "labels, [N, d...]")
          .optional("weights", "T[K]", "weight of each class; 1 when absent")
          .optional("ignore_index", "int64[]", "a label that does not count")
          .output("output", "T[loss...]", "the loss: a scalar, or one per label for 'none'")
          .output("log_prob", "T[N, C, d...]", "logarithms of the probabilities")
          .inplace("scores",
                   "log_prob");  // a large vocabulary's scores are most of a step's memory
  return c;
}

namespace {

// Labels [from, to) of one slab [classes, inner], a register of labels at a time.
template <class T>
void set_log_columns(const Classes& s, const T* x, T* log_prob, Dim from, Dim to) {
  each_register<T>(from, to, [&](Dim i, Dim n) ONNXGRAD_LAMBDA {
    Vec<T> top = splat<T>(-std::numeric_limits<T>::infinity()), rest{}, tops{}, block{};
    for (Dim c = 0; c < s.classes; ++c) top = at_least(top, load_some<T>(x + c * s.inner + i, n));
    for (Dim c = 0; c < s.classes; ++c) {
      add_exponential<T>(load_some<T>(x + c * s.inner + i, n) - top, block, tops);
      if (c % 32 == 31) rest += block, block = Vec<T>{};
    }
    rest += block;
    T logs[lanes<T>];
    for (Dim k = 0; k < lanes<T>; ++k) logs[k] = T(log_of_sum(double(rest[k]), double(tops[k])));
    const Vec<T> shift = load<T>(logs);
    for (Dim c = 0; c < s.classes; ++c)
      store_some<T>(log_prob + c * s.inner + i,
                    (load_some<T>(x + c * s.inner + i, n) - top) - shift, n);
  });
}

// done(begin, end) follows for the labels [begin, end) of each piece of work.
template <class T, class F>
void set_log_rows(Call& call, const Classes& s, const T* x, T* log_prob, F&& done) {
  const bool streamed = false;  // the loss reads log_prob next
  call.parallel_ranges(s.outer, rows_together(s.classes), [&](Dim begin, Dim end) {
    for (Dim k = begin; k < end; ++k)
      set_log_row<T>(s.classes, x + k * s.classes, log_prob + k * s.classes, streamed);
    done(begin, end);
  });
}
template <class T> void set_all_log_columns(Call& call, const Classes& s, const T* x, T* log_prob) {
  constexpr Dim kWidth = 256;
  const Dim stripes = divide_up(s.inner, kWidth), slab = s.classes * s.inner;
  call.parallel_for(s.outer * stripes, [&](Dim piece) {
    const Dim o = piece / stripes, from = piece % stripes * kWidth;
    set_log_columns<T>(s, x + o * slab, log_prob + o * slab, from,
                       smaller_of(from + kWidth, s.inner));
  });
}

template <class T, class I> void run(Call& call, const Classes& s) {
  check_labels<I>(call, "labels", s);
  if (call.has("weights"))
    check_shape(call, "weights", Shape{s.classes}, [] { return "one per class"; });
  call.set_dims("loss...", s.reduction == Reduction::none ? call.shape("labels") : Shape{});
  const I* labels = call.input<I>("labels").data();
  const T* weights = call.input<T>("weights").data();
  Workspace space;
  const Dim together = s.inner == 1 ? rows_together(s.classes) : larger_of(s.labels(), 1),
            pieces = divide_up(s.labels(), together);
  const auto partial = space.shared<LongSum>(pieces);
  Workspace::acquire(call, space.bytes());
  const Span<T> loss = call.output<T>("output"), log_prob = call.output<T>("log_prob");
  space.open();
  const Span<LongSum> sums = space[partial];
  const T* x = call.input<T>("scores").data();
  const auto add_losses = [&](Dim begin, Dim end) {
    LongSum sum;
    for (Dim k = begin; k < end; ++k) {
      const double w = weight_of<T, I>(s, labels, weights, k);
      const Dim at = (k / s.inner * s.classes + Dim(labels[k])) * s.inner + k % s.inner;
      const double value = w == 0 ? 0 : -w * double(log_prob[at]);
      if (s.reduction == Reduction::none) loss[k] = T(value);
      sum.add(value);
    }
    sums[begin / together] = sum;
  };
  if (s.inner == 1) set_log_rows<T>(call, s, x, log_prob.data(), add_losses);
  if (s.inner != 1) {
    set_all_log_columns<T>(call, s, x, log_prob.data());
    if (pieces) add_losses(0, s.labels());
  }
  LongSum sum;
  for (const LongSum& one : sums) sum.add(one);
  if (s.reduction == Reduction::sum) loss[0] = T(sum.value());
  const double whole =
      sum_of_weights<T, I>(s, labels, weights);  // 0 when every label is ignored; so is the loss
  if (s.reduction == Reduction::mean) loss[0] = T(whole == 0 ? 0 : sum.value() / whole);
}

}  // namespace

template <class T> void softmax_cross_entropy_loss_internal(Call& call) {
  check_output_type(call);
  Classes s = classes_of(call, "scores", "labels");
  read_ignored(call, s);
  with_index_type(call, "labels", [&](auto zero) { run<T, decltype(zero)>(call, s); });
}
ONNXGRAD_FLOAT_AND_DOUBLE(softmax_cross_entropy_loss_internal)

}  // namespace onnxgrad::ONNXGRAD_ISA
