#include "core/parallel.h"

#include <pthread.h>

#include <chrono>
#include <new>

namespace onnxgrad {

namespace {

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A worker looks for the next job this long before it sleeps: kernels of one training step follow
// each other within it, and waking a sleeping thread costs 5 to 30 µs.
constexpr std::chrono::microseconds kSpin{50};

Pool* g_pool = nullptr;

}  // namespace

Pool& Pool::instance() {
  static std::once_flag once;
  std::call_once(once, [] {
    const unsigned cores = std::thread::hardware_concurrency();
    g_pool = new Pool(cores ? static_cast<int>(cores)
                            : 1);  // never destroyed: workers may outlive main()
    // A forked child has none of the workers, and perhaps a locked mutex: it starts with a new
    // pool.
    pthread_atfork(nullptr, nullptr, [] { g_pool = new Pool(g_pool->threads()); });
  });
  return *g_pool;
}

void Pool::set_threads(int count) {
  std::lock_guard<std::mutex> hold(in_use_);
  stop_workers();
  threads_ = count;
}

void Pool::start_workers() {
  if (ranges_.size() != static_cast<std::size_t>(threads_))
    ranges_ = std::vector<Range>(static_cast<std::size_t>(threads_));
  for (int member = static_cast<int>(workers_.size()) + 1; member < threads_; ++member)
    workers_.emplace_back([this, member] { work(member); });
}

void Pool::stop_workers() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    generation_.fetch_add(1);
  }
  wake_.notify_all();
  for (std::thread& w : workers_) w.join();
  workers_.clear();
  stopping_ = false;
}

void Pool::take_pieces(const Job& job, int member) {
  for (int k = 0; k < job.members; ++k) {
    const int owner = (member + k) % job.members;
    std::atomic<Dim>& next = ranges_[static_cast<std::size_t>(owner)].next;
    for (Dim i; (i = next.fetch_add(1, std::memory_order_relaxed)) < job.range_end(owner);)
      job.body(job.context, i);
  }
}

void Pool::work(int member) {
  std::uint64_t seen = 0;
  for (;;) {
    const auto until = std::chrono::steady_clock::now() + kSpin;
    while (generation_.load(std::memory_order_acquire) == seen &&
           std::chrono::steady_clock::now() < until)
      for (int i = 0; i < 32; ++i) relax();
    Job job;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [&] { return generation_.load() != seen; });
      seen = generation_.load();
      if (stopping_) return;
      if (!open_) continue;
      job = job_;
      inside_.fetch_add(1);
    }
    take_pieces(job, member);
    inside_.fetch_sub(1, std::memory_order_release);
  }
}

void Pool::parallel_for(Dim count, Host::Body body, void* context) {
  std::unique_lock<std::mutex> use(in_use_, std::try_to_lock);
  if (threads_ == 1 || count == 1 || !use) {
    for (Dim i = 0; i < count; ++i) body(context, i);
    return;
  }
  start_workers();
  const Job job{body, context, count, threads_};
  {
    std::lock_guard<std::mutex> lock(mutex_);
    job_ = job;
    open_ = true;
    for (int member = 0; member < job.members; ++member)
      ranges_[static_cast<std::size_t>(member)].next = member ? job.range_end(member - 1) : 0;
    generation_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  take_pieces(job, 0);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = false;  // whoever has not begun by now stays out
  }
  for (int spins = 0; inside_.load(std::memory_order_acquire) > 0; ++spins)
    if (spins < 2000)
      relax();
    else
      std::this_thread::yield();
}

}  // namespace onnxgrad
