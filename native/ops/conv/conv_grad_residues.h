// Residues: with stride s, the pixels i = r (mod s) of each residue r meet the same taps, and dY at
// pixel (i − r)/s plus a shift that depends on the tap alone. Each residue is a convolution of its
// own, with stride 1. A residue that no tap reaches has gradient 0.
#pragma once
#include <vector>

#include "ops/conv/conv_grad_blocks.h"

namespace onnxgrad::ONNXGRAD_ISA {

// The pixels of one residue, and the taps that they meet.
struct Residue {
  Dim first[3], count[3];   // pixels first + stride·q, q < count, along each axis
  Dim low[3], span[3];      // shifts run from low to low + span
  Dim step[3] = {1, 1, 1};  // pixel q meets dY at step·q plus a shift
  // How much of dY `pixels` neighbours along axis a read.
  Dim reach(int a, Dim pixels) const { return (pixels - 1) * step[a] + 1 + span[a]; }
  struct ShiftedTap {
    Dim index, shift[3];  // in W; shift counted from low
  };
  std::vector<ShiftedTap> taps;
  Dim weights_at = 0;  // where its packed weights begin, of one group
};

namespace detail {

// The taps k of one axis that residue r meets:
// r + pad − k·dilation divisible by the stride. Shift: the quotient.
struct AxisTap {
  Dim tap, shift;
};
inline std::vector<AxisTap> axis_taps(const Geometry& g, int a, Dim r) {
  std::vector<AxisTap> taps;
  for (Dim k = 0; k < g.kernel[a]; ++k) {
    const Dim at = r + g.pad[a] - k * g.dilation[a];
    if (at % g.stride[a] == 0) taps.push_back({k, at / g.stride[a]});
  }
  return taps;
}

inline Residue make_residue(const Geometry& g, const Dim (&r)[3]) {
  Residue residue;
  std::vector<AxisTap> taps[3];
  for (int a = 0; a < 3; ++a) {
    taps[a] = axis_taps(g, a, r[a]);
    residue.first[a] = r[a];
    residue.count[a] = divide_up(g.in[a] - r[a], g.stride[a]);
    Dim low = 0, high = 0;
    for (std::size_t i = 0; i < taps[a].size(); ++i) {
      low = i ? smaller_of(low, taps[a][i].shift) : taps[a][i].shift;
      high = i ? larger_of(high, taps[a][i].shift) : taps[a][i].shift;
    }
    residue.low[a] = low, residue.span[a] = high - low;
  }
  for (const AxisTap& d : taps[0])
    for (const AxisTap& h : taps[1])
      for (const AxisTap& w : taps[2])
        residue.taps.push_back(
            {(d.tap * g.kernel[1] + h.tap) * g.kernel[2] + w.tap,
             {d.shift - residue.low[0], h.shift - residue.low[1], w.shift - residue.low[2]}});
  return residue;
}

inline Residue make_forward_residue(const Geometry& g) {
  Residue residue;
  for (int a = 0; a < 3; ++a) {
    residue.first[a] = 0, residue.count[a] = g.in[a], residue.step[a] = g.step[a];
    residue.span[a] = (g.kernel[a] - 1) * g.dilation[a];
    residue.low[a] = g.pad[a] - residue.span[a];
  }
  for (Dim d = 0; d < g.kernel[0]; ++d)
    for (Dim h = 0; h < g.kernel[1]; ++h)
      for (Dim w = 0; w < g.kernel[2]; ++w)
        residue.taps.push_back(
            {Dim(residue.taps.size()), {d * g.dilation[0], h * g.dilation[1], w * g.dilation[2]}});
  return residue;
}

}  // namespace detail

// A convolution turned around is one residue: its pixel
// q reads what is to be convolved at step·q + tap·dilation.
inline std::vector<Residue> residues_of(const Geometry& g) {
  std::vector<Residue> residues;
  if (g.turned) return {detail::make_forward_residue(g)};
  Dim r[3];
  for (r[0] = 0; r[0] < smaller_of(g.stride[0], g.in[0]); ++r[0])
    for (r[1] = 0; r[1] < smaller_of(g.stride[1], g.in[1]); ++r[1])
      for (r[2] = 0; r[2] < smaller_of(g.stride[2], g.in[2]); ++r[2])
        residues.push_back(detail::make_residue(g, r));
  return residues;
}

// The residue that task `index` belongs to, and its number there.
// Residues with equally many tasks take turns: those of one block read the same
// part of dY and write into the same cache lines of dX, which are then still near.
template <class Work> struct TaskOfResidue {
  const Work* work;
  Dim index;
  TaskOfResidue(const std::vector<Work>& works, Dim tasks, Dim task) {
    const Dim residues = Dim(works.size()), each = tasks / residues;
    bool alike = tasks % residues == 0;
    for (Dim i = 0; i < residues; ++i)
      alike = alike && works[std::size_t(i)].first_task == i * each;
    Dim residue = residues - 1;
    while (!alike && works[std::size_t(residue)].first_task > task) --residue;
    if (alike) residue = task % residues;
    work = &works[std::size_t(residue)];
    index = alike ? task / residues : task - work->first_task;
  }
};

// What the algorithms that take dX residue by residue share. `Work` is what one residue asks for:
// it has a `residue` and a `first_task`.
template <class T, class Work> class ResidueDx : public InputGradient<T> {
 public:
  Dim bytes() const override { return space_.bytes(); }

 protected:
  // `pitch`: packed channels of a tap of a filter.
  ResidueDx(const ConvShape& s, Dim pitch) : s_(s), g_(s), residues_(residues_of(g_)) {
    for (Residue& residue : residues_) {
      residue.weights_at = group_weights_;
      group_weights_ += pitch * s.filters * Dim(residue.taps.size());
    }
  }

  // Packed weights, and bytes of a task.
  void plan_memory(Dim weights, Dim scratch) {
    weights_ = space_.shared<T>(weights);
    scratch_ = space_.scratch<char>(scratch, tasks_);
  }

  void open(Span<const T> dy, Span<const T> w, Span<T> dx, Dim at = 0) {
    space_.open(at);
    dy_ = dy, w_ = w, dx_ = dx;
  }

  // Calls run(work, index, carver) for a task: its number among those of its residue, and working
  // memory of its own.
  template <class Run> void run_task(Dim number, const Run& run) {
    const TaskOfResidue<Work> found(works_, tasks_, number);
    const auto memory = space_.borrow(scratch_);
    Carver carver(memory.data());
    run(*found.work, found.index, carver);
  }
  template <class Run> void run_tasks(Call& call, const Run& run) {
    call.parallel_for(tasks_, [&](Dim number) { run_task(number, run); });
  }

  const ConvShape& s_;
  Geometry g_;
  std::vector<Residue> residues_;
  std::vector<Work> works_;
  Dim group_weights_ = 0, tasks_ = 0;
  Workspace space_;
  Workspace::Shared<T> weights_{};
  Workspace::Scratch<char> scratch_{};
  Span<const T> dy_, w_;
  Span<T> dx_;
};

}  // namespace onnxgrad::ONNXGRAD_ISA
