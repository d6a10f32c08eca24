// The pool of threads and the sharing of pieces under ThreadSanitizer: 16 threads, several callers
// at once, the number of threads changed meanwhile. Every piece must be done exactly once.
#include <cstdio>
#include <cstdlib>

#include "core/parallel.h"

namespace {

using namespace onnxgrad;

constexpr int kThreads = 16;

void require(bool fine, const char* what) {
  if (fine) return;
  std::fprintf(stderr, "threads: %s\n", what);
  std::abort();
}

// Work on `count` pieces: each writes its own, plain element, so that a second visit is a race.
struct Job {
  explicit Job(Dim count) : visits(static_cast<std::size_t>(count)) {}
  std::vector<int> visits;

  static void body(void* job, Turn& turn) {
    for (Dim i; (i = turn.next()) >= 0;)
      ++static_cast<Job*>(job)->visits[static_cast<std::size_t>(i)];
  }
  void check() const {
    for (int v : visits) require(v == 1, "a piece was not done exactly once");
  }
};

// One set of pieces, taken by threads that begin anywhere.
void share_pieces(Dim count, int ranges) {
  Job job(count);
  Pieces pieces(count, ranges, &Job::body, &job);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back([&, t] { pieces.take_all(t * 7); });
  for (std::thread& t : threads) t.join();
  job.check();
}

// Callers that find the pool free or in use.
void call_pool(int rounds) {
  for (int round = 0; round < rounds; ++round) {
    Job job(1 + round * 37 % 500);
    Pool::instance().parallel_for(Dim(job.visits.size()), &Job::body, &job);
    job.check();
  }
}

void use_pool(int rounds) {
  std::vector<std::thread> callers;
  for (int t = 0; t < kThreads; ++t) callers.emplace_back([&] { call_pool(rounds); });
  for (int count : {kThreads, 1, 3, kThreads, 2, kThreads})
    Pool::instance().set_threads(count), call_pool(rounds / 10);
  for (std::thread& t : callers) t.join();
}

}  // namespace

int main(int count, char** words) {
  const int rounds = count > 1 ? std::atoi(words[1]) : 200;
  Pool::instance().set_threads(kThreads);
  long jobs = 0;
  for (int round = 0; round < rounds; ++round) {
    share_pieces(1 + round * 61 % 3000, 1 + round % 70);
    ++jobs;
  }
  call_pool(rounds * 10);
  use_pool(rounds);
  std::printf("threads: %ld shared sets and %ld calls of the pool, %d threads\n", jobs,
              long(rounds) * 10 + long(rounds) * kThreads + 6 * (rounds / 10), kThreads);
}
