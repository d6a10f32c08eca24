// Pool: the threads of the NumPy host. (In ONNX Runtime the session's own pool is used instead.)
#pragma once
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "core/call.h"

namespace onnxgrad {

// The caller works too and never waits for a worker that has not begun, so a busy machine or a
// forked process costs speed, never progress. A second caller that finds the pool in use works
// alone. Each member begins with a range of its own, the same in every call, so that a core finds
// in its caches what it wrote before; whoever is done early takes pieces from the others' ranges.
class Pool {
 public:
  static Pool& instance();

  int threads() const { return threads_.load(); }
  void set_threads(int count);  // count >= 1, the caller included
  void parallel_for(Dim count, Host::Body body, void* context);

 private:
  explicit Pool(int threads) : threads_(threads) {}

  struct Job {
    Host::Body body = nullptr;
    void* context = nullptr;
    Dim count = 0;
    int members = 1;
    Dim range_end(int member) const { return count * (member + 1) / members; }
  };
  struct alignas(64) Range {  // a cache line each
    std::atomic<Dim> next{0};
  };
  void start_workers();
  void stop_workers();
  void work(int member);
  void take_pieces(const Job& job, int member);

  std::atomic<int> threads_;
  std::vector<std::thread> workers_;
  std::mutex in_use_;  // held by the caller whose job is running

  std::mutex mutex_;  // guards generation_, job_, open_ and stopping_
  std::condition_variable wake_;
  std::atomic<std::uint64_t> generation_{0};
  Job job_;
  bool open_ = false;  // workers may still enter the job
  bool stopping_ = false;
  std::atomic<int> inside_{0};  // workers inside the job
  std::vector<Range> ranges_;   // by member; the caller is member 0
};

}  // namespace onnxgrad
