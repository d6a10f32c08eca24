// What comes into the NumPy host: arrays through Python's buffer protocol, and attributes.
//
// Written against buffers and not against array classes: a call on 16 elements then costs less than
// PyTorch's, and anything with a buffer is taken.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <memory>
#include <optional>

#include "core/call.h"

namespace nb = nanobind;

namespace onnxgrad {
namespace {

PyObject* g_as_contiguous = nullptr;  // numpy.ascontiguousarray
PyObject* g_array_type = nullptr;     // numpy.ndarray

[[noreturn]] void raise_python() {
  throw nb::python_error();
}

const char* utf8(PyObject* text) {
  return PyUnicode_AsUTF8AndSize(text, nullptr);  // PyUnicode_AsUTF8 is not of the stable ABI
}

// The name of an object's class, with that of its module where the class is written in C.
std::string type_name(PyObject* object) {
  const auto type = nb::borrow(reinterpret_cast<PyObject*>(Py_TYPE(object)));
  const auto text_of = [&](const char* attribute) -> std::string {
    nb::object text = nb::steal(PyObject_GetAttrString(type.ptr(), attribute));
    const char* bytes = text.is_valid() && PyUnicode_Check(text.ptr()) ? utf8(text.ptr()) : nullptr;
    if (!bytes) PyErr_Clear();
    return bytes ? bytes : "?";
  };
  const std::string name = text_of("__name__"), module = text_of("__module__");
  const bool in_c = !(PyType_GetFlags(Py_TYPE(object)) & Py_TPFLAGS_HEAPTYPE);
  return in_c && module != "builtins" ? module + "." + name : name;
}

// What Python shows of an object; escaped where its repr is not valid UTF-8.
std::string shown(PyObject* object) {
  for (auto* represent : {&PyObject_Repr, &PyObject_ASCII}) {
    nb::object text = nb::steal(represent(object));
    const char* bytes = text.is_valid() ? utf8(text.ptr()) : nullptr;
    if (bytes) return bytes;
    PyErr_Clear();
  }
  return type_name(object);
}

// A name as Python gave it; nothing where it is not
// valid UTF-8. A zero is a character like any other.
std::optional<std::string_view> name_from(PyObject* object) {
  Py_ssize_t size = 0;
  const char* bytes = PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, &size) : nullptr;
  if (!bytes) return PyErr_Clear(), std::nullopt;
  return std::string_view(bytes, static_cast<std::size_t>(size));
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
    case 'B': return DType::uint8;
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
  bool held() const { return held_; }
  const Py_buffer& operator*() const { return buffer_; }

 private:
  Py_buffer buffer_;
  bool held_ = false;
};

bool aligned(const Py_buffer& b) {
  return b.itemsize == 0 ||
         reinterpret_cast<std::uintptr_t>(b.buf) % static_cast<std::size_t>(b.itemsize) == 0;
}

// Of contiguous memory.
bool overlap(const Py_buffer& a, const Py_buffer& b) {
  const auto *a_begin = static_cast<const char*>(a.buf), *b_begin = static_cast<const char*>(b.buf);
  return a_begin < b_begin + b.len && b_begin < a_begin + a.len;
}

// NumPy's name of an array's type; for other objects the name of their class.
std::string dtype_name(PyObject* array) {
  nb::object dtype = nb::steal(PyObject_GetAttrString(array, "dtype"));
  if (!dtype.is_valid()) return PyErr_Clear(), type_name(array);
  return nb::cast<std::string>(nb::str(dtype));
}

// The class of NumPy's masked arrays, by its name:
// it shares its buffer, which says nothing of the mask.
bool is_masked(PyObject* object) {
  if (reinterpret_cast<PyObject*>(Py_TYPE(object)) == g_array_type) return false;
  return type_name(object) == "MaskedArray";
}

TensorView view_of(const Py_buffer& b, const Shape& shape) {
  TensorView view;
  view.present = true;
  view.data = b.buf;
  view.type = dtype_of_format(b.format);
  view.shape = shape;
  return view;
}
// `who()` as in checked_shape(). A buffer can have more dims than any shape: the first of them are
// enough to refuse it.
template <class F> TensorView view_of(const Contract& contract, const Py_buffer& b, F&& who) {
  Dim dims[kShapeCapacity];
  const int rank = b.ndim < kShapeCapacity ? b.ndim : kShapeCapacity;
  for (int i = 0; i < rank; ++i) dims[i] = b.shape[i];
  return view_of(b, checked_shape(contract, who, dims, static_cast<std::size_t>(rank)));
}

// An input as contiguous memory; strided, misaligned and foreign data is copied by NumPy.
struct Input {
  Buffer buffer;
  nb::object copy;

  TensorView open(const Contract& contract, const TensorSpec& spec, PyObject* object) {
    if (is_masked(object))
      contract.fail("input " + spec.name +
                    " is a masked array, expected one without a mask (numpy.ma.filled makes it)");
    if (!buffer.acquire(object, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) || !aligned(*buffer)) {
      buffer.release();
      copy = nb::steal(PyObject_CallFunctionObjArgs(g_as_contiguous, object, nullptr));
      if (!copy.is_valid()) fail_to_convert(contract, spec, object);
      if (!buffer.acquire(copy.ptr(), PyBUF_C_CONTIGUOUS | PyBUF_FORMAT))
        contract.fail("input " + spec.name + " is of type " + dtype_name(object) +
                      ", expected an array of numbers");
      // ascontiguousarray makes a scalar one-dimensional
      TensorView view = viewed(contract, spec);
      if (rank_of(object) == 0) view.shape = Shape();
      return checked(contract, spec, copy.ptr(), view);
    }
    return checked(contract, spec, object, viewed(contract, spec));
  }

  // From now on the numbers are read from a copy.
  void move(TensorView& view) {
    const auto bytes = static_cast<std::size_t>((*buffer).len);
    if (view.data != (*buffer).buf) return;  // narrowed: a copy already
    moved_.reset(new char[bytes]);
    view.data = std::memcpy(moved_.get(), view.data, bytes);
  }

 private:
  TensorView viewed(const Contract& contract, const TensorSpec& spec) const {
    return view_of(contract, *buffer, [&] { return "input " + spec.name + " has shape "; });
  }
  // NumPy says why, unless the argument is not to blame (memory, Ctrl-C).
  [[noreturn]] static void fail_to_convert(const Contract& contract, const TensorSpec& spec,
                                           PyObject* object) {
    if (!PyErr_ExceptionMatches(PyExc_ValueError) && !PyErr_ExceptionMatches(PyExc_TypeError))
      raise_python();
    PyErr_Clear();
    contract.fail("input " + spec.name + " is of type " + type_name(object) +
                  ", of which NumPy makes no array; expected an array of numbers");
  }
  static long rank_of(PyObject* object) {
    nb::object ndim = nb::steal(PyObject_GetAttrString(object, "ndim"));
    if (!ndim.is_valid()) return PyErr_Clear(), PySequence_Check(object) ? -1 : 0;
    const long rank = PyLong_AsLong(ndim.ptr());
    if (PyErr_Occurred()) return PyErr_Clear(), -1;
    return rank;
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
  std::unique_ptr<char[]> moved_;
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
  const char* text = utf8(o);
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
  if (!value) contract.fail(spec.name + " is " + shown(o) + ", expected " + name_of(spec.kind));
  return *value;
}

}  // namespace
}  // namespace onnxgrad
