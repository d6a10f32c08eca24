// W[n][k] = table[code]·absmax, the 4-bit codes of W one after the other, high nibble first, in
// blocks that pass over the ends of rows; what MatMulBnb4 of onnxruntime multiplies with.
#pragma once
#include "ops/quant/packed_product.h"

namespace onnxgrad::ONNXGRAD_ISA {

// By quant_type: FP4, a sign, two bits of exponent and one of mantissa; NF4, quantiles of a normal
// distribution (QLoRA, appendix E).
constexpr double kFourBits[2][16] = {
    {0.0, 0.00520833333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25, -0.0, -0.00520833333,
     -0.66666667, -1.0, -0.33333333, -0.5, -0.16666667, -0.25},
    {-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
     -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
     0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
     0.7229568362236023, 1.0}};

template <class T> struct Bnb4Matrix {
  PackedSizes size;
  const std::uint8_t* codes;
  const T* absmax;
  T table[16];

  void row(Dim n, Dim k, Dim count, T* out) const {
    Dim i = n * size.k + k;
    for (const Dim end = i + count; i < end;) {
      const Dim block = i / size.block, next = (block + 1) * size.block;
      const Dim stop = next < end ? next : end;
      const T scale = absmax[block];
      for (; i % 2 == 0 && i + 2 <= stop; i += 2, out += 2) {
        const int two = codes[i / 2];
        out[0] = table[two >> 4] * scale, out[1] = table[two & 15] * scale;
      }
      for (; i < stop; ++i) *out++ = table[(codes[i / 2] >> (i % 2 ? 0 : 4)) & 15] * scale;
    }
  }
};

inline Contract with_bnb4_inputs(Contract c) {
  return c.attr("K", 0, "the columns of W")
      .attr("N", 0, "the rows of W")
      .attr("quant_type", 1, "0: FP4, 1: NF4")
      .attr("block_size", 64, "numbers that share an absmax: a power of 2 from 16 on")
      .input("B", "uint8[packed...]", "the codes of W: [ceil(N·K/2)]")
      .input("absmax", "T[scales...]", "one per block: [ceil(N·K/block_size)]");
}

template <class T> Bnb4Matrix<T> bnb4_matrix(const Call& call) {
  const PackedSizes s = PackedSizes::of(call);
  const Dim kind = call.integer("quant_type");
  if (kind != 0 && kind != 1)
    call.fail("quant_type is " + std::to_string(kind) + ", expected 0 or 1");
  if (s.block < 16 || (s.block & (s.block - 1)) != 0)
    call.fail("block_size is " + std::to_string(s.block) + ", expected a power of 2 from 16 on");
  check_size(call, "B", (s.n * s.k + 1) / 2);
  check_size(call, "absmax", (s.n * s.k + s.block - 1) / s.block);
  Bnb4Matrix<T> w{s, call.input<std::uint8_t>("B").data(), call.input<T>("absmax").data(), {}};
  for (int i = 0; i < 16; ++i) w.table[i] = T(kFourBits[kind][i]);
  return w;
}

}  // namespace onnxgrad::ONNXGRAD_ISA
