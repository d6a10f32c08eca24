#include "ops/gather/gather_family.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& slice_grad_contract() {
  static const Contract c =
      Contract("SliceGrad")
          .summary("Gradient of Slice.")
          .formula("dX[start + j·step] = dY[j] along each axis; 0 elsewhere")
          .accuracy(Measure::rms, 1e-7, 1e-16)
          .input("dY", "T[out...]", "cotangent of Y")
          .input("shape", "int64[rank]", "the shape of X")
          .input("starts", "I[n]", "first index of each axis; negative ones count from the end")
          .input("ends", "I[n]", "where each axis ends, itself not taken")
          .optional("axes", "I[n]", "the axes; the first n when absent")
          .optional("steps", "I[n]", "the steps, also negative; 1 when absent")
          .output("dX", "T[in...]", "gradient of X");
  return c;
}

namespace {

// Along each axis of X: `count` elements from `start` on, `step` apart.
struct Slices {
  Shape in, start, step, count;
  int first, last;  // the axes before `first` and after `last` are taken whole
};

template <class I> Dim value_of(const Call& call, std::string_view input, Dim i, Dim initial) {
  return call.has(input) ? Dim(call.input<I>(input)[i]) : initial;
}

Dim clamped(Dim value, Dim least, Dim most) {
  return value < least ? least : value > most ? most : value;
}

template <class I> void set_axis(const Call& call, Slices& s, Dim i, bool* seen) {
  const int rank = s.in.rank();
  const Dim given = value_of<I>(call, "axes", i, i), step = value_of<I>(call, "steps", i, 1);
  if (given < -rank || given >= rank)
    call.fail("input axes has the value " + std::to_string(given) + " at [" + std::to_string(i) +
              "], expected " + std::to_string(-rank) + ".." + std::to_string(rank - 1) +
              " for shape " + to_string(s.in));
  if (step == 0)
    call.fail("input steps has the value 0 at [" + std::to_string(i) +
              "], expected any other number");
  const int a = static_cast<int>(given < 0 ? given + rank : given);
  if (seen[a]) call.fail("input axes names axis " + std::to_string(a) + " twice");
  seen[a] = true;
  const Dim dim = s.in[a], least = step > 0 ? 0 : -1, most = step > 0 ? dim : dim - 1;
  Dim start = Dim(call.input<I>("starts")[i]), end = Dim(call.input<I>("ends")[i]);
  start = clamped(start < 0 ? start + dim : start, least < 0 ? 0 : least, most);
  end = clamped(end < 0 ? end + dim : end, least, most);
  const Dim distance = step > 0 ? end - start : start - end;
  const Dim bounded =
      clamped(step, -dim - 1, dim + 1);  // one step further than X is long leads out as well
  s.start[a] = start, s.step[a] = bounded;
  s.count[a] =
      dim > 0 && distance > 0 ? 1 + (distance - 1) / (bounded > 0 ? bounded : -bounded) : 0;
}

template <class I> Slices prepare(const Call& call) {
  Slices s;
  s.in = shape_in(call, "shape");
  const Dim n = call.dim("n");
  if (n > s.in.rank())
    call.fail("input starts has " + std::to_string(n) +
              " elements, expected at most one per dim of shape " + to_string(s.in));
  for (Dim d : s.in) s.start.push_back(0), s.step.push_back(1), s.count.push_back(d);
  bool seen[kMaxRank] = {};
  for (Dim i = 0; i < n; ++i) set_axis<I>(call, s, i, seen);
  check_shape(call, "dY", s.count,
              [&] { return "what the slice takes of shape " + to_string(s.in); });
  const auto whole = [&](int a) { return s.count[a] == s.in[a] && s.step[a] == 1; };
  s.first = 0, s.last = s.in.rank() - 1;
  while (s.last > 0 && whole(s.last)) --s.last;
  while (s.first < s.last && whole(s.first)) ++s.first;
  return s;
}

// Where the line with these coordinates along the axes before
// `last` stands in dY, counted in lines; -1: not taken.
Dim line_in_dy(const Slices& s, Dim line) {
  Dim at = 0, stride = 1;
  for (int a = s.last - 1; a >= s.first; --a) {
    const Dim offset = line % s.in[a] - s.start[a];
    line /= s.in[a];
    if (offset % s.step[a] != 0) return -1;
    const Dim j = offset / s.step[a];
    if (j < 0 || j >= s.count[a]) return -1;
    at += j * stride, stride *= s.count[a];
  }
  return at + line * stride;
}

// Elements per piece of work: filling and copying are quicker than computing.
constexpr Dim kGrain = 4 * kPointwiseGrain;

// A call of memset or memcpy costs as much as storing a few hundred elements.
constexpr Dim kWorthACall = 512;

template <class T> void set_zero(T* out, Dim count, bool streamed) {
  if (!streamed && count >= kWorthACall)
    return void(std::memset(out, 0, static_cast<std::size_t>(count) * sizeof(T)));
  fill<T>(Span<T>(out, count), streamed, [](Dim, Dim) ONNXGRAD_LAMBDA { return Vec<T>{}; });
}
template <class T> void set_copy(const T* in, T* out, Dim count, bool streamed) {
  if (!streamed && count >= kWorthACall)
    return void(std::memcpy(out, in, static_cast<std::size_t>(count) * sizeof(T)));
  fill<T>(Span<T>(out, count), streamed,
          [&](Dim i, Dim n) ONNXGRAD_LAMBDA { return load_some<T>(in + i, n); });
}

// Rows [begin, end) along axis `last` of a line that is taken; dy and dx are the line's.
template <class T>
void set_rows(const Slices& s, Dim inner, const T* dy, T* dx, Dim begin, Dim end, bool streamed) {
  const Dim start = s.start[s.last], step = s.step[s.last], count = s.count[s.last];
  if (step == 1) {
    const Dim from = clamped(start, begin, end), to = clamped(start + count, from, end);
    set_zero<T>(dx + begin * inner, (from - begin) * inner, streamed);
    set_copy<T>(dy + (from - start) * inner, dx + from * inner, (to - from) * inner, streamed);
    return set_zero<T>(dx + to * inner, (end - to) * inner, streamed);
  }
  set_zero<T>(dx + begin * inner, (end - begin) * inner, false);
  const Dim ahead = step > 0 ? begin - start : start - (end - 1), stride = step > 0 ? step : -step;
  for (Dim j = ahead > 0 ? divide_up(ahead, stride) : 0; j < count; ++j) {
    const Dim row = start + j * step;
    if (row < begin || row >= end) break;
    set_copy<T>(dy + j * inner, dx + row * inner, inner, false);
  }
}

// Lines [from, to) whose pieces are short: zeros everywhere,
// in blocks that the second-level cache still holds when the pieces go in.
// Large fills do not read the lines that they overwrite; alternating short ones do.
template <class T>
void set_short_lines(const Slices& s, Dim inner, const T* dy, T* dx, Dim from, Dim to) {
  const Dim length = s.in[s.last] * inner, taken_length = s.count[s.last] * inner,
            together = larger_of(1, kPointwiseGrain / length);
  for (Dim block = from; block < to; block += together) {
    const Dim end = smaller_of(block + together, to);
    std::memset(static_cast<void*>(dx + block * length), 0,
                static_cast<std::size_t>((end - block) * length) * sizeof(T));
    for (Dim line = block; line < end; ++line)
      if (const Dim taken = line_in_dy(s, line); taken >= 0)
        set_copy<T>(dy + taken * taken_length, dx + line * length + s.start[s.last] * inner,
                    taken_length, false);
  }
}

}  // namespace

template <class T> void slice_grad(Call& call) {
  Slices s;
  with_index_type(call, "starts", [&](auto zero) { s = prepare<decltype(zero)>(call); });
  call.set_dims("in...", s.in);
  const Span<T> dx = call.output<T>("dX");
  const T* dy = call.input<T>("dY").data();
  if (dx.size() == 0) return;
  if (s.in.rank() == 0) return void(dx[0] = dy[0]);
  const Dim inner = s.in.product(s.last + 1, s.in.rank()), rows = s.in[s.last],
            lines = s.in.product(0, s.last);
  const Dim height = larger_of(1, smaller_of(rows, kGrain / larger_of(1, inner))),
            chunks = divide_up(rows, height);
  const Dim group = larger_of(1, kGrain / (height * inner));
  const bool streamed = 2 * dx.size() * Dim(sizeof(T)) > kStreamBytes;
  const bool short_pieces =
      chunks == 1 && s.step[s.last] == 1 && s.count[s.last] * inner < kWorthACall;
  call.parallel_ranges(lines * chunks, group, [&](Dim from, Dim to) {
    if (short_pieces && !streamed) return set_short_lines<T>(s, inner, dy, dx.data(), from, to);
    for (Dim piece = from; piece < to; ++piece) {
      const Dim line = piece / chunks, begin = piece % chunks * height,
                end = smaller_of(begin + height, rows);
      const Dim taken = line_in_dy(s, line);
      T* out = dx.data() + line * rows * inner;
      if (taken < 0)
        set_zero<T>(out + begin * inner, (end - begin) * inner, streamed);
      else
        set_rows<T>(s, inner, dy + taken * s.count[s.last] * inner, out, begin, end, streamed);
    }
    stream_done();
  });
}
ONNXGRAD_FLOAT_AND_DOUBLE(slice_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
