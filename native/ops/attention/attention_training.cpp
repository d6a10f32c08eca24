#include <cmath>

#include "ops/attention/attention.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& attention_training_contract() {
  static const Contract c =
      with_attention_attributes(Contract("AttentionTraining"))
          .summary(
              "Attention in one operator, without the matrix of its scores; keeps what its "
              "gradient needs.")
          .formula(
              "P = softmax(scale·Q·Kᵀ + mask) per head; Y = dropout(P)·V; LSE = greatest score of "
              "a row, "
              "log Σ exp(score − greatest). A row that may read no key gives 0")
          .accuracy(Measure::rms, 2e-6, 1e-13)
          .input("Q", "T[q...]", "queries; with queries, keys and values in one: [N, S, 3, H, D]")
          .optional("K", "T[k...]", "keys; G heads, where G divides H")
          .optional("V", "T[v...]", "values; as many heads as K")
          .optional("mask", "T[mask...]", "added to the scores; broadcasts to [N, H, S, L]")
          .optional("key", "int64[2]",
                    "of dropout, seed and step: the same key gives the same mask")
          .output("Y", "T[y...]",
                  "the mixed values; heads lie as in Q, after the tokens where Q is packed")
          .output("LSE", "T[lse...]",
                  "[N, H, S, 2]: the logarithm of each row's sum of exponentials in two parts, "
                  "which keep more digits than their sum");
  return c;
}

namespace {

// The running softmax of a row: greatest score so far, sum of exp(score − greatest) so far.
template <class T> struct RowState {
  T greatest, sum;
};

template <class T> struct AttentionForward {
  const AttentionShape s;
  const T *q, *k, *v, *mask;
  T *y, *lse;
  WeightDropout<T> dropout;

  Dim key_block() const { return s.template key_block<T>(1); }
  Dim wanted() const { return divide_up(kAttentionPieces, larger_of(1, s.batches * s.heads)); }
  Dim query_blocks() const { return s.query_blocks(wanted()); }
  Dim query_block() const { return s.query_block(wanted()); }
  Dim pitch() const { return key_block() + lanes<T>; }  // not a power of two
  Dim blocks_per_group() const { return s.heads_per_group() * query_blocks(); }
  // Pieces that the blocks of a group are cut into.
  Dim cuts() const {
    const Dim sets = larger_of(1, s.batches * s.groups);
    return larger_of(1, smaller_of(blocks_per_group(), divide_up(kAttentionPieces, sets)));
  }
  Dim pieces() const { return s.batches * s.groups * cuts(); }
  Dim most_blocks() const { return divide_up(blocks_per_group(), cuts()); }

  struct ForwardBlocks {
    T *keys, *values, *tile;
    RowState<T>* states;
  };
  ForwardBlocks carve(Carver& carver) const {
    ForwardBlocks m;
    m.keys = carver.take<T>(packed_size<T>(s.depth, key_block()));
    m.values = carver.take<T>(packed_size<T>(key_block(), s.width));
    m.tile = carver.take<T>(query_block() * pitch());
    m.states = carver.take<RowState<T>>(most_blocks() * query_block());
    return m;
  }

  // Some query blocks of one group against all keys. Keys come block by block, packed once for all
  // rows.
  void run(Dim piece, char* memory) const {
    Carver carver(memory);
    const ForwardBlocks m = carve(carver);
    const Dim cut = piece % cuts(), set = piece / cuts(), n = set / s.groups, g = set % s.groups;
    const Dim from = blocks_per_group() * cut / cuts(),
              to = blocks_per_group() * (cut + 1) / cuts();
    for (Dim i = 0; i < (to - from) * query_block(); ++i)
      m.states[i] = {-std::numeric_limits<T>::infinity(), T(0)};
    for (Dim first = 0; first < s.keys; first += key_block()) {
      const Dim count = smaller_of(key_block(), s.keys - first);
      pack_transposed(k + s.k_from + s.k.at(n, g, first), s.k.token, s.depth, count, m.keys);
      pack(v + s.v_from + s.v.at(n, g, first), s.v.token, count, s.width, m.values);
      for (Dim b = from; b < to; ++b)
        add_block(n, g, b, first, count, m, m.states + (b - from) * query_block());
    }
    for (Dim b = from; b < to; ++b) finish(n, g, b, m.states + (b - from) * query_block());
  }

  Dim head_of(Dim g, Dim block) const { return g * s.heads_per_group() + block / query_blocks(); }
  Dim row_of(Dim block) const { return block % query_blocks() * query_block(); }
  Dim rows_of(Dim block) const { return smaller_of(query_block(), s.rows - row_of(block)); }

  void add_block(Dim n, Dim g, Dim block, Dim first, Dim count, const ForwardBlocks& m,
                 RowState<T>* states) const {
    const Dim h = head_of(g, block), row = row_of(block), rows = rows_of(block);
    const ScoreTile tile = ScoreTile::of(s, row, rows, first, count);
    if (tile.read() == 0) return;
    set_scores(tile, Rows<T>{q + s.q.at(n, h, row), s.q.token}, s.depth, m.keys, m.tile, pitch());
    T* out = y + s.y.at(n, h, row);
    for (Dim i = 0; i < rows; ++i)
      weights_of_row(n, h, row, i, first, tile, m.tile + i * pitch(), states[i],
                     out + i * s.y.token);
    mix_keys(first > 0, tile, m.tile, pitch(), m.values, s.width, out, s.y.token);
  }

  // Scores become exp(score − greatest), and what was summed so far is put on the same footing.
  void weights_of_row(Dim n, Dim h, Dim from, Dim i_row, Dim first, const ScoreTile& tile, T* x,
                      RowState<T>& state, T* out) const {
    const Dim row = from + i_row, read = tile.read_by(i_row), end = tile.end_of_zeros(i_row);
    const T* added = mask ? mask + s.mask_row.at(n, h, row) + first * s.mask_key : nullptr;
    Vec<T> most = splat<T>(state.greatest);
    each_score<T>(x, read, T(s.scale), added, s.mask_key,
                  [&](Dim i, Dim lanes_read, Vec<T> score) ONNXGRAD_LAMBDA {
                    store_some<T>(x + i, score, lanes_read);
                    most = at_least(most, first_lanes_or<T>(score, lanes_read,
                                                            -std::numeric_limits<T>::infinity()));
                  });
    T greatest = most[0];
    for (Dim i = 1; i < lanes<T>; ++i) greatest = most[i] > greatest ? most[i] : greatest;
    Vec<T> sum{};
    if (greatest ==
        -std::numeric_limits<T>::infinity()) {  // nothing to read: score − greatest would be NaN
      for (Dim i = 0; i < read; ++i) x[i] = x[i] == x[i] ? T(0) : x[i];
    } else {
      const Vec<T> shift = splat<T>(greatest);
      each_register<T>(0, read, [&](Dim i, Dim some) ONNXGRAD_LAMBDA {
        const Vec<T> p = detail::exp_negative<T>(load_some<T>(x + i, some) - shift);
        store_some<T>(x + i, p, some);
        sum += first_lanes_or<T>(p, some, T(0));
      });
      rescale(state, greatest, first, out);
    }
    for (Dim i = read; i < end; ++i) x[i] = T(0);
    state.sum += sum_lanes<T>(sum), state.greatest = greatest;
    if (dropout)
      dropout.each(((n * s.heads + h) * s.rows + row) * s.keys + first, read,
                   [&](Dim i, T factor) { x[i] *= factor; });
  }

  void rescale(RowState<T>& state, T greatest, Dim first, T* out) const {
    if (first == 0 || state.greatest == greatest) return;
    const T factor = std::exp(state.greatest - greatest);
    state.sum *= factor;
    each_register<T>(0, s.width, [&](Dim i, Dim n) ONNXGRAD_LAMBDA {
      store_some<T>(out + i, load_some<T>(out + i, n) * factor, n);
    });
  }

  void finish(Dim n, Dim g, Dim block, const RowState<T>* states) const {
    const Dim h = head_of(g, block), row = row_of(block), rows = rows_of(block);
    for (Dim i = 0; i < rows; ++i) {
      const RowState<T> state = states[i];
      const T factor = state.sum == T(0) ? T(0) : T(1) / state.sum;
      T* out = y + s.y.at(n, h, row + i);
      const bool empty = s.keys == 0;
      each_register<T>(0, s.width, [&](Dim c, Dim some) ONNXGRAD_LAMBDA {
        store_some<T>(out + c, empty ? Vec<T>{} : load_some<T>(out + c, some) * factor, some);
      });
      T* parts = lse + 2 * ((n * s.heads + h) * s.rows + row + i);
      parts[0] = state.greatest, parts[1] = std::log(state.sum);
    }
  }
};

}  // namespace

template <class T> void attention_training(Call& call) {
  const AttentionShape s = described_attention(call);
  const Span<const T> q = call.input<T>("Q");
  AttentionForward<T> forward{s,
                              q.data(),
                              s.packed ? q.data() : call.input<T>("K").data(),
                              s.packed ? q.data() : call.input<T>("V").data(),
                              call.input<T>("mask").data(),
                              nullptr,
                              nullptr,
                              WeightDropout<T>(call)};
  Carver count(nullptr);
  forward.carve(count);
  Workspace space;
  const auto scratch = space.scratch<char>(count.bytes(), larger_of(1, forward.pieces()));
  Workspace::acquire(call, space.bytes());
  call.set_dims("y...", s.y_shape);
  call.set_dims("lse...", Shape{s.batches, s.heads, s.rows, 2});
  forward.y = call.output<T>("Y").data(), forward.lse = call.output<T>("LSE").data();
  space.open();
  if (s.rows * s.heads > 0)
    call.parallel_for(forward.pieces(), [&](Dim piece) {
      const auto mine = space.borrow(scratch);
      forward.run(piece, mine.data());
    });
}
ONNXGRAD_FLOAT_AND_DOUBLE(attention_training)

}  // namespace onnxgrad::ONNXGRAD_ISA
