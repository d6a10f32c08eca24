// The optimizers as Python functions on lists of arrays, all float32 or all float64.
#pragma once
#include <nanobind/stl/vector.h>

#include "hosts/numpy_arguments.h"
#include "train/optimizers.h"

namespace onnxgrad {
namespace {

// The arrays of one argument, held while a kernel writes into them.
class ArrayList {
 public:
  ArrayList(const char* name, nb::list arrays)
      : name_(name), held_(std::make_unique<Buffer[]>(arrays.size())) {
    for (std::size_t i = 0; i < arrays.size(); ++i)
      views_.push_back(open(arrays[i].ptr(), held_[i]));
  }
  std::size_t size() const { return views_.size(); }
  DType type() const { return views_.empty() ? DType::other : views_[0].type; }

  // Every list has the tensors of `other`: as many, as large, of the same type.
  void expect_like(const ArrayList& other) const {
    if (size() != other.size())
      throw nb::value_error((name_ + " holds " + std::to_string(size()) + " arrays, expected " +
                             std::to_string(other.size()) + " as in " + other.name_)
                                .c_str());
    for (std::size_t i = 0; i < size(); ++i)
      if (views_[i].type != other.type() || views_[i].shape.size() != other.views_[i].shape.size())
        throw nb::value_error((name_ + "[" + std::to_string(i) + "] is " + describe(views_[i]) +
                               ", expected " + describe(other.views_[i]) + " as in " + other.name_)
                                  .c_str());
  }
  template <class T> Buffers<T> buffers() const {
    Buffers<T> list;
    for (const TensorView& v : views_) list.push_back({static_cast<T*>(v.data), v.shape.size()});
    return list;
  }

 private:
  static std::string describe(const TensorView& v) {
    return std::to_string(v.shape.size()) + " elements of " + name_of(v.type);
  }
  TensorView open(PyObject* array, Buffer& buffer) const {
    if (!buffer.acquire(array, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | PyBUF_WRITABLE) ||
        !aligned(*buffer))
      throw nb::value_error(
          (name_ + " holds a " + dtype_name(array) + ", expected writable contiguous arrays")
              .c_str());
    const TensorView view = view_of(
        *buffer, Shape{(*buffer).itemsize > 0 ? Dim((*buffer).len / (*buffer).itemsize) : 0});
    if (view.type != DType::float32 && view.type != DType::float64)
      throw nb::value_error(
          (name_ + " holds an array of " + dtype_name(array) + ", expected float32 or float64")
              .c_str());
    return view;
  }
  std::string name_;
  std::unique_ptr<Buffer[]> held_;
  std::vector<TensorView> views_;
};

// run(T{}) with T the type of the arrays, without the GIL.
template <class F> void with_type(const ArrayList& arrays, F&& run) {
  if (arrays.size() == 0) return;
  nb::gil_scoped_release release;
  arrays.type() == DType::float64 ? run(double{}) : run(float{});
}

void add_optimizers(nb::module_& m) {
  using namespace nb::literals;
  m.def(
      "adam_step",
      [](nb::list p, nb::list g, nb::list m1, nb::list m2, double lr, double beta1, double beta2,
         double epsilon, double decay, double step, bool decoupled, double scale, double limit) {
        const ArrayList pa("p", p), ga("g", g), ma("m", m1), va("v", m2);
        for (const ArrayList* list : {&ga, &ma, &va}) list->expect_like(pa);
        with_type(pa, [&](auto t) {
          using T = decltype(t);
          optimizers<T>().adam(pa.buffers<T>(), ga.buffers<T>(), ma.buffers<T>(), va.buffers<T>(),
                               {lr, beta1, beta2, epsilon, decay, step, decoupled}, {scale, limit});
        });
      },
      "p"_a, "g"_a, "m"_a, "v"_a, nb::kw_only(), "lr"_a, "beta1"_a, "beta2"_a, "epsilon"_a,
      "decay"_a, "step"_a, "decoupled"_a, "scale"_a = 1.0, "limit"_a = 0.0);
  m.def(
      "sgd_step",
      [](nb::list p, nb::list g, nb::list b, double lr, double momentum, double dampening,
         double decay, bool nesterov, bool first, double scale, double limit) {
        const ArrayList pa("p", p), ga("g", g), ba("b", b);
        ga.expect_like(pa);
        if (ba.size()) ba.expect_like(pa);
        with_type(pa, [&](auto t) {
          using T = decltype(t);
          optimizers<T>().sgd(pa.buffers<T>(), ga.buffers<T>(), ba.buffers<T>(),
                              {lr, momentum, dampening, decay, nesterov, first}, {scale, limit});
        });
      },
      "p"_a, "g"_a, "b"_a, nb::kw_only(), "lr"_a, "momentum"_a = 0.0, "dampening"_a = 0.0,
      "decay"_a = 0.0, "nesterov"_a = false, "first"_a = false, "scale"_a = 1.0, "limit"_a = 0.0);
  m.def("sum_of_squares", [](nb::list g) {
    const ArrayList ga("g", g);
    double total = 0;
    with_type(
        ga, [&](auto t) { total = optimizers<decltype(t)>().squares(ga.buffers<decltype(t)>()); });
    return total;
  });
  m.def("add_to", [](nb::list total, nb::list g) {
    const ArrayList ta("total", total), ga("g", g);
    ga.expect_like(ta);
    with_type(ta, [&](auto t) {
      optimizers<decltype(t)>().add(ta.buffers<decltype(t)>(), ga.buffers<decltype(t)>());
    });
  });
}

}  // namespace
}  // namespace onnxgrad
