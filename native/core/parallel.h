// Pool: the threads of the NumPy host. (In ONNX Runtime the session's own pool is used instead.)
#pragma once
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "core/pieces.h"

namespace onnxgrad {

// The caller works too and never waits for a worker that has not begun,
// so a busy machine or a forked process costs speed, never progress.
// A second caller that finds the pool in use works alone.
class Pool {
 public:
  static Pool& instance();

  int threads() const { return threads_.load(); }
  void set_threads(int count);  // count >= 1, the caller included
  // At most `count` threads for jobs of the calling thread, 0: no limit; returns the old one.
  static int set_limit(int count);
  void parallel_for(Dim count, Host::Body body, void* context);

 private:
  explicit Pool(int threads) : threads_(threads) {}

  void start_workers();
  void stop_workers();
  void work(int member);

  std::atomic<int> threads_;
  std::vector<std::thread> workers_;
  std::mutex in_use_;  // held by the caller whose job is running

  std::mutex mutex_;  // guards generation_, pieces_, members_ and stopping_
  std::condition_variable wake_;
  std::atomic<std::uint64_t> generation_{0};
  Pieces* pieces_ = nullptr;  // the caller's; null once no worker may begin any more
  int members_ = 0;           // threads that may take part in the job, the caller included
  bool stopping_ = false;
  std::atomic<int> inside_{0};  // workers inside the job
};

}  // namespace onnxgrad
