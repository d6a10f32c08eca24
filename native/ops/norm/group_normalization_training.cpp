#include "ops/norm/group_normalization_grad.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& group_normalization_training_contract() {
  static const Contract c =
      Contract("GroupNormalizationTraining")
          .summary("GroupNormalization, and with a group per channel InstanceNormalization.")
          .formula(
              "mean, var over each group of channels of an image; Y = (X − mean)·inv·scale + bias, "
              "inv = 1/√(var + epsilon)")
          .accuracy(Measure::rms, 2e-6, 1e-13)
          .attr("activation", "none", {"none", "relu"}, "relu: negative results become 0")
          .attr("epsilon", 1e-5f, "added to the variance")
          .attr("num_groups", 1, "number of groups that the channels are divided into")
          .within(1)
          .input("X", "T[N, C, size...]", "what is normalised")
          .input("scale", "T[K...]", "scale of each channel, or of each group as in opset 18")
          .input("bias", "T[K...]", "bias of each channel, or of each group")
          .output("Y", "T[N, C, size...]", "the normalised tensor");
  return c;
}

template <class T> void group_normalization_training(Call& call) {
  const Dim groups = checked_groups(call, "X"), scales = call.shape("scale").size();
  const Shape& shape = call.shape("X");
  const Dim channels = shape[1], share = scales ? channels / scales : 1;  // channels of one scale
  const ChannelSets sets =
      ChannelSets::of_groups(shape[0], channels, groups, shape.product(2, shape.rank()));
  Workspace space;
  const auto all_sums = space.shared<Sums>(sets.all_pieces());
  Workspace::acquire(call, space.bytes());
  const T *x = call.input<T>("X").data(), *scale = call.input<T>("scale").data(),
          *bias = call.input<T>("bias").data();
  const double epsilon = double(call.real("epsilon"));
  const bool streamed = 2 * shape.size() * Dim(sizeof(T)) > kStreamBytes,
             cut = call.text("activation") == "relu";
  const Span<T> y = call.output<T>("Y");
  space.open();
  Sums* sums = space[all_sums].data();
  sets.each_set(call, [&](Dim set, const auto& go) {
    const SetStatistics<T> s = statistics_of<T>(sets, set, go, x, sums);
    const double inv = 1 / std::sqrt(s.variance + epsilon);
    const Vec<T> mean = splat<T>(s.mean.value);
    go(sets.pieces(), [&](Dim i) {
      const auto p = sets.piece(set, i);
      const Dim k = p.row % channels / share;
      const double slope = inv * double(scale[k]);
      const Vec<T> factor = splat<T>(T(slope)),
                   offset = splat<T>(T(double(bias[k]) - s.mean.off * slope));
      fill<T>(y.part(p.at, p.size), streamed, [&](Dim at, Dim n) ONNXGRAD_LAMBDA {
        const Vec<T> result = fma(load_some<T>(x + p.at + at, n) - mean, factor, offset);
        return cut ? select(result < Vec<T>{}, Vec<T>{}, result) : result;  // NaN stays
      });
      if (streamed) stream_done();
    });
  });
}
ONNXGRAD_FLOAT_AND_DOUBLE(group_normalization_training)

}  // namespace onnxgrad::ONNXGRAD_ISA
