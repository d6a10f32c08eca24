// A meter of work and span. With the environment variable ONNXGRAD_PIECES=file, every call of an
// operator appends one line of JSON to the file: the operator, the processor time of the call, and
// that of each piece of each parallel part, which are then run one after the other.
// bench/work_span.py computes from it what more cores could reach.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <string>
#include <vector>

#include "core/call.h"

namespace onnxgrad {
namespace {

class PieceMeter {
 public:
  // Null when nothing is metered.
  static const char* file() {
    static const char* const path = std::getenv("ONNXGRAD_PIECES");
    return path;
  }
  static double now() {  // of this thread: other processes do not count
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
  }

  // What a reading of the clock costs: the least of many.
  static double reading() {
    static const double least = [] {
      double found = 1;
      for (int i = 0; i < 200; ++i) {
        const double begin = now(), time = now() - begin;
        if (time < found) found = time;
      }
      return found;
    }();
    return least;
  }

  // Runs the pieces in order and notes how long each takes.
  void run(Dim count, Host::Body body, void* context) {
    const double begin = now();
    parts_.emplace_back();
    parts_.back().reserve(static_cast<std::size_t>(count));
    own_ += now() - begin + reading();
    TimedTurn turn(count, parts_.back(), own_);
    body(context, turn);
  }
  // `seconds` of the whole call; what the meter itself took does not count.
  void write(const std::string& op, double seconds) const {
    static std::mutex one_at_a_time;
    const std::lock_guard<std::mutex> lock(one_at_a_time);
    std::FILE* out = std::fopen(file(), "a");
    if (!out) return;
    std::fprintf(out, "{\"op\": \"%s\", \"us\": %.2f, \"parts\": [", op.c_str(),
                 (seconds - own_) * 1e6);
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      std::fprintf(out, i ? ", [" : "[");
      for (std::size_t k = 0; k < parts_[i].size(); ++k)
        std::fprintf(out, k ? ", %.2f" : "%.2f", parts_[i][k] * 1e6);
      std::fprintf(out, "]");
    }
    std::fprintf(out, "]}\n");
    std::fclose(out);
  }

 private:
  class TimedTurn final : public Turn {
   public:
    TimedTurn(Dim count, std::vector<double>& times, double& own)
        : count_(count), times_(times), own_(own) {}
    Dim next() override {
      const double time = now();
      if (piece_ > 0) {
        const double taken = time - begin_;
        times_.push_back(taken > reading() ? taken - reading() : 0);
        own_ += taken - times_.back();
      }
      begin_ = now();
      own_ += begin_ - time;  // a reading of the clock, and the note
      return piece_ == count_ ? -1 : piece_++;
    }

   private:
    const Dim count_;
    std::vector<double>& times_;
    double& own_;
    Dim piece_ = 0;
    double begin_ = 0;
  };

  std::vector<std::vector<double>> parts_;
  double own_ = 0;
};

}  // namespace
}  // namespace onnxgrad
