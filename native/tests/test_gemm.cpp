// Products, packers and transpose against plain loops in double,
// on sizes around every tile and block boundary.
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "core/gemm.h"

using namespace onnxgrad;
using namespace onnxgrad::ONNXGRAD_ISA;

namespace {

int g_failures = 0;
std::mt19937 g_random(20261115);

void expect(bool good, const char* what, Dim m, Dim n, Dim k, double error) {
  if (good) return;
  ++g_failures;
  std::printf("FAILED %s  M=%ld N=%ld K=%ld  error %g\n", what, long(m), long(n), long(k), error);
}

template <class T> std::vector<T> random(Dim size) {
  std::normal_distribution<double> normal;
  std::vector<T> v(static_cast<std::size_t>(size));
  for (T& x : v) x = T(normal(g_random));
  return v;
}

// Largest |c - exact| over the size of the terms,
// and whether the margin of c right of column n is untouched.
template <class T> double error_of(const std::vector<T>& a, const std::vector<T>& b,
                                   const std::vector<T>& before, const std::vector<T>& c, Dim m,
                                   Dim n, Dim k, Dim pitch, bool add) {
  double worst = 0;
  for (Dim i = 0; i < m; ++i)
    for (Dim j = 0; j < pitch; ++j) {
      const std::size_t at = std::size_t(i * pitch + j);
      if (j >= n) {
        if (c[at] != before[at]) return 1e9;
        continue;
      }
      double exact = add ? double(before[at]) : 0;
      for (Dim q = 0; q < k; ++q)
        exact += double(a[std::size_t(i * k + q)]) * double(b[std::size_t(q * n + j)]);
      worst = std::fmax(worst, std::fabs(double(c[at]) - exact) / std::sqrt(double(k) + 1));
    }
  return worst;
}

template <class T> void check_product(Dim m, Dim n, Dim k, bool add) {
  const double limit = sizeof(T) == 4 ? 4e-6 : 1e-14;
  const std::vector<T> a = random<T>(m * k + 1), b = random<T>(k * n + 1),
                       start = random<T>(m * (n + 3) + 1);
  std::vector<T> a_columns(a.size()), b_transposed(b.size()),
      packed(std::size_t(packed_size<T>(k, n) + 1), T(9)), again = packed;
  transpose(a.data(), k, m, k, a_columns.data(), m);
  transpose(b.data(), n, k, n, b_transposed.data(), k);
  pack(b.data(), n, k, n, packed.data());
  pack_transposed(b_transposed.data(), k, k, n, again.data());
  expect(packed == again, "the two packers agree", m, n, k, 0);

  std::vector<const T*> rows;
  for (Dim i = 0; i < m; ++i) rows.push_back(a.data() + i * k);
  std::vector<std::int32_t> offsets;
  for (Dim q = 0; q < k; ++q) offsets.push_back(std::int32_t(q));

  const auto run = [&](const char* what, auto source) {
    std::vector<T> c = start;
    const Dim panels = panel_count<T>(n), half_rows = m / 2, half_panels = panels / 2;
    const Part parts[] = {{0, half_rows, 0, panels},
                          {half_rows, m, 0, half_panels},
                          {half_rows, m, half_panels, panels}};
    for (const Part& part : parts)
      add ? add_product(part, source, k, packed.data(), n, c.data(), n + 3)
          : set_product(part, source, k, packed.data(), n, c.data(), n + 3);
    const double error = error_of(a, b, start, c, m, n, k, n + 3, add);
    expect(error < limit, what, m, n, k, error);
    return c;
  };
  const auto c1 = run("Rows", Rows<T>{a.data(), k});
  const auto c2 = run("Columns", Columns<T>{a_columns.data(), m});
  const auto c3 = run("Gathered", Gathered<T>{rows.data(), offsets.data()});
  expect(c1 == c2 && c1 == c3, "the three forms of A give the same bits", m, n, k, 0);

  const Part all{0, m, 0, panel_count<T>(n)};
  const Rows<T> source{a.data(), k};
  std::vector<T> filled(start.size()), at_once(start.size());
  for (Dim i = 0; i < m; ++i)
    for (Dim j = 0; j < n; ++j) filled[std::size_t(i * (n + 3) + j)] = start[std::size_t(j)];
  add_product(all, source, k, packed.data(), n, filled.data(), n + 3);
  const T* row = start.data();
  product(Addend<T>{nullptr, 0, row}, all, source, k, packed.data(), n, at_once.data(), n + 3);
  expect(filled == at_once, "a row that is added everywhere", m, n, k, 0);

  std::vector<T> both = start, summed = start;  // over what is added
  product(Addend<T>{summed.data(), n + 3, row}, all, source, k, packed.data(), n, summed.data(),
          n + 3);
  for (Dim i = 0; i < m; ++i)
    for (Dim j = 0; j < n; ++j) both[std::size_t(i * (n + 3) + j)] += row[j];
  const double error = error_of(a, b, both, summed, m, n, k, n + 3, true);
  expect(error < limit, "a row and a matrix that are added", m, n, k, error);
}

template <class T> void check_transpose(Dim rows, Dim columns) {
  const std::vector<T> in = random<T>(rows * columns + 1);
  std::vector<T> out(std::size_t(columns * (rows + 2) + 1), T(7));
  transpose(in.data(), columns, rows, columns, out.data(), rows + 2);
  for (Dim j = 0; j < columns; ++j)
    for (Dim i = 0; i < rows + 2; ++i)
      expect(out[std::size_t(j * (rows + 2) + i)] ==
                 (i < rows ? in[std::size_t(i * columns + j)] : T(7)),
             "transpose", rows, columns, 0, 0);
}

template <class T> void check_type() {
  for (Dim m : {0, 1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 25, 47})
    for (Dim n : {1, 7, 8, 15, 16, 17, 31, 32, 33, 67})
      for (Dim k : {0, 1, 5, 31}) check_product<T>(m, n, k, (m + n + k) % 2 == 0);
  for (Dim k : {255, 256, 257, 600})
    check_product<T>(13, 35, k, true), check_product<T>(1, 150, k, false);
  check_product<T>(500, 40, 300, false);
  for (Dim r : {0, 1, 3, 4, 8, 15, 16, 17, 33})
    for (Dim c : {1, 2, 7, 8, 16, 19, 40}) check_transpose<T>(r, c);
}

}  // namespace

int main() {
  check_type<float>();
  check_type<double>();
  std::printf(g_failures ? "%d failures\n" : "gemm: all good\n", g_failures);
  return g_failures != 0;
}
