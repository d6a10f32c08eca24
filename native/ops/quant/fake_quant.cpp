#include "ops/quant/fake_quant.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& fake_quant_contract() {
  static const Contract c =
      with_range_attributes(Contract("FakeQuant"), "scale")
          .summary("Quantises to integers and back: what a quantised model will make of a tensor.")
          .formula(
              "r = clip(round(input / scale) + z, quant_min, quant_max) − z, halves to even; "
              "output = r · scale")
          .accuracy(Measure::rms, 2e-7, 1e-15)
          .attr("scale_gradient", "exact", {"exact", "lsq", "lsq_log"},
                "the pace of learned scales: see LearnedFakeQuantGrad, which reads it")
          .attr("batched", 0, "1: axis 0 is a batch, for scale_gradient")
          .input("input", "T[shape...]", "what is quantised")
          .input("scale", "T[scales...]",
                 "one; one for each index of the axis; or one for each block of it")
          .input("zero_point", "T[scales...]", "the integer that stands for 0, rounded")
          .output("output", "T[shape...]", "the numbers that the integers stand for")
          .optional_output("mask", "bool[shape...]", "whether the integer was within its range");
  return c;
}

template <class T> void fake_quant(Call& call) {
  QuantCall<T> quant(call, "input");
  Workspace::acquire(call, quant.space.bytes());
  const T* x = call.input<T>("input").data();
  T* y = call.output<T>("output").data();
  bool* mask = call.optional_output<bool>("mask").data();
  quant.space.open();
  const QuantScales<T> scales = quant.scales(call);
  each_quantised<T>(call, quant.layout, scales,
                    [=](Dim at, Dim n, const FakeQuantiser<T>& q) ONNXGRAD_LAMBDA {
                      const Vec<T> r = q.rounded(load_some<T>(x + at, n));
                      if (y) store_some<T>(y + at, q.clipped(r) * q.scale, n);
                      if (!mask) return;
                      const VecBits<T> inside = q.inside(r);
                      for (Dim i = 0; i < n; ++i) mask[at + i] = inside[i] != 0;
                    });
}
ONNXGRAD_FLOAT_AND_DOUBLE(fake_quant)

}  // namespace onnxgrad::ONNXGRAD_ISA
