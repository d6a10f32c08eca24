// The error of every elementary function, against long double,
// and its special values. One program per instruction set.
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>

#include "core/vmath.h"

namespace {

using namespace onnxgrad::ONNXGRAD_ISA;

int g_failures = 0;

template <class T> T apply(Vec<T> (*f)(Vec<T>), T x) {
  return f(splat<T>(x))[0];
}

// Largest error over [low, high], in ulp of max(|exact|, floor).
template <class T> void check(const char* name, Vec<T> (*f)(Vec<T>),
                              const std::function<long double(long double)>& exact, double low,
                              double high, double bound, double floor) {
  long double worst = 0;
  T where = 0;
  constexpr int kPoints = 200'000;
  for (int i = 0; i <= kPoints; ++i) {
    const T x = T(low + (high - low) * i / kPoints);
    const long double e = exact(static_cast<long double>(x));
    const long double scale = std::max(std::fabs(e), static_cast<long double>(floor));
    const long double ulp =
        std::ldexp(1.0L, std::ilogb(scale) - (std::numeric_limits<T>::digits - 1));
    const long double error = std::fabs(static_cast<long double>(apply<T>(f, x)) - e) / ulp;
    if (!(error <= worst)) worst = error, where = x;
  }
  const bool good = worst <= bound;
  g_failures += !good;
  std::printf("%-22s %-6s %6.2f ulp at %-12g allowed %g%s\n", name,
              sizeof(T) == 4 ? "float" : "double", static_cast<double>(worst),
              static_cast<double>(where), bound, good ? "" : "  FAILED");
}

template <class T> void expect(const char* what, T got, T wanted) {
  const bool same = got == wanted || (std::isnan(got) && std::isnan(wanted));
  g_failures += !same;
  if (!same) std::printf("%s gives %g, expected %g  FAILED\n", what, double(got), double(wanted));
}

template <class T> Vec<T> quick(Vec<T> x) {
  return quick_gelu_derivative<T>(x, splat<T>(T(1)));
}

template <class T> void check_all() {
  using std::exp, std::tanh, std::erf;
  const bool single = sizeof(T) == 4;
  const double tiny = single ? 1e-30 : 1e-290;
  const auto sigmoid_exact = [](long double x) { return 1 / (1 + exp(-x)); };
  check<T>(
      "exp", onnxgrad::ONNXGRAD_ISA::exp<T>, [](long double x) { return exp(x); },
      single ? -87 : -700, single ? 88 : 700, 1.5, tiny);
  check<T>(
      "exp of a logarithm", exp_of_log<T>, [](long double x) { return exp(x); },
      single ? -87 : -700, 0, 1.5, tiny);
  check<T>(
      "tanh", onnxgrad::ONNXGRAD_ISA::tanh<T>, [](long double x) { return tanh(x); }, -20, 20, 3,
      tiny);
  check<T>(
      "tanh near 0", onnxgrad::ONNXGRAD_ISA::tanh<T>, [](long double x) { return tanh(x); }, -1e-3,
      1e-3, 3, tiny);
  check<T>("sigmoid", sigmoid<T>, sigmoid_exact, single ? -80 : -600, 40, 3, tiny);
  check<T>(
      "erf", onnxgrad::ONNXGRAD_ISA::erf<T>, [](long double x) { return erf(x); }, -7, 7, 3, tiny);
  check<T>(
      "gelu derivative", gelu_derivative<T>,
      [](long double x) {
        return 0.5L * std::erfc(-x / std::sqrt(2.0L)) +
               x * exp(-x * x / 2) / std::sqrt(2 * 3.14159265358979323846L);
      },
      -14, 14, 5, 0.125);
  check<T>(
      "quick gelu derivative", quick<T>,
      [&](long double x) { return sigmoid_exact(x) * (1 + x * sigmoid_exact(-x)); }, -40, 40, 5,
      0.125);
  check<T>(
      "fast gelu derivative", fast_gelu_derivative<T>,
      [&](long double x) {
        const long double a = std::sqrt(2 / 3.14159265358979323846L),
                          u = a * (x + 0.044715L * x * x * x);
        return sigmoid_exact(2 * u) *
               (1 + x * sigmoid_exact(-2 * u) * 2 * a * (1 + 3 * 0.044715L * x * x));
      },
      -9, 9, 5, 0.125);

  const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  expect<T>("exp(inf)", apply<T>(onnxgrad::ONNXGRAD_ISA::exp<T>, inf), inf);
  expect<T>("exp(-inf)", apply<T>(onnxgrad::ONNXGRAD_ISA::exp<T>, -inf), 0);
  expect<T>("tanh(inf)", apply<T>(onnxgrad::ONNXGRAD_ISA::tanh<T>, inf), 1);
  expect<T>("sigmoid(-inf)", apply<T>(sigmoid<T>, -inf), 0);
  expect<T>("erf(-inf)", apply<T>(onnxgrad::ONNXGRAD_ISA::erf<T>, -inf), -1);
  for (auto* f : {gelu_derivative<T>, fast_gelu_derivative<T>, quick<T>}) {
    expect<T>("gelu'(inf)", apply<T>(f, inf), 1);
    expect<T>("gelu'(-inf)", apply<T>(f, -inf), 0);
    expect<T>("gelu'(0)", apply<T>(f, 0), T(0.5));
  }
  const T payload = from_bits<T>(bits<T>(splat<T>(nan)) + 1)[0];  // a NaN whose low bits are not 0
  for (T x : {nan, payload})
    for (auto* f :
         {onnxgrad::ONNXGRAD_ISA::exp<T>, onnxgrad::ONNXGRAD_ISA::tanh<T>, sigmoid<T>,
          onnxgrad::ONNXGRAD_ISA::erf<T>, gelu_derivative<T>, fast_gelu_derivative<T>, quick<T>})
      expect<T>("f(NaN)", apply<T>(f, x), nan);
}

}  // namespace

int main() {
  check_all<float>();
  check_all<double>();
  return g_failures != 0;
}
