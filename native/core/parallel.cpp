#include "core/parallel.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <system_error>

#include "core/platform.h"

namespace onnxgrad {

namespace {
thread_local int t_limit = 0;  // of the jobs that this thread begins; 0: none
}

namespace {

// A worker looks for the next job this long before it sleeps: kernels of one training step follow
// each other within it, and waking a sleeping thread costs 5 to 30 µs.
constexpr std::chrono::microseconds kSpin{50};

Pool* g_pool = nullptr;

}  // namespace

Pool& Pool::instance() {
  static std::once_flag once;
  std::call_once(once, [] {
    g_pool = new Pool(core_count());  // never destroyed: workers may outlive main()
    // A forked child has none of the workers,
    // and perhaps a locked mutex: it starts with a new pool.
    in_forked_children([] { g_pool = new Pool(g_pool->threads()); });
  });
  return *g_pool;
}

void Pool::set_threads(int count) {
  std::lock_guard<std::mutex> hold(in_use_);
  stop_workers();
  threads_ = count;
}

int Pool::set_limit(int count) {
  const int old = t_limit;
  t_limit = count;
  return old;
}

void Pool::start_workers() {
  try {
    for (int member = static_cast<int>(workers_.size()) + 1; member < threads_; ++member)
      workers_.emplace_back([this, member] { work(member); });
  } catch (const std::system_error&) {
    // The system gives no more threads: those that there are take all pieces.
  }
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

void Pool::work(int member) {
  std::uint64_t seen = 0;
  for (;;) {
    const auto until = std::chrono::steady_clock::now() + kSpin;
    while (generation_.load(std::memory_order_acquire) == seen &&
           std::chrono::steady_clock::now() < until)
      for (int i = 0; i < 32; ++i) relax();
    Pieces* pieces;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [&] { return generation_.load() != seen; });
      seen = generation_.load();
      if (stopping_) return;
      if (!pieces_ || member >= members_) continue;
      pieces = pieces_;
      inside_.fetch_add(1);
    }
    pieces->take_all(current_core(member));
    inside_.fetch_sub(1, std::memory_order_release);
  }
}

void Pool::parallel_for(Dim count, Host::Body body, void* context) {
  std::unique_lock<std::mutex> use(in_use_, std::try_to_lock);
  const int threads = t_limit > 0 ? std::min(t_limit, threads_.load()) : threads_.load();
  if (threads == 1 || count == 1 || !use) {
    return Pieces(count, 1, body, context).take_all(0);
  }
  start_workers();
  Pieces pieces(count, threads, body, context);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    pieces_ = &pieces;
    members_ = threads;
    generation_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  pieces.take_all(current_core(0));
  {
    std::lock_guard<std::mutex> lock(mutex_);
    pieces_ = nullptr;  // whoever has not begun by now stays out
  }
  for (int spins = 0; inside_.load(std::memory_order_acquire) > 0; ++spins)
    if (spins < 2000)
      relax();
    else
      std::this_thread::yield();
}

}  // namespace onnxgrad
