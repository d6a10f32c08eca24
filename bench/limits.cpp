// The limits of this machine, measured: stream bandwidth (two reads, one write, written past the
// caches) and the peak of fused multiply-adds. A worker like the others: reads "stream FLOATS
// THREADS SECONDS" or "fma THREADS SECONDS", answers one number: seconds per pass, or GFLOP/s.
#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The best of many passes; body(thread) on each thread. The threads stay awake between passes: a limit knows no wait.
template <class F> double best_pass(int threads, double seconds, F body) {
  std::atomic<int> pass{0}, done{0};
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t)
    others.emplace_back([&, t] {
      for (int seen = 0;; ++done) {
        while (pass == seen) _mm_pause();
        seen = pass;
        if (seen < 0) return;
        body(t);
      }
    });
  double best = 1e9;
  for (const double end = now() + seconds; now() < end;) {
    const double begin = now();
    done = 0;
    ++pass;
    body(0);
    while (done < threads - 1) _mm_pause();
    best = std::min(best, now() - begin);
  }
  pass = -1;
  for (auto& o : others) o.join();
  return best;
}

float* array_of(long n) {
  constexpr std::size_t large_page = std::size_t(1) << 21;
  const std::size_t bytes = (static_cast<std::size_t>(n) * 4 + large_page - 1) / large_page * large_page;
  void* memory = std::aligned_alloc(large_page, bytes);
  madvise(memory, bytes, MADV_HUGEPAGE);  // as NumPy does
  std::memset(memory, 1, bytes);
  return static_cast<float*>(memory);
}

__attribute__((target("avx2"))) void stream_pass(const float* a, const float* b, float* c, long n) {
  for (long i = 0; i < n; i += 8)
    _mm256_stream_ps(c + i, _mm256_add_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i)));
  _mm_sfence();
}

double stream_seconds(long n, int threads, double seconds) {
  float* arrays[3] = {array_of(n), array_of(n), array_of(n)};
  const double best = best_pass(threads, seconds, [&](int t) {
    const long from = n * t / threads / 64 * 64,
               to = t + 1 == threads ? n : n * (t + 1) / threads / 64 * 64;
    stream_pass(arrays[0] + from, arrays[1] + from, arrays[2] + from, to - from);
  });
  for (float* a : arrays) std::free(a);
  return best;
}

// Twelve chains: two units, four cycles of latency. Unrolled, or the sums would live in memory.
#define FMA_PASS(name, isa, Vector, set, fmadd)                          \
  __attribute__((target(isa))) float name(long rounds) {                 \
    Vector sum[12];                                                      \
    for (auto& s : sum) s = set(1.0f);                                   \
    const Vector a = set(0.999f), b = set(0.001f);                       \
    for (long i = 0; i < rounds; ++i)                                    \
      _Pragma("GCC unroll 12") for (auto& s : sum) s = fmadd(s, a, b);   \
    float total = 0;                                                     \
    for (auto& s : sum) total += reinterpret_cast<const float*>(&s)[0];  \
    return total;                                                        \
  }
FMA_PASS(fma_pass_256, "avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps)
FMA_PASS(fma_pass_512, "avx512f", __m512, _mm512_set1_ps, _mm512_fmadd_ps)

double fma_gflops(int threads, double seconds) {
  constexpr long rounds = 200'000;
  const bool wide = __builtin_cpu_supports("avx512f");
  volatile float sink = 0;
  const double best =
      best_pass(threads, seconds, [&](int) { sink = wide ? fma_pass_512(rounds) : fma_pass_256(rounds); });
  return 12.0 * (wide ? 16 : 8) * 2 * double(rounds) * threads / best / 1e9;
}

}  // namespace

int main() {
  char kind[16];
  while (std::scanf("%15s", kind) == 1) {
    long n = 0;
    int threads = 1;
    double seconds = 0.1;
    if (!std::strcmp(kind, "stream")) {
      if (std::scanf("%ld %d %lf", &n, &threads, &seconds) != 3) return 1;
      std::printf("%.9f\n", stream_seconds((n + 63) / 64 * 64, threads, seconds));
    } else {
      if (std::scanf("%d %lf", &threads, &seconds) != 2) return 1;
      std::printf("%.3f\n", fma_gflops(threads, seconds));
    }
    std::fflush(stdout);
  }
}
