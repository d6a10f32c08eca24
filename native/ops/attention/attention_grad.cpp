#include <algorithm>
#include <cmath>

#include "ops/attention/attention.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& attention_grad_contract() {
  static const Contract c =
      with_attention_attributes(Contract("AttentionGrad"))
          .summary("Gradient of AttentionTraining; the weights are computed anew, block by block.")
          .formula(
              "P = exp(scale·Q·Kᵀ + mask − ΣLSE); dV = dropout(P)ᵀ·dY; dP = dropout(dY·Vᵀ); "
              "dS = P·(dP − Σ dY·Y); dQ = scale·dS·K; dK = scale·dSᵀ·Q; dmask = Σ dS over what was "
              "broadcast")
          .accuracy(Measure::rms, 4e-6, 1e-12)
          .input("dY", "T[y...]", "cotangent of Y")
          .input("Y", "T[y...]", "what AttentionTraining gave")
          .input("LSE", "T[N, H, S, 2]", "what AttentionTraining gave")
          .input("Q", "T[q...]", "queries, or queries, keys and values in one")
          .optional("K", "T[k...]", "keys")
          .optional("V", "T[v...]", "values")
          .optional("mask", "T[mask...]", "what was added to the scores")
          .optional("key", "int64[2]", "of dropout, the forward one's")
          .output("dQ", "T[q...]",
                  "gradient of Q, which holds those of keys and values where Q does")
          .optional_output("dK", "T[k...]", "gradient of K")
          .optional_output("dV", "T[v...]", "gradient of V")
          .optional_output("dmask", "T[mask...]", "gradient of the mask");
  return c;
}

namespace {

// How the work is cut. A piece owns some batches, groups and keys, and with them their parts of dK
// and dV. A piece that does not own all keys has its own dQ, and these are summed afterwards:
// kMostKeyCuts of them at most. The same for dmask where batches or heads share a mask; where these
// would take more than kMostMasks bytes, one piece owns all that share it.
constexpr Dim kMostKeyCuts = 16;
constexpr Dim kMostMasks = Dim(16) << 20;
struct GradientCuts {
  Dim batches, groups, keys;  // pieces along each axis
  Dim count() const { return batches * groups * keys; }
};

template <class T> struct AttentionBackward {
  const AttentionShape s;
  const T *dy, *y, *lse, *q, *k, *v, *mask;
  T *dq, *dk, *dv, *dmask;
  WeightDropout<T> dropout;
  GradientCuts cuts;
  T* partial_dq;    // [cuts.keys, N, H, S, D]; null where dQ is written at once
  Dim mask_size;    // of dmask; 0 where nobody asks for it
  T* partial_mask;  // [masks(), mask_size]; null where dmask is written at once

  Dim all_sets() const { return larger_of(1, s.batches * s.groups); }
  Dim key_block() const { return s.template key_block<T>(divide_up(kAttentionPieces, all_sets())); }
  Dim key_blocks() const { return divide_up(s.keys, key_block()); }
  Dim query_block() const { return s.query_block(1); }
  Dim pitch() const { return key_block() + lanes<T>; }
  static Dim part(Dim size, Dim cut, Dim cuts) { return size * cut / cuts; }

  // Gradients of the mask that batches and groups have of their own, and add up afterwards.
  Dim batch_masks() const { return s.mask_key && s.mask_row.batch == 0 ? s.batches : 1; }
  Dim group_masks() const { return s.mask_key && s.mask_row.head == 0 ? s.groups : 1; }
  Dim masks() const { return batch_masks() * group_masks(); }
  bool masks_fit() const {
    return bounded_product(masks() * Dim(sizeof(T)), mask_size) <= kMostMasks;
  }

  // Where a cut has one block of keys, dQ is added up in the same order as without cuts: its bits
  // do not depend on whether dmask is asked for. Longer rows have as many cuts in both cases.
  GradientCuts cut() const {
    const GradientCuts joint{s.batches / larger_of(1, batch_masks()),
                             s.groups / larger_of(1, group_masks()), 1};
    GradientCuts found = masks_fit() ? GradientCuts{s.batches, s.groups, 1} : joint;
    const Dim each = s.batches * s.heads * s.rows * s.depth * Dim(sizeof(T));
    const Dim most = smaller_of((Dim(32) << 20) / larger_of(1, each), kMostKeyCuts);
    const Dim wanted = divide_up(kAttentionPieces, larger_of(1, found.count()));
    if (key_blocks() <= most)
      found.keys = wanted > 1 ? key_blocks() : 1;
    else
      found.keys = smaller_of(most, divide_up(kAttentionPieces, larger_of(1, joint.count())));
    found.keys = larger_of(1, found.keys);
    return found;
  }

  struct GradientBlocks {
    T *keys_t, *values_t, *keys, *q, *dy, *p, *ds;
  };
  GradientBlocks carve(Carver& carver) const {
    GradientBlocks m;
    m.keys_t = carver.take<T>(packed_size<T>(s.depth, key_block()));
    m.values_t = carver.take<T>(packed_size<T>(s.width, key_block()));
    m.keys = carver.take<T>(packed_size<T>(key_block(), s.depth));
    m.q = carver.take<T>(packed_size<T>(query_block(), s.depth));
    m.dy = carver.take<T>(packed_size<T>(query_block(), s.width));
    m.p = carver.take<T>(query_block() * pitch());
    m.ds = carver.take<T>(query_block() * pitch());
    return m;
  }

  // Where this piece writes the gradient of a head's queries.
  T* query_gradient(Dim key_cut, Dim n, Dim h, Dim row) const {
    if (!partial_dq) return dq + s.q.at(n, h, row);
    return partial_dq + (((key_cut * s.batches + n) * s.heads + h) * s.rows + row) * s.depth;
  }
  T* mask_gradient(Dim n, Dim g) const {
    if (!partial_mask) return dmask;
    const Dim batch = batch_masks() > 1 ? n : 0, group = group_masks() > 1 ? g : 0;
    return partial_mask + (batch * group_masks() + group) * mask_size;
  }
  Dim query_pitch() const { return partial_dq ? s.depth : s.q.token; }

  void run(Dim piece, char* memory) const {
    Carver carver(memory);
    const GradientBlocks m = carve(carver);
    const Dim key_cut = piece % cuts.keys, set = piece / cuts.keys;
    const Dim group_cut = set % cuts.groups, batch_cut = set / cuts.groups;
    const Dim from = part(key_blocks(), key_cut, cuts.keys),
              to = part(key_blocks(), key_cut + 1, cuts.keys);
    for (Dim n = part(s.batches, batch_cut, cuts.batches);
         n < part(s.batches, batch_cut + 1, cuts.batches); ++n)
      for (Dim g = part(s.groups, group_cut, cuts.groups);
           g < part(s.groups, group_cut + 1, cuts.groups); ++g) {
        clear_queries(key_cut, n, g);
        for (Dim b = from; b < to; ++b) add_keys(key_cut, n, g, b * key_block(), m);
      }
  }

  void clear(T* out, Dim pitch_of, Dim rows, Dim width) const {
    for (Dim i = 0; i < rows; ++i) std::fill_n(out + i * pitch_of, width, T(0));
  }
  void clear_queries(Dim key_cut, Dim n, Dim g) const {
    const Dim heads = s.heads_per_group();
    for (Dim h = g * heads; h < (g + 1) * heads; ++h)
      clear(query_gradient(key_cut, n, h, 0), query_pitch(), s.rows, s.depth);
  }

  // One block of keys against every query that reads it.
  void add_keys(Dim key_cut, Dim n, Dim g, Dim first, const GradientBlocks& m) const {
    const Dim count = smaller_of(key_block(), s.keys - first), heads = s.heads_per_group();
    const T *keys = k + s.k_from + s.k.at(n, g, first),
            *values = v + s.v_from + s.v.at(n, g, first);
    pack_transposed(keys, s.k.token, s.depth, count, m.keys_t);
    pack_transposed(values, s.v.token, s.width, count, m.values_t);
    pack(keys, s.k.token, count, s.depth, m.keys);
    if (dk) clear(dk + s.k_from + s.k.at(n, g, first), s.k.token, count, s.depth);
    if (dv) clear(dv + s.v_from + s.v.at(n, g, first), s.v.token, count, s.width);
    for (Dim h = g * heads; h < (g + 1) * heads; ++h)
      for (Dim row = 0; row < s.rows; row += query_block()) {
        const Dim rows = smaller_of(query_block(), s.rows - row);
        const ScoreTile tile = ScoreTile::of(s, row, rows, first, count);
        if (tile.read() > 0) add_tile(key_cut, n, g, h, row, first, tile, m);
      }
  }

  void add_tile(Dim key_cut, Dim n, Dim g, Dim h, Dim row, Dim first, const ScoreTile& tile,
                const GradientBlocks& m) const {
    const T *queries = q + s.q.at(n, h, row), *cotangents = dy + s.y.at(n, h, row);
    T* mask_out = dmask ? mask_gradient(n, g) : nullptr;
    set_scores(tile, Rows<T>{queries, s.q.token}, s.depth, m.keys_t, m.p, pitch());
    set_scores(tile, Rows<T>{cotangents, s.y.token}, s.width, m.values_t, m.ds, pitch());
    for (Dim i = 0; i < tile.rows; ++i) {
      const T row_dot = dot(cotangents + i * s.y.token, y + s.y.at(n, h, row + i));
      row_gradient(n, h, row, i, first, tile, row_dot, m.p + i * pitch(), m.ds + i * pitch(),
                   mask_out);
    }
    mix_keys(true, tile, m.ds, pitch(), m.keys, s.depth, query_gradient(key_cut, n, h, row),
             query_pitch());
    if (dv) {
      pack(cotangents, s.y.token, tile.rows, s.width, m.dy);
      add_to_keys(tile, m.p, pitch(), m.dy, s.width, dv + s.v_from + s.v.at(n, g, first),
                  s.v.token);
    }
    if (dk) {
      pack(queries, s.q.token, tile.rows, s.depth, m.q);
      add_to_keys(tile, m.ds, pitch(), m.q, s.depth, dk + s.k_from + s.k.at(n, g, first),
                  s.k.token);
    }
  }

  T dot(const T* a, const T* b) const {
    Vec<T> sum{};
    each_register<T>(0, s.width, [&](Dim i, Dim n) ONNXGRAD_LAMBDA {
      sum = fma(load_some<T>(a + i, n), load_some<T>(b + i, n), sum);
    });
    return sum_lanes<T>(sum);
  }

  // Of one row: scores become the weights that met the values, dY·Vᵀ becomes scale·dS; dS is added
  // to the gradient of the mask.
  void row_gradient(Dim n, Dim h, Dim from, Dim i_row, Dim first, const ScoreTile& tile, T row_dot,
                    T* p, T* ds, T* mask_out) const {
    const Dim row = from + i_row, read = tile.read_by(i_row), end = tile.end_of_zeros(i_row);
    const Dim at_mask = s.mask_row.at(n, h, row) + first * s.mask_key;
    const T* parts = lse + 2 * ((n * s.heads + h) * s.rows + row);
    // A row that reads nothing has −inf: its weights are 0, not exp(−inf + inf).
    const bool nothing = parts[0] == -std::numeric_limits<T>::infinity();
    const Vec<T> shift = splat<T>(nothing ? T(0) : parts[0]),
                 log_sum = splat<T>(nothing ? T(0) : parts[1]);
    const Vec<T> dots = splat<T>(row_dot), scale = splat<T>(T(s.scale));
    // a number added to all of a row changes nothing: its gradient is 0
    T* out = mask_out && s.mask_key ? mask_out + at_mask : nullptr;
    const bool at_once = !dropout && !out;
    each_score<T>(p, read, T(s.scale), mask ? mask + at_mask : nullptr, s.mask_key,
                  [&](Dim i, Dim some, Vec<T> score) ONNXGRAD_LAMBDA {
                    const Vec<T> weight = detail::exp_negative<T>((score - shift) - log_sum);
                    store_some<T>(p + i, weight, some);
                    if (!at_once) return;
                    store_some<T>(ds + i, weight * (load_some<T>(ds + i, some) - dots) * scale,
                                  some);
                  });
    for (Dim i = read; i < end; ++i) p[i] = ds[i] = T(0);
    if (at_once) return;
    if (dropout)
      dropout.each(((n * s.heads + h) * s.rows + row) * s.keys + first, read, [&](Dim i, T factor) {
        ds[i] = p[i] * (ds[i] * factor - row_dot);
        p[i] *= factor;
      });
    each_register<T>(0, read, [&](Dim i, Dim some) ONNXGRAD_LAMBDA {
      Vec<T> gradient = load_some<T>(ds + i, some);
      if (!dropout) gradient = load_some<T>(p + i, some) * (gradient - dots);
      if (out) store_some<T>(out + i, load_some<T>(out + i, some) + gradient, some);
      store_some<T>(ds + i, gradient * scale, some);
    });
  }

  // dmask = the sum of what batches and groups found, in their order.
  void sum_masks(Call& call) const {
    call.parallel_ranges(mask_size, kReduceBlock * 8, [&](Dim from, Dim to) {
      each_register<T>(from, to, [&](Dim i, Dim some) ONNXGRAD_LAMBDA {
        Vec<T> sum{};
        for (Dim m = 0; m < masks(); ++m)
          sum += load_some<T>(partial_mask + m * mask_size + i, some);
        store_some<T>(dmask + i, sum, some);
      });
    });
  }

  // dQ = the sum of what the pieces found for their keys, in their order.
  void sum_queries(Call& call) const {
    const Dim all = s.batches * s.heads * s.rows,
              grain = larger_of(1, kReduceBlock * 8 / larger_of(1, s.depth));
    call.parallel_ranges(all, grain, [&](Dim from, Dim to) {
      for (Dim i = from; i < to; ++i) {
        const Dim n = i / (s.heads * s.rows), h = i / s.rows % s.heads, row = i % s.rows;
        T* out = dq + s.q.at(n, h, row);
        each_register<T>(0, s.depth, [&](Dim d, Dim some) ONNXGRAD_LAMBDA {
          Vec<T> sum{};
          for (Dim c = 0; c < cuts.keys; ++c)
            sum += load_some<T>(partial_dq + (c * all + i) * s.depth + d, some);
          store_some<T>(out + d, sum, some);
        });
      }
    });
  }
};

}  // namespace

template <class T> void attention_grad(Call& call) {
  const AttentionShape s = described_attention(call);
  const Shape lse{s.batches, s.heads, s.rows, 2};
  if (call.shape("Y") != s.y_shape)
    call.fail("input Y has shape " + to_string(call.shape("Y")) + ", expected " +
              to_string(s.y_shape));
  if (call.shape("LSE") != lse)
    call.fail("input LSE has shape " + to_string(call.shape("LSE")) + ", expected " +
              to_string(lse));
  for (const char* name : {"K", "V", "mask"})
    if (!call.has(name) && call.wants(std::string("d") + name))
      call.fail(std::string("has no input ") + name + " and is asked for d" + name +
                "; ask for the other outputs only");
  const T* q = call.input<T>("Q").data();
  AttentionBackward<T> back{s,
                            call.input<T>("dY").data(),
                            call.input<T>("Y").data(),
                            call.input<T>("LSE").data(),
                            q,
                            s.packed ? q : call.input<T>("K").data(),
                            s.packed ? q : call.input<T>("V").data(),
                            call.input<T>("mask").data(),
                            nullptr,
                            nullptr,
                            nullptr,
                            nullptr,
                            WeightDropout<T>(call),
                            {},
                            nullptr,
                            call.wants("dmask") ? call.shape("mask").size() : 0,
                            nullptr};
  back.cuts = back.cut();
  Carver count(nullptr);
  back.carve(count);
  Workspace space;
  const Dim queries = s.batches * s.heads * s.rows * s.depth;
  const auto partial = space.shared<T>(back.cuts.keys > 1 ? back.cuts.keys * queries : 0);
  const bool masks = back.mask_size > 0 && back.masks() > 1 && back.masks_fit();
  const auto partial_mask = space.shared<T>(masks ? back.masks() * back.mask_size : 0);
  const auto scratch = space.scratch<char>(count.bytes(), larger_of(1, back.cuts.count()));
  Workspace::acquire(call, space.bytes());
  back.dq = call.output<T>("dQ").data();
  back.dk = s.packed ? back.dq : call.optional_output<T>("dK").data(),
  back.dv = s.packed ? back.dq : call.optional_output<T>("dV").data();
  const Span<T> dmask = call.optional_output<T>("dmask");
  back.dmask = dmask.data();
  space.open();
  if (back.cuts.keys > 1) back.partial_dq = space[partial].data();
  if (masks) back.partial_mask = space[partial_mask].data();
  const Span<T> summed = masks ? space[partial_mask] : dmask;
  call.parallel_ranges(summed.size(), Dim(1) << 16, [&](Dim from, Dim to) {
    std::fill(summed.data() + from, summed.data() + to, T(0));
  });
  call.parallel_for(back.cuts.count(), [&](Dim piece) {
    const auto mine = space.borrow(scratch);
    back.run(piece, mine.data());
  });
  if (back.partial_dq) back.sum_queries(call);
  if (back.partial_mask) back.sum_masks(call);
}
ONNXGRAD_FLOAT_AND_DOUBLE(attention_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
