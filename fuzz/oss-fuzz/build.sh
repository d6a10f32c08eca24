#!/bin/bash -eu
# Runs in OSS-Fuzz's container: $CXX, $CXXFLAGS, $LIB_FUZZING_ENGINE, $SRC, $WORK and $OUT are its own.
cmake -S "$SRC/onnxgrad" -B "$WORK/build" -G Ninja -DONNXGRAD_FUZZ=ON -DONNXGRAD_PYTHON=OFF \
  -DONNXGRAD_LEVELS=baseline -DONNXGRAD_FUZZ_FLAGS="" -DONNXGRAD_FUZZ_ENGINE="$LIB_FUZZING_ENGINE"
ninja -C "$WORK/build" fuzz_contracts fuzz_kernels
for harness in contracts kernels; do
  cp "$WORK/build/fuzz_$harness" "$OUT/"
  cp "$SRC/onnxgrad/fuzz/fuzz.options" "$OUT/fuzz_$harness.options"
done
cp "$SRC"/onnxgrad/fuzz/corpus/*_seed_corpus.zip "$OUT/"
