// Trains with @STEM@.onnx in C++, with nothing but onnxruntime (any version from 1.19 on):
//
//   g++ -O2 -std=c++17 -I. @STEM@.train.cpp -o train -ldl
//   ./train path/to/libonnxruntime.so DATA_FOLDER [EPOCHS] [BATCH_SIZE] [OPERATORS.so]
//
// DATA_FOLDER holds one .npy file per input and target, with a row per example. Written are @STEM@.checkpoint.safetensors
// after every epoch (a run that finds it goes on from there), @STEM@.trained.safetensors for `onnxgrad merge`, and
// @STEM@.tuned.onnx: the model with its trained parameters. OPERATORS.so is for --fused: what onnxgrad.library_path() says.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

#include "onnxgrad/step.h"

static const char* kNames[] = {@NAMES@};  // inputs, then targets
static const float kRate = @LR@f;

struct Table {  // rows of a .npy file in C order
  std::string name;
  int type = 0;
  std::size_t width = 1;  // bytes a row
  std::vector<std::int64_t> dims;
  std::string bytes;
};

static Table read_npy(const std::string& folder, const std::string& name) {
  std::ifstream file(folder + "/" + name + ".npy", std::ios::binary);
  if (!file) throw std::runtime_error(folder + "/" + name + ".npy is missing");
  std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::size_t two = all[6] == 1 ? 2 : 4, length = 0;
  for (std::size_t i = 0; i < two; ++i) length |= std::size_t(std::uint8_t(all[8 + i])) << (8 * i);
  const std::string header = all.substr(8 + two, length);
  std::smatch kind, shape;
  if (!std::regex_search(header, kind, std::regex("'descr': '([^']+)'")) ||
      !std::regex_search(header, shape, std::regex("'shape': \\(([^)]*)\\)")) ||
      header.find("'fortran_order': False") == std::string::npos)
    throw std::runtime_error(name + ".npy: expected numbers in C order");
  Table table;
  table.name = name;
  for (auto& [text, type] : std::vector<std::pair<std::string, int>>{{"<f4", 1}, {"|u1", 2}, {"<i4", 6}, {"<i8", 7},
                                                                     {"|b1", 9}, {"<f8", 11}})
    if (kind[1] == text) table.type = type;
  if (!table.type) throw std::runtime_error(name + ".npy: numbers of type " + kind[1].str() + " are not read here");
  const std::string dims = shape[1];
  const std::regex number("\\d+");
  for (std::sregex_iterator i(dims.begin(), dims.end(), number), end; i != end; ++i) table.dims.push_back(std::stoll(i->str()));
  table.width = onnxgrad_width_(table.type);
  for (std::size_t i = 1; i < table.dims.size(); ++i) table.width *= std::size_t(table.dims[i]);
  table.bytes = all.substr(8 + two + length);
  return table;
}

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s libonnxruntime.so DATA_FOLDER [EPOCHS] [BATCH_SIZE] [OPERATORS.so]\n", argv[0]);
    return 2;
  }
  const int epochs = argc > 3 ? std::stoi(argv[3]) : 5;
  const std::int64_t size = argc > 4 ? std::stoll(argv[4]) : 32;
  onnxgrad_step* step = onnxgrad_step_open(argv[1], "@STEM@", argc > 5 ? argv[5] : nullptr, 0);
  if (*onnxgrad_step_error(step)) throw std::runtime_error(onnxgrad_step_error(step));
  std::vector<Table> tables;
  for (const char* name : kNames) tables.push_back(read_npy(argv[2], name));
  const std::int64_t rows = tables[0].dims[0], batches = (rows + size - 1) / size;
  if (onnxgrad_step_load(step, "@STEM@.checkpoint.safetensors") == 0) std::printf("goes on after step %lld\n", (long long)step->done);

  for (std::int64_t epoch = step->done / batches; epoch < epochs; ++epoch) {
    std::vector<std::int64_t> order(rows);
    std::iota(order.begin(), order.end(), 0);
    std::int64_t random = epoch + 1;  // Lehmer's generator: the same order in every language
    for (std::int64_t i = rows - 1; i > 0; --i) {
      random = random * 48271 % 2147483647;
      std::swap(order[i], order[random % (i + 1)]);
    }
    double sum = 0;
    for (std::int64_t start = 0; start < rows; start += size) {
      const std::int64_t count = std::min(size, rows - start);
      std::vector<std::string> held(tables.size());
      std::vector<onnxgrad_array> batch;
      for (std::size_t t = 0; t < tables.size(); ++t) {
        for (std::int64_t i = 0; i < count; ++i) held[t].append(tables[t].bytes, order[start + i] * tables[t].width, tables[t].width);
        onnxgrad_array array = {tables[t].name.c_str(), tables[t].type, &held[t][0], tables[t].dims.size(), {count}};
        for (std::size_t k = 1; k < tables[t].dims.size(); ++k) array.dims[k] = tables[t].dims[k];
        batch.push_back(array);
      }
      const float loss = onnxgrad_step_train(step, batch.data(), batch.size(), kRate);
      if (*onnxgrad_step_error(step)) throw std::runtime_error(onnxgrad_step_error(step));
      sum += double(loss) * count;
    }
    std::printf("epoch %lld/%d  loss %.6f\n", (long long)epoch + 1, epochs, sum / rows);
    if (onnxgrad_step_save(step, "@STEM@.checkpoint.safetensors")) throw std::runtime_error(onnxgrad_step_error(step));
  }
  if (onnxgrad_step_parameters(step, "@STEM@.trained.safetensors") || onnxgrad_step_export(step, "@STEM@.tuned.onnx"))
    throw std::runtime_error(onnxgrad_step_error(step));
  onnxgrad_step_close(step);
  std::puts("wrote @STEM@.trained.safetensors and @STEM@.tuned.onnx");
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
