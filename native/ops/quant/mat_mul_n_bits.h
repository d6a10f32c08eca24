// W[n][k] = (q − z)·scale, q and z of 2, 4 or 8 bits in blocks along k, the low bits of a byte
// first; what MatMulNBits of onnxruntime multiplies with.
#pragma once
#include "ops/quant/packed_product.h"

namespace onnxgrad::ONNXGRAD_ISA {

template <class T> struct NBitsMatrix {
  PackedSizes size;
  int bits;
  Dim blocks;  // of a row
  const std::uint8_t* q;
  const T* scales;
  const std::uint8_t* points;  // packed zero points, or
  const T* zeros;              // zero points as numbers, or neither: 2^(bits−1)

  Dim row_bytes() const { return blocks * size.block * bits / 8; }
  Dim point_bytes() const { return (blocks * bits + 7) / 8; }

  static int code(const std::uint8_t* from, Dim i, int bits) {
    const Dim bit = i * bits;
    return (from[bit / 8] >> (bit % 8)) & ((1 << bits) - 1);
  }
  T zero(Dim n, Dim block) const {
    if (zeros) return zeros[n * blocks + block];
    return T(points ? code(points + n * point_bytes(), block, bits) : 1 << (bits - 1));
  }

  void row(Dim n, Dim k, Dim count, T* out) const {
    const std::uint8_t* from = q + n * row_bytes();
    for (const Dim end = k + count; k < end;) {
      const Dim block = k / size.block, next = (block + 1) * size.block;
      const Dim stop = next < end ? next : end;
      const T scale = scales[n * blocks + block], z = zero(n, block);
      if (bits == 4)
        for (; k % 2 == 0 && k + 2 <= stop; k += 2, out += 2) {
          const int two = from[k / 2];
          out[0] = (T(two & 15) - z) * scale, out[1] = (T(two >> 4) - z) * scale;
        }
      for (; k < stop; ++k) *out++ = (T(code(from, k, bits)) - z) * scale;
    }
  }
};

inline Contract with_nbits_inputs(Contract c) {
  return c.attr("K", 0, "the columns of W")
      .attr("N", 0, "the rows of W")
      .attr("bits", 4, "of a number: 2, 4 or 8")
      .attr("block_size", 32, "numbers of a row that share a scale: a power of 2 from 16 on")
      .input("B", "uint8[packed...]", "W in integers: [N, blocks, block_size·bits/8]")
      .input("scales", "T[scales...]", "one per block: [N, blocks]")
      .optional("zero_points", "uint8[points...]", "packed like B: [N, ceil(blocks·bits/8)]")
      .optional("zeros", "T[zeros...]", "the same as numbers: [N, blocks]");
}

template <class T> NBitsMatrix<T> nbits_matrix(const Call& call) {
  const PackedSizes s = PackedSizes::of(call);
  const Dim bits = call.integer("bits");
  if (bits != 2 && bits != 4 && bits != 8)
    call.fail("bits is " + std::to_string(bits) + ", expected 2, 4 or 8");
  if (s.block < 16 || (s.block & (s.block - 1)) != 0)
    call.fail("block_size is " + std::to_string(s.block) + ", expected a power of 2 from 16 on");
  const Dim blocks = (s.k + s.block - 1) / s.block;
  check_size(call, "B", s.n * blocks * (s.block * bits / 8));
  check_size(call, "scales", s.n * blocks);
  if (call.has("zero_points")) check_size(call, "zero_points", s.n * ((blocks * bits + 7) / 8));
  if (call.has("zeros")) check_size(call, "zeros", s.n * blocks);
  if (call.has("zero_points") && call.has("zeros"))
    call.fail("zero_points and zeros are both given, expected one of them");
  return {s,
          static_cast<int>(bits),
          blocks,
          call.input<std::uint8_t>("B").data(),
          call.input<T>("scales").data(),
          call.has("zero_points") ? call.input<std::uint8_t>("zero_points").data() : nullptr,
          call.has("zeros") ? call.input<T>("zeros").data() : nullptr};
}

}  // namespace onnxgrad::ONNXGRAD_ISA
