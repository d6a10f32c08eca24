#include "ops/op.h"
#include "ops/pool/resize_axis.h"

namespace onnxgrad::ONNXGRAD_ISA {

const Contract& resize_grad_contract() {
  static const Contract c =
      Contract("ResizeGrad")
          .summary("Gradient of Resize, every mode and coordinate transformation.")
          .formula("Y = (M₁ ⊗ M₂ ⊗ …) X with one sparse matrix per axis; dX = (M₁ᵀ ⊗ M₂ᵀ ⊗ …) dY")
          .accuracy(Measure::rms, 2e-6, 1e-13)
          .attr("mode", "nearest", {"nearest", "linear", "cubic"},
                "how values between elements are made")
          .attr("coordinate_transformation_mode", "half_pixel",
                {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
                 "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize"},
                "where in X an output lies")
          .attr("nearest_mode", "round_prefer_floor",
                {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"},
                "rounding of mode nearest")
          .attr("cubic_coeff_a", -0.75f, "coefficient of mode cubic")
          .attr("exclude_outside", 0,
                "1: elements outside X get no weight; otherwise the edge stands for them")
          .attr("extrapolation_value", 0.f,
                "what Y is outside the region of tf_crop_and_resize; has no gradient")
          .attr("antialias", 0,
                "1: when Y is smaller, the weights cover all that an output stands for")
          .attr("axes", Kind::integers,
                "the axes that roi, scales and sizes speak of; all when absent")
          .attr("keep_aspect_ratio_policy", "stretch", {"stretch", "not_larger", "not_smaller"},
                "how sizes are meant")
          .input("dY", "T[out...]", "cotangent of Y")
          .input("X", "T[in...]", "what went in; only its shape counts")
          .optional("roi", "T[r]", "region of tf_crop_and_resize: starts of the axes, then ends")
          .optional("scales", "float32[s]", "how many times longer Y is along each axis")
          .optional("sizes", "int64[z]",
                    "how long Y is along each axis; taken from dY when neither is given")
          .output("dX", "T[in...]", "gradient of X");
  return c;
}

namespace {

// The axes that the lists speak of, counted from the front.
Shape listed_axes(const Call& call, int rank) {
  Shape axes;
  const Integers given = call.integers("axes");
  if (given.size() > static_cast<std::size_t>(rank))
    call.fail("axes is " + to_string(Attribute(given)) + ", expected at most " +
              std::to_string(rank) + " numbers (X has shape " + to_string(call.shape("X")) + ")");
  if (given.empty())
    for (int a = 0; a < rank; ++a) axes.push_back(a);
  for (std::int64_t a : given) {
    if (a < -rank || a >= rank)
      call.fail("axes is " + to_string(Attribute(given)) + ", expected numbers in " +
                std::to_string(-rank) + ".." + std::to_string(rank - 1) + " (X has shape " +
                to_string(call.shape("X")) + ")");
    axes.push_back(a < 0 ? a + rank : a);
  }
  return axes;
}

void check_length(const Call& call, const char* input, Dim expected) {
  if (!call.has(input) || call.shape(input)[0] == 0 || call.shape(input)[0] == expected) return;
  call.fail("input " + std::string(input) + " has shape " + to_string(call.shape(input)) +
            ", expected [" + std::to_string(expected) + "] (X has shape " +
            to_string(call.shape("X")) + ")");
}

bool given(const Call& call, const char* input) {
  return call.has(input) && call.shape(input)[0] > 0;
}

// The one scale that not_larger and not_smaller give all axes.
float common_scale(const Call& call, const Shape& axes, const Shape& in) {
  const bool smallest = call.text("keep_aspect_ratio_policy") == "not_larger";
  float scale = 0;
  for (int k = 0; k < axes.rank(); ++k) {
    const float s =
        float(call.input<std::int64_t>("sizes")[k]) / float(in[static_cast<int>(axes[k])]);
    scale = k == 0 || (smallest ? s < scale : s > scale) ? s : scale;
  }
  return scale;
}

template <class T> std::vector<ResizeAxis> prepare(const Call& call) {
  const Shape &in = call.shape("X"), &out = call.shape("dY");
  if (in.rank() != out.rank())
    call.fail("input dY has shape " + to_string(out) + ", expected as many dims as X of shape " +
              to_string(in));
  const Shape axes = listed_axes(call, in.rank());
  const bool crops = call.text("coordinate_transformation_mode") == "tf_crop_and_resize";
  check_length(call, "scales", axes.rank()), check_length(call, "sizes", axes.rank()),
      check_length(call, "roi", 2 * axes.rank());
  if (crops && !given(call, "roi"))
    call.fail("input roi is missing, expected it for tf_crop_and_resize");
  const bool keeps = given(call, "sizes") && call.text("keep_aspect_ratio_policy") != "stretch";
  std::vector<ResizeAxis> list;
  for (int a = 0; a < in.rank(); ++a)
    list.push_back({in[a], out[a], in[a] == out[a] ? 1.f : float(out[a]) / float(in[a] ? in[a] : 1),
                    0.f, 1.f});
  for (int k = 0; k < axes.rank(); ++k) {
    ResizeAxis& a = list[static_cast<std::size_t>(axes[k])];
    if (given(call, "scales")) a.scale = call.input<float>("scales")[k];
    if (keeps) a.scale = common_scale(call, axes, in);
    if (crops)
      a.roi_start = float(call.input<T>("roi")[k]),
      a.roi_end = float(call.input<T>("roi")[k + axes.rank()]);
    if (!(a.scale > 0)) {
      if (a.out == 0 || a.in == 0) continue;
      call.fail("input scales has the value " + to_string(Attribute(a.scale)) + " at [" +
                std::to_string(k) + "], expected more than 0");
    }
    if (!crops && std::fabs(double(a.out) - double(a.in) * double(a.scale)) > 1)
      call.fail("input dY has shape " + to_string(out) + ", expected about " +
                to_string(Attribute(float(a.in) * a.scale)) + " along axis " +
                std::to_string(axes[k]) + " (X has shape " + to_string(in) + ", scale " +
                to_string(Attribute(a.scale)) + ")");
  }
  for (const ResizeAxis& a : list)
    if (a.in == 0 && a.out > 0)
      call.fail("input dY has shape " + to_string(out) + ", expected no elements as X has none (" +
                to_string(in) + ")");
  return list;
}

}  // namespace

template <class T> void resize_grad(Call& call) {
  const ResizeMode mode{call.text("mode"),
                        call.text("coordinate_transformation_mode"),
                        call.text("nearest_mode"),
                        call.real("cubic_coeff_a"),
                        call.integer("exclude_outside") != 0,
                        call.integer("antialias") != 0};
  std::vector<AxisMap<T>> maps;
  for (const ResizeAxis& a : prepare<T>(call)) {
    if (taps_of(mode, a) > double(kMostEntries))
      call.fail("a scale of " + to_string(Attribute(a.scale)) + " takes " +
                to_string(Attribute(float(taps_of(mode, a)))) +
                " elements along an axis, expected at most " + std::to_string(kMostEntries) +
                " (X has shape " + to_string(call.shape("X")) + ")");
    maps.push_back(resize_map<T>(mode, a));
  }
  Separable<T> resize(std::move(maps));
  Workspace::acquire(call, resize.bytes());
  const Span<T> dx = call.output<T>("dX");
  if (call.input<T>("dY").size() == 0)
    for (T& x : dx) x = T(0);
  else
    resize.run(call, call.input<T>("dY").data(), dx.data());
}
ONNXGRAD_FLOAT_AND_DOUBLE(resize_grad)

}  // namespace onnxgrad::ONNXGRAD_ISA
