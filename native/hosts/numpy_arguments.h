// What comes into the NumPy host: arrays through Python's buffer protocol, and attributes.
//
// Written against buffers and not against array classes: a call on 16 elements then costs less than
// PyTorch's, and anything with a buffer is taken.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <optional>

#include "core/call.h"

namespace nb = nanobind;

namespace onnxgrad {
namespace {

PyObject* g_as_contiguous = nullptr;  // numpy.ascontiguousarray

[[noreturn]] void raise_python() {
  throw nb::python_error();
}

// ---- arrays in

DType dtype_of_format(const char* format) {
  if (!format) return DType::other;
  if (*format == '@' || *format == '=' || *format == '<')
    ++format;  // little-endian, as this machine
  if (format[0] == '\0' || format[1] != '\0') return DType::other;
  switch (format[0]) {
    case 'f': return DType::float32;
    case 'd': return DType::float64;
    case 'i': return DType::int32;
    case 'l': return sizeof(long) == 8 ? DType::int64 : DType::int32;
    case 'q': return DType::int64;
    case '?': return DType::boolean;
    default: return DType::other;
  }
}

// A Py_buffer that releases itself.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  ~Buffer() {
    if (held_) PyBuffer_Release(&buffer_);
  }
  bool acquire(PyObject* object, int flags) {
    held_ = PyObject_GetBuffer(object, &buffer_, flags) == 0;
    if (!held_) PyErr_Clear();
    return held_;
  }
  void release() {
    if (held_) PyBuffer_Release(&buffer_), held_ = false;
  }
  const Py_buffer& operator*() const { return buffer_; }

 private:
  Py_buffer buffer_;
  bool held_ = false;
};

bool aligned(const Py_buffer& b) {
  return b.itemsize == 0 ||
         reinterpret_cast<std::uintptr_t>(b.buf) % static_cast<std::size_t>(b.itemsize) == 0;
}

// NumPy's name of an array's type; for other objects the name of their class.
std::string dtype_name(PyObject* array) {
  nb::object dtype = nb::steal(PyObject_GetAttrString(array, "dtype"));
  if (!dtype.is_valid()) return PyErr_Clear(), Py_TYPE(array)->tp_name;
  return nb::cast<std::string>(nb::str(dtype));
}

TensorView view_of(const Py_buffer& b) {
  TensorView view;
  view.present = true;
  view.data = b.buf;
  view.type = dtype_of_format(b.format);
  for (int i = 0; i < b.ndim; ++i) view.shape.push_back(b.shape[i]);
  return view;
}

// An input as contiguous memory; strided, misaligned and foreign data is copied by NumPy.
struct Input {
  Buffer buffer;
  nb::object copy;

  TensorView open(const Contract& contract, const TensorSpec& spec, PyObject* object) {
    if (!buffer.acquire(object, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) || !aligned(*buffer)) {
      buffer.release();
      copy = nb::steal(PyObject_CallOneArg(g_as_contiguous, object));
      if (!copy.is_valid()) raise_python();
      if (!buffer.acquire(copy.ptr(), PyBUF_C_CONTIGUOUS | PyBUF_FORMAT))
        contract.fail("input " + spec.name + " is of type " + Py_TYPE(object)->tp_name +
                      ", expected an array of numbers");
      // ascontiguousarray makes a scalar one-dimensional
      TensorView view = view_of(*buffer);
      if (rank_of(object) == 0) view.shape = Shape();
      return checked(contract, spec, copy.ptr(), view);
    }
    return checked(contract, spec, object, view_of(*buffer));
  }

 private:
  static long rank_of(PyObject* object) {
    nb::object ndim = nb::steal(PyObject_GetAttrString(object, "ndim"));
    if (!ndim.is_valid()) return PyErr_Clear(), PySequence_Check(object) ? -1 : 0;
    return PyLong_AsLong(ndim.ptr());
  }
  // The contract's own texts name the types it knows; for the others NumPy's name is clearer.
  TensorView checked(const Contract& contract, const TensorSpec& spec, PyObject* array,
                     TensorView view) {
    if (view.type != DType::other) return narrowed(contract, spec, view);
    contract.fail("input " + spec.name + " is of type " + dtype_name(array) + ", expected " +
                  (spec.type == "T"   ? "float32 or float64"
                   : spec.type == "I" ? "int32 or int64"
                                      : spec.type));
  }
  // Where a contract wants int32, int64 is taken when every value fits.
  TensorView narrowed(const Contract& contract, const TensorSpec& spec, TensorView view) {
    if (spec.type != "int32" || view.type != DType::int64) return view;
    const auto* values = static_cast<const std::int64_t*>(view.data);
    narrow_.reset(new std::int32_t[static_cast<std::size_t>(view.shape.size()) + 1]);
    for (Dim i = 0; i < view.shape.size(); ++i) {
      if (values[i] != static_cast<std::int32_t>(values[i]))
        contract.fail("input " + spec.name + " has the value " + std::to_string(values[i]) +
                      ", which does not fit into int32");
      narrow_[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(values[i]);
    }
    view.data = narrow_.get();
    view.type = DType::int32;
    return view;
  }
  std::unique_ptr<std::int32_t[]> narrow_;
};

// ---- attributes in

std::optional<Attribute> integer_of(PyObject* o) {
  if (PyBool_Check(o) || !PyIndex_Check(o)) return std::nullopt;
  nb::object index = nb::steal(PyNumber_Index(o));
  const long long value = index.is_valid() ? PyLong_AsLongLong(index.ptr()) : -1;
  if (PyErr_Occurred()) return PyErr_Clear(), std::nullopt;
  return Attribute(static_cast<std::int64_t>(value));
}
std::optional<Attribute> real_of(PyObject* o) {
  if (PyBool_Check(o) || !(PyFloat_Check(o) || PyNumber_Check(o)) || PyComplex_Check(o))
    return std::nullopt;
  const double value = PyFloat_AsDouble(o);
  if (PyErr_Occurred()) return PyErr_Clear(), std::nullopt;
  return Attribute(static_cast<float>(value));
}
std::optional<Attribute> text_of(PyObject* o) {
  if (!PyUnicode_Check(o)) return std::nullopt;
  const char* text = PyUnicode_AsUTF8(o);
  if (!text) return PyErr_Clear(), std::nullopt;
  return Attribute(std::string(text));
}
template <class List, class Convert>
std::optional<Attribute> list_of(PyObject* o, Convert convert) {
  if (PyUnicode_Check(o) || PyBytes_Check(o) || !PySequence_Check(o)) return std::nullopt;
  List list;
  const Py_ssize_t size = PySequence_Size(o);
  if (size < 0) return PyErr_Clear(), std::nullopt;
  for (Py_ssize_t i = 0; i < size; ++i) {
    nb::object item = nb::steal(PySequence_GetItem(o, i));
    if (!item.is_valid()) return PyErr_Clear(), std::nullopt;
    std::optional<Attribute> value = convert(item.ptr());
    if (!value) return std::nullopt;
    list.push_back(std::get<typename List::value_type>(*value));
  }
  return Attribute(std::move(list));
}

Attribute attribute_of(const Contract& contract, const AttributeSpec& spec, PyObject* o) {
  std::optional<Attribute> value;
  switch (spec.kind) {
    case Kind::integer: value = integer_of(o); break;
    case Kind::real: value = real_of(o); break;
    case Kind::text: value = text_of(o); break;
    case Kind::integers: value = list_of<Integers>(o, integer_of); break;
    case Kind::reals: value = list_of<Floats>(o, real_of); break;
    case Kind::texts: value = list_of<Strings>(o, text_of); break;
    case Kind::none: break;
  }
  if (!value)
    contract.fail(spec.name + " is " + nb::cast<std::string>(nb::repr(nb::handle(o))) +
                  ", expected " + name_of(spec.kind));
  return *value;
}

}  // namespace
}  // namespace onnxgrad
