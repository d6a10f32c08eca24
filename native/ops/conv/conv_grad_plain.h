// The gradients of a convolution from their definition, for any rank,
// without working memory. Slow, and kept as the version that one can read;
// also what is left when no faster algorithm takes a shape.
#pragma once
#include "ops/conv/conv_grad_few_numbers.h"

namespace onnxgrad::ONNXGRAD_ISA {

namespace detail {

// Steps `index` to the next one below `limit`, last axis first; false after the last.
inline bool next_index(Shape& index, const Shape& limit) {
  for (int a = index.rank() - 1; a >= 0; --a) {
    if (++index[a] < limit[a]) return true;
    index[a] = 0;
  }
  return false;
}
inline Shape zero_index(const Shape& limit) {
  Shape index = limit;
  for (int a = 0; a < index.rank(); ++a) index[a] = 0;
  return index;
}

// The output that input position i meets through tap k, flattened; -1 when there is none.
inline Dim output_of(const ConvShape& s, const Shape& i, const Shape& k) {
  Dim flat = 0;
  for (int a = 0; a < s.rank(); ++a) {
    const Dim at = i[a] + s.pad[a] - k[a] * s.dilation[a];
    if (at < 0 || at % s.stride[a] != 0 || at / s.stride[a] >= s.out[a]) return -1;
    flat = flat * s.out[a] + at / s.stride[a];
  }
  return flat;
}
// The input that output o reads through tap k, flattened; -1 when it is padding.
inline Dim input_of(const ConvShape& s, const Shape& o, const Shape& k) {
  Dim flat = 0;
  for (int a = 0; a < s.rank(); ++a) {
    const Dim at = o[a] * s.stride[a] + k[a] * s.dilation[a] - s.pad[a];
    if (at < 0 || at >= s.in[a]) return -1;
    flat = flat * s.in[a] + at;
  }
  return flat;
}

}  // namespace detail

// dX[n, c, i] = Σ_{m, k} dY[n, m, o(i, k)] · W[m, c, k],
// over the taps k that connect i with an output o.
template <class T>
void plain_dx(Call& call, const ConvShape& s, Span<const T> dy, Span<const T> w, Span<T> dx) {
  const Dim in = s.in_size(), out = s.out_size(), taps = s.taps();
  call.parallel_for(in ? s.images * s.groups * s.channels : 0, [&](Dim plane) {
    const Dim c = plane % s.channels, g = plane / s.channels % s.groups,
              n = plane / s.channels / s.groups;
    Shape i = detail::zero_index(s.in);
    T* to = dx.data() + plane * in;
    do {
      WideSum<T, double> sum;
      Shape k = detail::zero_index(s.kernel);
      Dim tap = 0;
      do {
        const Dim o = detail::output_of(s, i, k);
        for (Dim m = 0; m < s.filters && o >= 0; ++m)
          sum.add_product(double(dy[((n * s.groups + g) * s.filters + m) * out + o]),
                          double(w[((g * s.filters + m) * s.channels + c) * taps + tap]));
        ++tap;
      } while (detail::next_index(k, s.kernel));
      *to++ = T(sum.value());
    } while (detail::next_index(i, s.in));
  });
}

// dW[m, c, k] = Σ_{n, o} dY[n, m, o] · X[n, c, i(o, k)],
// over the outputs o that read an input i through tap k.
template <class T>
void plain_dw(Call& call, const ConvShape& s, Span<const T> dy, Span<const T> x, Span<T> dw) {
  const Dim in = s.in_size(), out = s.out_size(), taps = s.taps();
  call.parallel_for(s.groups * s.filters * s.channels, [&](Dim pair) {
    const Dim c = pair % s.channels, filter = pair / s.channels, g = filter / s.filters;
    Shape k = detail::zero_index(s.kernel);
    Dim tap = 0;
    do {
      WideSum<T, double> sum;
      Shape o = detail::zero_index(s.out);
      for (Dim flat = 0; flat < out; ++flat, detail::next_index(o, s.out)) {
        const Dim i = detail::input_of(s, o, k);
        for (Dim n = 0; n < s.images && i >= 0; ++n)
          sum.add_product(double(dy[(n * s.groups * s.filters + filter) * out + flat]),
                          double(x[((n * s.groups + g) * s.channels + c) * in + i]));
      }
      dw[pair * taps + tap++] = T(sum.value());
    } while (detail::next_index(k, s.kernel));
  });
}

template <class T> class PlainDx : public InputGradient<T> {
 public:
  explicit PlainDx(const ConvShape& s) : s_(s) {}
  Dim bytes() const override { return 0; }
  void run(Call& call, Span<const T> dy, Span<const T> w, Span<T> dx) override {
    plain_dx<T>(call, s_, dy, w, dx);
  }

 private:
  const ConvShape& s_;
};

template <class T> class PlainDw : public FilterGradient<T> {
 public:
  explicit PlainDw(const ConvShape& s) : s_(s) {}
  Dim bytes() const override { return 0; }
  void run(Call& call, Span<const T> dy, Span<const T> x, Span<T> dw, Span<T>) override {
    plain_dw<T>(call, s_, dy, x, dw);
  }

 private:
  const ConvShape& s_;
};

// Σ of `count` numbers, in double: a bias has few outputs, and the terms of one may cancel.
template <class T> double plane_sum(const T* from, Dim count) {
  constexpr Dim n = lanes<double>;
  Vec<double> sum[4] = {};  // four chains hide the latency of the addition
  Dim i = 0;
  for (; i + 4 * n <= count; i += 4 * n)
    for (int k = 0; k < 4; ++k) sum[k] += load_double(from + i + k * n);
  double total = sum_lanes<double>((sum[0] + sum[1]) + (sum[2] + sum[3]));
  for (; i < count; ++i) total += double(from[i]);
  return total;
}

}  // namespace onnxgrad::ONNXGRAD_ISA
