// Attention, forward and backward, block by block: of the matrix of scores [S, L] only a tile
// exists at a time, so memory grows with S + L, not with S·L.
//
//   attention.h            what a call asks for: shapes, where heads lie, mask, dropout
//   attention_training.cpp Y, and the logarithms of the sums of exponentials in two parts
//   attention_grad.cpp     dQ, dK, dV and the gradient of the mask
//
// Heads lie in one of three ways, and a head is read where it lies (rows of D numbers, `token`
// apart):
//
//   heads    Q[N, H, S, D]   K[N, G, L, D]   V[N, G, L, E]
//   tokens   Q[N, S, H, D]   K[N, L, G, D]   V[N, L, G, E]
//   packed   Q[N, S, 3, H, D], which holds queries, keys and values; K and V are absent
//
// G divides H: head h reads keys and values of group h / (H / G).
#pragma once
#include <limits>

#include "core/gemm.h"
#include "core/random.h"
#include "core/reduce.h"
#include "core/vmath.h"
#include "core/workspace.h"
#include "ops/op.h"

namespace onnxgrad::ONNXGRAD_ISA {

// Rows and columns of a tile: with the packed blocks that it is made of it stays in the
// second-level cache. A multiple of the heights of both register tiles.
constexpr Dim kQueryBlock = 240;
constexpr Dim kKeyBlock = 256;
// Where batches and heads are fewer than so many pieces of work, rows (forward) or keys (backward)
// are cut, too: into blocks that are still worth packing the other side for.
constexpr Dim kAttentionPieces = 32;
constexpr Dim kLeastBlock = 64;
// Along a causal edge, rows or keys that are multiplied together: several register tiles.
constexpr Dim kEdgeStep = 36;

// Elements from one batch, head or token to the next.
struct HeadStrides {
  Dim batch, head, token;
  Dim at(Dim n, Dim h, Dim t) const { return n * batch + h * head + t * token; }
};

struct AttentionShape {
  Dim batches, heads, groups, rows, keys, depth, width;  // N, H, G, S, L, D, E
  bool causal, packed;
  double scale;
  HeadStrides q, k, v, y;  // y has heads where q has them, each E wide
  Dim k_from, v_from;      // where keys and values begin in the packed tensor; 0 otherwise
  Shape y_shape;
  HeadStrides mask_row;  // 0 along an axis that is broadcast
  Dim mask_key;
  bool masked;

  Dim heads_per_group() const { return groups ? heads / groups : 0; }
  // Blocks of rows, `wanted` where that leaves enough for each.
  Dim query_blocks(Dim wanted) const {
    return larger_of(divide_up(rows, kQueryBlock), smaller_of(wanted, rows / kLeastBlock));
  }
  // Rows of a block, nearly equal: 250 = 125 + 125, not 240 + 10.
  Dim query_block(Dim wanted) const { return divide_up(rows, larger_of(1, query_blocks(wanted))); }
  // Key blocks of nearly equal width, whole panels each.
  template <class T> Dim key_block(Dim wanted) const {
    const Dim blocks =
        larger_of(divide_up(keys, kKeyBlock), smaller_of(wanted, divide_up(keys, kLeastBlock)));
    return larger_of(1, divide_up(divide_up(keys, larger_of(1, blocks)), kPanel<T>)) * kPanel<T>;
  }
};

// A tile of scores: so many rows by `count` keys, of which row i reads those before i + reach. What
// no row reads is left out of products, along a causal edge in steps.
struct ScoreTile {
  Dim rows, count, reach;

  static ScoreTile of(const AttentionShape& s, Dim row, Dim rows, Dim first, Dim count) {
    return {rows, count, s.causal ? row - first + 1 : count};
  }
  Dim read_by(Dim row) const { return larger_of(0, smaller_of(count, row + reach)); }
  Dim read() const { return read_by(rows - 1); }
  bool whole() const { return reach >= count; }
  Dim first_reader(Dim key) const { return larger_of(0, key + 1 - reach); }
  // What products may take of a row beyond what it reads: zeros.
  Dim end_of_zeros(Dim row) const { return smaller_of(count, read_by(row) + kEdgeStep); }
};

// scores = A · B, B packed: a column for each key.
template <class T>
void set_scores(const ScoreTile& t, Rows<T> a, Dim depth, const T* packed, T* scores, Dim pitch) {
  const Dim panels = panel_count<T>(t.read());
  if (t.whole())
    return set_product(Part{0, t.rows, 0, panels}, a, depth, packed, t.count, scores, pitch);
  for (Dim p = 0; p < panels; ++p)
    set_product(Part{t.first_reader(p * kPanel<T>), t.rows, p, p + 1}, a, depth, packed, t.read(),
                scores, pitch);
}

// C[rows][width] (+)= weights · B, B packed: a row for each key.
template <class T> void mix_keys(bool add, const ScoreTile& t, const T* weights, Dim pitch,
                                 const T* packed, Dim width, T* c, Dim c_pitch) {
  const Dim panels = panel_count<T>(width);
  const Rows<T> a{weights, pitch};
  if (t.whole())
    return product(add, Part{0, t.rows, 0, panels}, a, t.count, packed, width, c, c_pitch);
  for (Dim row = 0; row < t.rows; row += kEdgeStep) {
    const Part part{row, smaller_of(row + kEdgeStep, t.rows), 0, panels};
    const Addend<T> addend = add ? Addend<T>{c, c_pitch} : Addend<T>{};
    product(addend, part, a, t.read_by(part.row_end - 1), packed, t.count, width, c, c_pitch);
  }
}

// C[count][width] += weightsᵀ · B, B packed: a row for each query.
template <class T> void add_to_keys(const ScoreTile& t, const T* weights, Dim pitch,
                                    const T* packed, Dim width, T* c, Dim c_pitch) {
  const Dim panels = panel_count<T>(width);
  if (t.whole())
    return add_product(Part{0, t.count, 0, panels}, Columns<T>{weights, pitch}, t.rows, packed,
                       width, c, c_pitch);
  for (Dim key = 0; key < t.read(); key += kEdgeStep) {
    const Part part{key, smaller_of(key + kEdgeStep, t.read()), 0, panels};
    const Dim first = t.first_reader(key);
    product(Addend<T>{c, c_pitch}, part, Columns<T>{weights + first * pitch, pitch}, t.rows - first,
            packed + first * kPanel<T>, t.rows, width, c, c_pitch);
  }
}

inline Contract with_attention_attributes(Contract c) {
  return c
      .attr("layout", "heads", {"heads", "tokens"},
            "where heads lie: before the tokens, [N, H, S, D], or after them, [N, S, H, D]")
      .attr("scale", 0.0f, "factor of the scores; 0: 1/√D")
      .attr("causal", 0, "1: row i reads keys 0 … i only")
      .attr("ratio", 0.0f, "the share of weights that dropout makes 0, in [0, 1)")
      .attr("stream", std::int64_t(0), "which dropout of a model this is: each has its own mask");
}

namespace detail {

inline HeadStrides strides_of(bool tokens, Dim heads, Dim length, Dim width) {
  return tokens ? HeadStrides{length * heads * width, width, heads * width}
                : HeadStrides{heads * length * width, length * width, width};
}

inline void expect_attention(const Call& call, bool right, const char* name,
                             const std::string& expected) {
  if (!right)
    call.fail(std::string("input ") + name + " has shape " + to_string(call.shape(name)) +
              ", expected " + expected);
}

inline void describe_packed(const Call& call, AttentionShape& s) {
  const Shape& q = call.shape("Q");
  expect_attention(call, q.rank() == 5 && q[2] == 3, "Q",
                   "[N, S, 3, H, D] where K and V are absent");
  s.batches = q[0], s.rows = s.keys = q[1], s.heads = s.groups = q[3], s.depth = s.width = q[4];
  const Dim all = s.heads * s.depth;
  s.q = s.k = s.v = HeadStrides{s.rows * 3 * all, s.depth, 3 * all};
  s.k_from = all, s.v_from = 2 * all;
  s.y = strides_of(true, s.heads, s.rows, s.width);
  s.y_shape = {s.batches, s.rows, s.heads, s.width};
}

inline void describe_separate(const Call& call, AttentionShape& s) {
  const bool tokens = call.text("layout") == "tokens";
  const int head = tokens ? 2 : 1, token = tokens ? 1 : 2;
  if (!call.has("K") || !call.has("V")) call.fail("has one of K and V, expected both or none");
  const Shape &q = call.shape("Q"), &k = call.shape("K"), &v = call.shape("V");
  const char* order = tokens ? "[N, tokens, heads, width]" : "[N, heads, tokens, width]";
  expect_attention(call, q.rank() == 4, "Q", order);
  expect_attention(call, k.rank() == 4 && k[0] == q[0] && k[3] == q[3], "K",
                   std::string(order) + " with N and width of Q");
  expect_attention(call, v.rank() == 4 && v[0] == k[0] && v[1] == k[1] && v[2] == k[2], "V",
                   std::string(order) + " with all of K but its width");
  s.batches = q[0], s.heads = q[head], s.rows = q[token], s.depth = q[3];
  s.groups = k[head], s.keys = k[token], s.width = v[3];
  expect_attention(call, s.groups > 0 ? s.heads % s.groups == 0 : s.heads == 0, "K",
                   "a number of heads that divides Q's, " + std::to_string(s.heads));
  s.q = strides_of(tokens, s.heads, s.rows, s.depth),
  s.k = strides_of(tokens, s.groups, s.keys, s.depth);
  s.v = strides_of(tokens, s.groups, s.keys, s.width),
  s.y = strides_of(tokens, s.heads, s.rows, s.width);
  s.y_shape = q, s.y_shape[3] = s.width;
}

inline void describe_mask(const Call& call, AttentionShape& s) {
  s.mask_row = {0, 0, 0}, s.mask_key = 0;
  s.masked = call.has("mask");
  if (!s.masked) return;
  const Shape& m = call.shape("mask");
  const Dim full[4] = {s.batches, s.heads, s.rows, s.keys};
  Dim strides[4] = {0, 0, 0, 0}, step = 1;
  bool right = m.rank() <= 4;
  for (int i = 0; right && i < m.rank(); ++i) {
    const int axis = 3 - i;
    const Dim size = m[m.rank() - 1 - i];
    right = size == 1 || size == full[axis];
    strides[axis] = size == 1 ? 0 : step;
    step *= size;
  }
  expect_attention(call, right, "mask",
                   "what broadcasts to [N, H, S, L] = " + to_string(Shape(full, 4)));
  s.mask_row = {strides[0], strides[1], strides[2]}, s.mask_key = strides[3];
}

}  // namespace detail

inline AttentionShape described_attention(const Call& call) {
  AttentionShape s{};
  s.packed = !call.has("K") && !call.has("V");
  s.packed ? detail::describe_packed(call, s) : detail::describe_separate(call, s);
  detail::describe_mask(call, s);
  s.causal = call.integer("causal") != 0;
  const double scale = double(call.real("scale"));
  s.scale = scale != 0 ? scale : 1 / std::sqrt(double(larger_of(1, s.depth)));
  const double ratio = double(call.real("ratio"));
  if (!(ratio >= 0 && ratio < 1))
    call.fail("ratio is " + std::to_string(ratio) + ", expected 0 <= ratio < 1");
  if (ratio > 0 && !call.has("key")) call.fail("has a ratio of dropout and no key");
  return s;
}

// Dropout of the weights [N, H, S, L], the mask that SeededDropout would give them.
template <class T> class WeightDropout {
 public:
  explicit WeightDropout(const Call& call)
      : active_(call.real("ratio") > 0),
        numbers_(active_ ? call.input<std::int64_t>("key").data() : kNoKey, call.integer("stream")),
        limit_(limit_of_share(double(call.real("ratio")))),
        scale_(T(1 / (1 - double(call.real("ratio"))))) {}

  explicit operator bool() const { return active_; }
  // f(i, factor) for elements first + i; factor is 0 where dropped, else the scale of what is kept.
  template <class F> void each(Dim first, Dim count, F&& f) const {
    std::uint32_t random[kBlock];
    for (Dim at = first / kBlock * kBlock; at < first + count; at += kBlock) {
      numbers_.fill(at, random);
      const Dim end = smaller_of(at + kBlock, first + count);
      for (Dim i = larger_of(at, first); i < end; ++i)
        f(i - first, random[i - at] < limit_ ? T(0) : scale_);
    }
  }

 private:
  static constexpr Dim kBlock = 512;
  static constexpr std::int64_t kNoKey[2] = {0, 0};
  bool active_;
  SeededNumbers numbers_;
  std::uint32_t limit_;
  T scale_;
};

// f(i, n, scores) with the scaled and masked scores of one row, a register at a time:  x·scale +
// mask.
template <class T, class F> ONNXGRAD_INLINE void each_score(const T* x, Dim count, T scale,
                                                            const T* mask, Dim mask_key, F&& f) {
  const Vec<T> factor = splat<T>(scale);
  if (!mask)
    each_register<T>(
        0, count, [&](Dim i, Dim n) ONNXGRAD_LAMBDA { f(i, n, load_some<T>(x + i, n) * factor); });
  else if (mask_key)
    each_register<T>(0, count, [&](Dim i, Dim n) ONNXGRAD_LAMBDA {
      f(i, n, fma(load_some<T>(x + i, n), factor, load_some<T>(mask + i, n)));
    });
  else
    each_register<T>(0, count, [&](Dim i, Dim n) ONNXGRAD_LAMBDA {
      f(i, n, fma(load_some<T>(x + i, n), factor, splat<T>(*mask)));
    });
}

// The lanes from n on as `value`.
template <class T, int... lane>
ONNXGRAD_INLINE Vec<T> first_lanes_or(Vec<T> v, Dim n, T value, Lanes<lane...>) {
  const VecBits<T> index{BitsOf<T>(lane)...};
  return select(index < BitsOf<T>(n) - VecBits<T>{}, v, splat<T>(value));
}
template <class T> ONNXGRAD_INLINE Vec<T> first_lanes_or(Vec<T> v, Dim n, T value) {
  return n == lanes<T> ? v : first_lanes_or<T>(v, n, value, EachLane<T>{});
}

}  // namespace onnxgrad::ONNXGRAD_ISA
