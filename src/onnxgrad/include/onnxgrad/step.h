/* Train, evaluate, checkpoint and export in C or C++, with the files of `onnxgrad step` and any onnxruntime from 1.19 on.
 *
 * No Python, and no header of onnxruntime: its table of functions only ever grows at its end, so the places used here are
 * the same in every version. One file, C99 or C++11, POSIX.
 *
 *   onnxgrad_step *step = onnxgrad_step_open("libonnxruntime.so", "folder/step", NULL, 0);
 *   float loss = onnxgrad_step_train(step, arrays, count, 1e-3f);          one step; NaN on failure
 *   onnxgrad_step_evaluate(step, inputs, count, look, you);                what the model says now
 *   onnxgrad_step_save(step, "checkpoint.safetensors");                    parameters, statistics, state, step
 *   onnxgrad_step_load(step, "checkpoint.safetensors");                    goes on to the same bits
 *   onnxgrad_step_export(step, "tuned.onnx");                              a model that needs nothing of this
 *   onnxgrad_step_close(step);
 *
 * Functions return 0, or another value on failure; onnxgrad_step_error says why. A `--fused` step needs the library of
 * operators: the path that onnxgrad.library_path() gives, as the third argument.
 */
#ifndef ONNXGRAD_STEP_H
#define ONNXGRAD_STEP_H
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An array by name: numbers in C order. `type` is one of the numbers below, those of ONNX. */
typedef struct {
  const char *name;
  int type;
  void *data;
  size_t rank;
  int64_t dims[8];
} onnxgrad_array;
enum { ONNXGRAD_FLOAT = 1, ONNXGRAD_UINT8 = 2, ONNXGRAD_INT32 = 6, ONNXGRAD_INT64 = 7, ONNXGRAD_BOOL = 9,
       ONNXGRAD_DOUBLE = 11 };

typedef struct {
  void *session;
  size_t inputs, outputs;
  char **input_names, **output_names;
} onnxgrad_session_;

typedef struct onnxgrad_step {
  void *const *api;
  void *runtime, *env, *memory;
  onnxgrad_session_ train, eval, init;
  size_t kept;         /* parameters, statistics, state: the outputs of the init file */
  char **kept_names;
  void **values;       /* their values now, of onnxruntime */
  int64_t done;        /* steps so far */
  int64_t seed;        /* of dropout */
  char *eval_path;
  char error[1024];
} onnxgrad_step;

/* The place and the signature of a function of onnxruntime. */
#define ONNXGRAD_CALL_(step, place, ...) ((void *(*)(__VA_ARGS__))(step)->api[place])

static inline const char *onnxgrad_step_error(const onnxgrad_step *step) { return step->error; }

static inline int onnxgrad_fail_(onnxgrad_step *step, const char *what, const char *why) {
  snprintf(step->error, sizeof step->error, "%s: %s", what, why);
  return 1;
}

/* Takes a status of onnxruntime: null is success. */
static inline int onnxgrad_bad_(onnxgrad_step *step, void *status, const char *what) {
  if (!status) return 0;
  onnxgrad_fail_(step, what, ((const char *(*)(const void *))step->api[2])(status));
  ((void (*)(void *))step->api[93])(status);
  return 1;
}

static inline char *onnxgrad_join_(const char *a, const char *b) {
  char *text = (char *)malloc(strlen(a) + strlen(b) + 1);
  strcpy(text, a);
  return strcat(text, b);
}

static inline int onnxgrad_open_session_(onnxgrad_step *step, const char *path, const char *library, int threads,
                                         onnxgrad_session_ *made) {
  void *options = NULL, *allocator = NULL, *handle = NULL;
  if (onnxgrad_bad_(step, ONNXGRAD_CALL_(step, 10, void **)(&options), path)) return 1;
  ONNXGRAD_CALL_(step, 22, void *, int)(options, 3);
  if (threads) ONNXGRAD_CALL_(step, 24, void *, int)(options, threads);
  if (library &&
      onnxgrad_bad_(step, ONNXGRAD_CALL_(step, 29, void *, const char *, void **)(options, library, &handle), library))
    return 1;
  int bad = onnxgrad_bad_(
      step, ONNXGRAD_CALL_(step, 7, void *, const char *, void *, void **)(step->env, path, options, &made->session), path);
  ((void (*)(void *))step->api[100])(options);
  if (bad) return 1;
  ONNXGRAD_CALL_(step, 30, void *, size_t *)(made->session, &made->inputs);
  ONNXGRAD_CALL_(step, 31, void *, size_t *)(made->session, &made->outputs);
  ONNXGRAD_CALL_(step, 78, void **)(&allocator);
  made->input_names = (char **)calloc(made->inputs + 1, sizeof(char *));
  made->output_names = (char **)calloc(made->outputs + 1, sizeof(char *));
  for (int side = 0; side < 2; ++side)
    for (size_t i = 0; i < (side ? made->outputs : made->inputs); ++i) {
      char *name = NULL;
      ONNXGRAD_CALL_(step, 36 + side, void *, size_t, void *, char **)(made->session, i, allocator, &name);
      (side ? made->output_names : made->input_names)[i] = onnxgrad_join_(name, "");
      ONNXGRAD_CALL_(step, 76, void *, void *)(allocator, name);
    }
  return 0;
}

static inline int onnxgrad_run_(onnxgrad_step *step, onnxgrad_session_ *s, void **feeds, void **results) {
  memset(results, 0, s->outputs * sizeof(void *));
  return onnxgrad_bad_(
      step,
      ONNXGRAD_CALL_(step, 9, void *, void *, const char *const *, void *const *, size_t, const char *const *, size_t,
                     void **)(s->session, NULL, (const char *const *)s->input_names, feeds, s->inputs,
                              (const char *const *)s->output_names, s->outputs, results),
      "a run");
}

static inline void onnxgrad_release_(onnxgrad_step *step, void *value) {
  if (value) ((void (*)(void *))step->api[96])(value);
}

static inline size_t onnxgrad_width_(int type) {
  return type == ONNXGRAD_DOUBLE || type == ONNXGRAD_INT64 ? 8 : type == ONNXGRAD_UINT8 || type == ONNXGRAD_BOOL ? 1 : 4;
}

static inline size_t onnxgrad_count_(const onnxgrad_array *array) {
  size_t count = 1;
  for (size_t i = 0; i < array->rank; ++i) count *= (size_t)array->dims[i];
  return count;
}

/* An array as a value of onnxruntime that uses its memory. */
static inline void *onnxgrad_value_(onnxgrad_step *step, const onnxgrad_array *array) {
  void *value = NULL;
  size_t bytes = onnxgrad_count_(array) * onnxgrad_width_(array->type);
  onnxgrad_bad_(step,
                ONNXGRAD_CALL_(step, 49, const void *, void *, size_t, const int64_t *, size_t, int, void **)(
                    step->memory, array->data, bytes, array->dims, array->rank, array->type, &value),
                array->name);
  return value;
}

/* A value of onnxruntime as an array; the memory is the value's. */
static inline onnxgrad_array onnxgrad_array_(onnxgrad_step *step, const char *name, void *value) {
  onnxgrad_array found = {name, 0, NULL, 0, {0}};
  void *about = NULL;
  ONNXGRAD_CALL_(step, 65, const void *, void **)(value, &about);
  ONNXGRAD_CALL_(step, 60, const void *, int *)(about, &found.type);
  ONNXGRAD_CALL_(step, 61, const void *, size_t *)(about, &found.rank);
  if (found.rank > 8) found.rank = 8;
  ONNXGRAD_CALL_(step, 62, const void *, int64_t *, size_t)(about, found.dims, found.rank);
  ((void (*)(void *))step->api[99])(about);
  ONNXGRAD_CALL_(step, 51, void *, void **)(value, &found.data);
  return found;
}

static inline int onnxgrad_find_(char **names, size_t count, const char *name) {
  for (size_t i = 0; i < count; ++i)
    if (!strcmp(names[i], name)) return (int)i;
  return -1;
}

static inline void onnxgrad_step_close(onnxgrad_step *step) {
  if (!step) return;
  for (size_t i = 0; step->values && i < step->kept; ++i) onnxgrad_release_(step, step->values[i]);
  onnxgrad_session_ *all[3] = {&step->train, &step->eval, &step->init};
  for (int k = 0; k < 3; ++k) {
    for (size_t i = 0; all[k]->input_names && all[k]->input_names[i]; ++i) free(all[k]->input_names[i]);
    for (size_t i = 0; all[k]->output_names && all[k]->output_names[i]; ++i) free(all[k]->output_names[i]);
    free(all[k]->input_names);
    free(all[k]->output_names);
    if (all[k]->session) ((void (*)(void *))step->api[95])(all[k]->session);
  }
  if (step->memory) ((void (*)(void *))step->api[94])(step->memory);
  if (step->env) ((void (*)(void *))step->api[92])(step->env);
  free(step->values);
  free(step->eval_path);
  free(step);
}

/* Opens STEM.onnx, STEM.init.onnx and STEM.eval.onnx. Null only without memory: look at onnxgrad_step_error, "" is good. */
static inline onnxgrad_step *onnxgrad_step_open(const char *runtime, const char *stem, const char *library, int threads) {
  typedef struct { void *const *(*table)(uint32_t); const char *(*version)(void); } base;
  onnxgrad_step *step = (onnxgrad_step *)calloc(1, sizeof *step);
  if (!step) return NULL;
  step->runtime = dlopen(runtime, RTLD_NOW | RTLD_LOCAL);
  void *entry = step->runtime ? dlsym(step->runtime, "OrtGetApiBase") : NULL;
  if (!entry) {
    onnxgrad_fail_(step, runtime, step->runtime ? "it is no onnxruntime" : dlerror());
    return step;
  }
  step->api = ((const base *(*)(void))entry)()->table(19);
  if (!step->api) {
    onnxgrad_fail_(step, runtime, "it is older than onnxruntime 1.19");
    return step;
  }
  if (onnxgrad_bad_(step, ONNXGRAD_CALL_(step, 3, int, const char *, void **)(3, "onnxgrad", &step->env), runtime) ||
      onnxgrad_bad_(step, ONNXGRAD_CALL_(step, 69, int, int, void **)(1, 0, &step->memory), runtime))
    return step;
  char *paths[3] = {onnxgrad_join_(stem, ".onnx"), onnxgrad_join_(stem, ".init.onnx"), onnxgrad_join_(stem, ".eval.onnx")};
  step->eval_path = paths[2];
  int bad = onnxgrad_open_session_(step, paths[0], library, threads, &step->train) ||
            onnxgrad_open_session_(step, paths[1], NULL, threads, &step->init) ||
            onnxgrad_open_session_(step, paths[2], library, threads, &step->eval);
  free(paths[0]);
  free(paths[1]);
  if (bad) return step;
  step->kept = step->init.outputs;
  step->kept_names = step->init.output_names;
  step->values = (void **)calloc(step->kept + 1, sizeof(void *));
  onnxgrad_run_(step, &step->init, NULL, step->values);
  return step;
}

/* Fills the feeds of a session: what is kept, and the caller's arrays; `mine` marks values to release. */
static inline int onnxgrad_feeds_(onnxgrad_step *step, onnxgrad_session_ *s, const onnxgrad_array *arrays, size_t count,
                                  void **feeds, char *mine) {
  for (size_t i = 0; i < s->inputs; ++i) {
    int at = onnxgrad_find_(step->kept_names, step->kept, s->input_names[i]);
    if (at >= 0) feeds[i] = step->values[at];
    for (size_t k = 0; at < 0 && k < count; ++k)
      if (!strcmp(arrays[k].name, s->input_names[i])) {
        feeds[i] = onnxgrad_value_(step, &arrays[k]);
        mine[i] = 1;
      }
    if (!feeds[i]) return onnxgrad_fail_(step, s->input_names[i], "no array of this name was given");
  }
  return 0;
}

/* One step on a batch, the next in number; returns the loss, NaN on failure: nothing has changed then. */
static inline float onnxgrad_step_train(onnxgrad_step *step, const onnxgrad_array *batch, size_t count, float lr) {
  onnxgrad_session_ *s = &step->train;
  int64_t number = step->done + 1, key[2] = {step->seed, step->done};
  onnxgrad_array *all = (onnxgrad_array *)calloc(count + 3, sizeof *all);
  void **feeds = (void **)calloc(s->inputs + 1, sizeof(void *)), **results = (void **)calloc(s->outputs + 1, sizeof(void *));
  char *mine = (char *)calloc(s->inputs + 1, 1);
  onnxgrad_array settings[3] = {{"lr", ONNXGRAD_FLOAT, &lr, 0, {0}}, {"step", ONNXGRAD_INT64, &number, 0, {0}},
                                {"dropout/key", ONNXGRAD_INT64, key, 1, {2}}};
  float loss = NAN;
  memcpy(all, batch, count * sizeof *all);
  memcpy(all + count, settings, sizeof settings);
  step->error[0] = 0;
  if (!onnxgrad_feeds_(step, s, all, count + 3, feeds, mine) && !onnxgrad_run_(step, s, feeds, results)) {
    for (size_t i = 0; i < s->outputs; ++i) {
      const char *name = s->output_names[i];
      int at = strncmp(name, "new.", 4) ? -1 : onnxgrad_find_(step->kept_names, step->kept, name + 4);
      if (at < 0) {
        onnxgrad_array found = onnxgrad_array_(step, name, results[i]);
        loss = found.type == ONNXGRAD_DOUBLE ? (float)*(double *)found.data : *(float *)found.data;
        onnxgrad_release_(step, results[i]);
      } else {
        void *old = step->values[at];
        step->values[at] = results[i];
        results[i] = old;
        onnxgrad_release_(step, old);
        for (size_t k = 0; k < s->inputs; ++k)
          if (feeds[k] == old) feeds[k] = NULL;
      }
    }
    step->done = number;
  }
  for (size_t i = 0; i < s->inputs; ++i)
    if (mine[i]) onnxgrad_release_(step, feeds[i]);
  free(all);
  free(feeds);
  free(results);
  free(mine);
  return loss;
}

/* Runs the model as it is now; `look` is called with every output, whose memory is gone afterwards. */
static inline int onnxgrad_step_evaluate(onnxgrad_step *step, const onnxgrad_array *inputs, size_t count,
                                         void (*look)(const onnxgrad_array *output, void *you), void *you) {
  onnxgrad_session_ *s = &step->eval;
  void **feeds = (void **)calloc(s->inputs + 1, sizeof(void *)), **results = (void **)calloc(s->outputs + 1, sizeof(void *));
  char *mine = (char *)calloc(s->inputs + 1, 1);
  step->error[0] = 0;
  int bad = onnxgrad_feeds_(step, s, inputs, count, feeds, mine) || onnxgrad_run_(step, s, feeds, results);
  for (size_t i = 0; !bad && i < s->outputs; ++i) {
    onnxgrad_array found = onnxgrad_array_(step, s->output_names[i], results[i]);
    look(&found, you);
    onnxgrad_release_(step, results[i]);
  }
  for (size_t i = 0; i < s->inputs; ++i)
    if (mine[i]) onnxgrad_release_(step, feeds[i]);
  free(feeds);
  free(results);
  free(mine);
  return bad;
}

/* Whether the evaluation takes a value: parameters and statistics, not the optimizer's state. */
static inline int onnxgrad_of_model_(onnxgrad_step *step, size_t i) {
  return onnxgrad_find_(step->eval.input_names, step->eval.inputs, step->kept_names[i]) >= 0;
}

static inline int onnxgrad_publish_(onnxgrad_step *step, FILE *file, char *part, const char *path, int bad) {
  bad = (fflush(file) != 0) || bad;
  bad = (fclose(file) != 0) || bad || rename(part, path) != 0;
  if (bad) remove(part);
  free(part);
  return bad ? onnxgrad_fail_(step, path, "it could not be written") : 0;
}

/* safetensors: the length of a JSON header, the header, the numbers. Names are written as they are in the model. */
static inline int onnxgrad_write_(onnxgrad_step *step, const char *path, int state) {
  char *part = onnxgrad_join_(path, ".part"), *header = (char *)malloc(128 + step->kept * 512);
  size_t length = 0, at = 0;
  FILE *file = fopen(part, "wb");
  if (!file) {
    free(part);
    free(header);
    return onnxgrad_fail_(step, path, "it cannot be opened for writing");
  }
  length += (size_t)sprintf(header, "{\"__metadata__\":{\"step\":\"%lld\"}", (long long)step->done);
  for (size_t i = 0; i < step->kept; ++i) {
    if (!state && !onnxgrad_of_model_(step, i)) continue;
    onnxgrad_array a = onnxgrad_array_(step, step->kept_names[i], step->values[i]);
    size_t bytes = onnxgrad_count_(&a) * onnxgrad_width_(a.type);
    header = (char *)realloc(header, length + strlen(a.name) + 512 + step->kept * 512);
    length += (size_t)sprintf(header + length, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", a.name,
                              a.type == ONNXGRAD_DOUBLE ? "F64" : a.type == ONNXGRAD_INT64 ? "I64" : "F32");
    for (size_t k = 0; k < a.rank; ++k) length += (size_t)sprintf(header + length, "%s%lld", k ? "," : "", (long long)a.dims[k]);
    length += (size_t)sprintf(header + length, "],\"data_offsets\":[%zu,%zu]}", at, at + bytes);
    at += bytes;
  }
  header[length++] = '}';
  uint64_t size = length;
  int bad = fwrite(&size, 8, 1, file) != 1 || fwrite(header, 1, length, file) != length;
  for (size_t i = 0; i < step->kept; ++i) {
    if (!state && !onnxgrad_of_model_(step, i)) continue;
    onnxgrad_array a = onnxgrad_array_(step, step->kept_names[i], step->values[i]);
    size_t count = onnxgrad_count_(&a);
    bad |= fwrite(a.data, onnxgrad_width_(a.type), count, file) != count;
  }
  free(header);
  return onnxgrad_publish_(step, file, part, path, bad);
}

/* A checkpoint: everything that a later onnxgrad_step_load needs to go on to the same bits. */
static inline int onnxgrad_step_save(onnxgrad_step *step, const char *path) { return onnxgrad_write_(step, path, 1); }

/* The trained parameters alone, for `onnxgrad merge`. */
static inline int onnxgrad_step_parameters(onnxgrad_step *step, const char *path) { return onnxgrad_write_(step, path, 0); }

static inline char *onnxgrad_read_(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  if (!file) return NULL;
  fseek(file, 0, SEEK_END);
  long length = ftell(file);
  rewind(file);
  char *bytes = length < 0 ? NULL : (char *)malloc((size_t)length + 1);
  if (bytes && fread(bytes, 1, (size_t)length, file) != (size_t)length) {
    free(bytes);
    bytes = NULL;
  }
  fclose(file);
  if (bytes) bytes[length] = 0;
  *size = (size_t)length;
  return bytes;
}

/* Goes on from a checkpoint of onnxgrad_step_save. On failure nothing has changed. */
static inline int onnxgrad_step_load(onnxgrad_step *step, const char *path) {
  size_t size = 0;
  uint64_t length = 0;
  char *bytes = onnxgrad_read_(path, &size);
  if (bytes && size >= 8) memcpy(&length, bytes, 8);
  if (!bytes || size < 8 || length > size - 8) {
    free(bytes);
    return onnxgrad_fail_(step, path, "it is missing, or no checkpoint");
  }
  char *numbers = bytes + 8 + length, end = *numbers;
  *numbers = 0; /* the header ends where the numbers begin */
  char *header = onnxgrad_join_(bytes + 8, "");
  *numbers = end;
  size_t room = size - 8 - length;
  int bad = 0;
  for (int write = 0; write < 2 && !bad; ++write) /* look at all of them, then change them */
    for (size_t i = 0; i < step->kept && !bad; ++i) {
      onnxgrad_array a = onnxgrad_array_(step, step->kept_names[i], step->values[i]);
      size_t wanted = onnxgrad_count_(&a) * onnxgrad_width_(a.type), first = 0, last = 0;
      char *key = onnxgrad_join_("\"", a.name), *whole = onnxgrad_join_(key, "\":{");
      char *found = strstr(header, whole), *offsets = found ? strstr(found, "\"data_offsets\":[") : NULL;
      if (!offsets || sscanf(offsets, "\"data_offsets\":[%zu,%zu]", &first, &last) != 2 || last < first || last > room ||
          last - first != wanted)
        bad = onnxgrad_fail_(step, path, a.name);
      else if (write)
        memcpy(a.data, numbers + first, wanted);
      free(key);
      free(whole);
    }
  long long done = 0;
  char *told = strstr(header, "\"step\":\"");
  if (!bad && told && sscanf(told, "\"step\":\"%lld\"", &done) == 1) step->done = done;
  free(header);
  free(bytes);
  return bad;
}

static inline size_t onnxgrad_varint_(char *to, uint64_t value) {
  size_t n = 0;
  do {
    to[n++] = (char)((value & 127) | (value > 127 ? 128 : 0));
    value >>= 7;
  } while (value);
  return n;
}

/* The bytes before the numbers of one TensorProto (field 5 of GraphProto): name, type, dims, length; and how many all take. */
static inline size_t onnxgrad_tensor_head_(char *to, const onnxgrad_array *a, size_t bytes, size_t *all) {
  char inner[512];
  size_t n = 0, name = strlen(a->name);
  for (size_t k = 0; k < a->rank; ++k) {
    inner[n++] = 0x08; /* dims = 1 */
    n += onnxgrad_varint_(inner + n, (uint64_t)a->dims[k]);
  }
  inner[n++] = 0x10; /* data_type = 2 */
  n += onnxgrad_varint_(inner + n, (uint64_t)a->type);
  char label[16], data[16];
  size_t labels = 0, datas = 0;
  label[labels++] = 0x42; /* name = 8 */
  labels += onnxgrad_varint_(label + labels, name);
  data[datas++] = 0x4a; /* raw_data = 9 */
  datas += onnxgrad_varint_(data + datas, bytes);
  size_t body = n + labels + name + datas + bytes, at = 0;
  to[at++] = 0x2a; /* initializer = 5 */
  at += onnxgrad_varint_(to + at, body);
  memcpy(to + at, inner, n), at += n;
  memcpy(to + at, label, labels), at += labels;
  memcpy(to + at, a->name, name), at += name;
  memcpy(to + at, data, datas), at += datas;
  *all = at + bytes;
  return at;
}

static inline size_t onnxgrad_unvarint_(const char *from, const char *end, uint64_t *value) {
  size_t n = 0;
  *value = 0;
  while (from + n < end && n < 10) {
    *value |= (uint64_t)((unsigned char)from[n] & 127) << (7 * n);
    if (!(from[n++] & 128)) return n;
  }
  return 0;
}

/* One field of a message: its number, where its content begins and ends; returns the end, null where it is damaged. */
static inline const char *onnxgrad_field_(const char *at, const char *end, int *number, const char **content) {
  uint64_t tag = 0, length = 0;
  size_t n = onnxgrad_unvarint_(at, end, &tag);
  if (!n) return NULL;
  *number = (int)(tag >> 3);
  *content = at += n;
  if ((tag & 7) == 0) return (n = onnxgrad_unvarint_(at, end, &length)) ? at + n : NULL;
  if ((tag & 7) != 2) return (length = (tag & 7) == 1 ? 8 : 4) <= (uint64_t)(end - at) ? at + length : NULL;
  if (!(n = onnxgrad_unvarint_(at, end, &length)) || length > (uint64_t)(end - at) - n) return NULL;
  *content = at + n;
  return at + n + length;
}

/* Whether a ValueInfoProto is of something that is kept: its name is field 1. */
static inline int onnxgrad_is_kept_(onnxgrad_step *step, const char *at, const char *end) {
  int number = 0;
  for (const char *content = at, *next = at; at < end && (next = onnxgrad_field_(at, end, &number, &content)); at = next)
    for (size_t i = 0; number == 1 && i < step->kept; ++i)
      if (strlen(step->kept_names[i]) == (size_t)(next - content) && !memcmp(step->kept_names[i], content, (size_t)(next - content)))
        return 1;
  return 0;
}

/* The graph without the inputs that are kept, then their numbers as initializers. Counts where `file` is null. */
static inline int onnxgrad_graph_(onnxgrad_step *step, FILE *file, const char *at, const char *end, size_t *total) {
  int bad = 0, number = 0;
  for (const char *content = at, *next = at; at < end; at = next) {
    if (!(next = onnxgrad_field_(at, end, &number, &content))) return 1;
    if (number == 11 && onnxgrad_is_kept_(step, content, next)) continue; /* input = 11 */
    *total += (size_t)(next - at);
    if (file) bad |= fwrite(at, 1, (size_t)(next - at), file) != (size_t)(next - at);
  }
  for (size_t i = 0; i < step->kept; ++i) {
    if (!onnxgrad_of_model_(step, i)) continue;
    onnxgrad_array a = onnxgrad_array_(step, step->kept_names[i], step->values[i]);
    size_t bytes = onnxgrad_count_(&a) * onnxgrad_width_(a.type), all = 0;
    char *head = (char *)malloc(strlen(a.name) + 640);
    size_t n = onnxgrad_tensor_head_(head, &a, bytes, &all);
    *total += all;
    if (file) bad |= fwrite(head, 1, n, file) != n || fwrite(a.data, 1, bytes, file) != bytes;
    free(head);
  }
  return bad;
}

/* Writes the model with its trained parameters: the evaluation file, where they are initializers instead of inputs. */
static inline int onnxgrad_step_export(onnxgrad_step *step, const char *path) {
  size_t size = 0;
  char *model = onnxgrad_read_(step->eval_path, &size), *part = onnxgrad_join_(path, ".part");
  FILE *file = model ? fopen(part, "wb") : NULL;
  if (!file) {
    free(model);
    free(part);
    return onnxgrad_fail_(step, path, model ? "it cannot be opened for writing" : "the evaluation file cannot be read");
  }
  const char *at = model, *end = model + size, *content = at, *next = at;
  int bad = 0, number = 0;
  for (; at < end && !bad; at = next) {
    if (!(next = onnxgrad_field_(at, end, &number, &content))) {
      bad = 1;
    } else if (number != 7) { /* graph = 7 of ModelProto */
      bad = fwrite(at, 1, (size_t)(next - at), file) != (size_t)(next - at);
    } else {
      size_t total = 0, again = 0;
      char head[16] = {0x3a};
      bad = onnxgrad_graph_(step, NULL, content, next, &total);
      size_t n = 1 + onnxgrad_varint_(head + 1, total);
      bad = bad || fwrite(head, 1, n, file) != n || onnxgrad_graph_(step, file, content, next, &again);
    }
  }
  free(model);
  return onnxgrad_publish_(step, file, part, path, bad);
}
#endif
