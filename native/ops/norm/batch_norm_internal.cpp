#include <cmath>

#include "core/channel_sets.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& batch_norm_internal_contract() {
  static const Contract c =
      Contract("BatchNormInternal")
          .summary("BatchNormalization for training, which keeps what its gradient needs.")
          .formula(
              "mean, var over batch and spatial dims; Y = (X − mean)·inv·scale + B, inv = 1/√(var "
              "+ epsilon); "
              "running = input·momentum + statistic·(1 − momentum)")
          .accuracy(Measure::rms, 2e-6, 1e-13)
          .attr("epsilon", 1e-5f, "added to the variance")
          .attr("momentum", 0.9f, "how much of the running statistics is kept")
          .attr("training_mode", 1, "0: the input statistics are used instead of the batch's")
          .input("X", "T[N, C, size...]", "what is normalised")
          .input("scale", "T[C]", "scale")
          .input("B", "T[C]", "bias")
          .input("input_mean", "T[C]", "running mean so far")
          .input("input_var", "T[C]", "running variance so far")
          .output("Y", "T[N, C, size...]", "the normalised tensor")
          .optional_output("running_mean", "T[C]", "running mean")
          .optional_output("running_var", "T[C]", "running variance")
          .optional_output("saved_mean", "T[C]", "mean that was subtracted")
          .optional_output("saved_inv_std", "T[C]", "inverse deviation that was multiplied by");
  return c;
}

template <class T> void batch_norm_internal(Call& call) {
  const Shape& shape = call.shape("X");
  const ChannelSets sets =
      ChannelSets::of_channels(shape[0], shape[1], shape.product(2, shape.rank()));
  Workspace space;
  const auto all_sums = space.shared<Sums>(sets.all_pieces());
  Workspace::acquire(call, space.bytes());
  const T *x = call.input<T>("X").data(), *scale = call.input<T>("scale").data(),
          *bias = call.input<T>("B").data();
  const T *input_mean = call.input<T>("input_mean").data(),
          *input_var = call.input<T>("input_var").data();
  const Span<T> y = call.output<T>("Y"), saved_mean = call.optional_output<T>("saved_mean"),
                saved_inv = call.optional_output<T>("saved_inv_std");
  const Span<T> running_mean = call.optional_output<T>("running_mean"),
                running_var = call.optional_output<T>("running_var");
  const bool training = call.integer("training_mode") != 0,
             streamed = 2 * shape.size() * Dim(sizeof(T)) > kStreamBytes;
  const double momentum = double(call.real("momentum")), epsilon = double(call.real("epsilon"));
  space.open();
  Sums* sums = space[all_sums].data();
  sets.each_set(call, [&](Dim c, const auto& go) {
    double own_mean = double(input_mean[c]), variance = double(input_var[c]);
    if (training) {
      const SetStatistics<T> s = statistics_of<T>(sets, c, go, x, sums);
      own_mean = double(s.mean.value) + s.mean.off, variance = s.variance;
    }
    const double inv = 1 / std::sqrt(variance + epsilon), kept = training ? momentum : 1;
    if (running_mean) running_mean[c] = T(double(input_mean[c]) * kept + own_mean * (1 - kept));
    if (running_var) running_var[c] = T(double(input_var[c]) * kept + variance * (1 - kept));
    if (saved_mean) saved_mean[c] = T(own_mean);
    if (saved_inv) saved_inv[c] = T(inv);
    const Vec<T> mean = splat<T>(T(own_mean)), factor = splat<T>(T(inv * double(scale[c]))),
                 offset = splat<T>(bias[c]);
    go(sets.pieces(), [&](Dim i) {
      const auto p = sets.piece(c, i);
      fill<T>(y.part(p.at, p.size), streamed, [&](Dim k, Dim n) ONNXGRAD_LAMBDA {
        return fma(load_some<T>(x + p.at + k, n) - mean, factor, offset);
      });
      if (streamed) stream_done();
    });
  });
}
ONNXGRAD_FLOAT_AND_DOUBLE(batch_norm_internal)

}  // namespace onnxgrad::ONNXGRAD_ISA
