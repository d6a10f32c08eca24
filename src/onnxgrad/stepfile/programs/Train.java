// Trains with @STEM@.onnx in Java, with nothing but onnxruntime (com.microsoft.onnxruntime:onnxruntime of Maven):
//
//   javac -cp onnxruntime.jar @CLASS@.java
//   java -cp onnxruntime.jar:. @CLASS@ DATA_FOLDER [EPOCHS] [BATCH_SIZE]
//
// DATA_FOLDER holds one .npy file per input and target, with a row per example. The trained parameters are written to
// @STEM@.trained.safetensors; `onnxgrad merge model.onnx @STEM@.trained.safetensors -o tuned.onnx` puts them back.
import ai.onnxruntime.OnnxJavaType;
import ai.onnxruntime.OnnxTensor;
import ai.onnxruntime.OrtEnvironment;
import ai.onnxruntime.OrtException;
import ai.onnxruntime.OrtSession;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.LongBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

public final class @CLASS@ {
  static final String[] TABLES = {@NAMES@}; // inputs, then targets
  static final String[] TRAINED = {@TRAINED@}; // parameters, then running statistics
  static final String[] STATE = {@STATE@}; // of the optimizer
  static final boolean DROPOUT = @DROPOUT@;
  static final String LOSS = "@LOSS@";
  static final float RATE = @LR@f;

  /** Rows of a .npy file in C order. */
  record Table(OnnxJavaType type, long[] dims, int width, byte[] bytes) {
    static Table read(Path file) throws IOException {
      byte[] all = Files.readAllBytes(file);
      ByteBuffer view = ByteBuffer.wrap(all).order(ByteOrder.LITTLE_ENDIAN);
      int start = all[6] == 1 ? 10 + view.getShort(8) : 12 + view.getInt(8);
      String header = new String(all, 8, start - 8, StandardCharsets.ISO_8859_1);
      Matcher kind = Pattern.compile("'descr': '([^']+)'").matcher(header);
      Matcher shape = Pattern.compile("'shape': \\(([^)]*)\\)").matcher(header);
      if (!kind.find() || !shape.find() || header.contains("'fortran_order': True"))
        throw new IOException(file + ": expected numbers in C order");
      OnnxJavaType type = switch (kind.group(1)) {
        case "<f4" -> OnnxJavaType.FLOAT;
        case "<f8" -> OnnxJavaType.DOUBLE;
        case "<i4" -> OnnxJavaType.INT32;
        case "<i8" -> OnnxJavaType.INT64;
        case "|u1" -> OnnxJavaType.UINT8;
        case "|b1" -> OnnxJavaType.BOOL;
        default -> throw new IOException(file + ": numbers of type " + kind.group(1) + " are not read here");
      };
      List<Long> dims = new ArrayList<>();
      for (String text : shape.group(1).split(",")) if (!text.isBlank()) dims.add(Long.parseLong(text.trim()));
      long width = type.size;
      for (int i = 1; i < dims.size(); ++i) width *= dims.get(i);
      byte[] bytes = java.util.Arrays.copyOfRange(all, start, all.length);
      return new Table(type, dims.stream().mapToLong(Long::longValue).toArray(), (int) width, bytes);
    }

    /** The chosen rows as a tensor. */
    OnnxTensor rows(OrtEnvironment environment, int[] order, int start, int count) throws OrtException {
      ByteBuffer held = ByteBuffer.allocateDirect(count * width).order(ByteOrder.nativeOrder());
      for (int i = 0; i < count; ++i) held.put(bytes, order[start + i] * width, width);
      held.rewind();
      long[] shape = dims.clone();
      shape[0] = count;
      return OnnxTensor.createTensor(environment, held, shape, type);
    }
  }

  /** Lehmer's generator: the same order in every language. */
  static int[] shuffled(int count, int epoch) {
    int[] rows = new int[count];
    for (int i = 0; i < count; ++i) rows[i] = i;
    long random = epoch + 1;
    for (int i = count - 1; i > 0; --i) {
      random = random * 48271 % 2147483647L;
      int j = (int) (random % (i + 1)), row = rows[i];
      rows[i] = rows[j];
      rows[j] = row;
    }
    return rows;
  }

  static void writeSafetensors(Path file, Map<String, OnnxTensor> tensors) throws IOException {
    StringBuilder header = new StringBuilder("{");
    ByteArrayOutputStream numbers = new ByteArrayOutputStream();
    for (Map.Entry<String, OnnxTensor> entry : tensors.entrySet()) {
      OnnxTensor tensor = entry.getValue();
      ByteBuffer bytes = tensor.getByteBuffer();
      byte[] copy = new byte[bytes.remaining()];
      bytes.get(copy);
      int at = numbers.size();
      numbers.writeBytes(copy);
      if (header.length() > 1) header.append(',');
      String dtype = tensor.getInfo().type == OnnxJavaType.DOUBLE ? "F64" : "F32";
      header.append('"').append(entry.getKey()).append("\":{\"dtype\":\"").append(dtype).append("\",\"shape\":")
          .append(java.util.Arrays.toString(tensor.getInfo().getShape())).append(",\"data_offsets\":[").append(at)
          .append(',').append(numbers.size()).append("]}");
    }
    byte[] text = header.append('}').toString().getBytes(StandardCharsets.UTF_8);
    ByteBuffer all = ByteBuffer.allocate(8 + text.length + numbers.size()).order(ByteOrder.LITTLE_ENDIAN);
    all.putLong(text.length).put(text).put(numbers.toByteArray());
    Path part = Path.of(file + ".part");
    Files.write(part, all.array());
    Files.move(part, file, StandardCopyOption.REPLACE_EXISTING);
  }

  public static void main(String[] arguments) throws Exception {
    if (arguments.length < 1) {
      System.err.println("usage: java @CLASS@ DATA_FOLDER [EPOCHS] [BATCH_SIZE]");
      System.exit(2);
    }
    int epochs = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 5;
    int size = arguments.length > 2 ? Integer.parseInt(arguments[2]) : 32;
    OrtEnvironment environment = OrtEnvironment.getEnvironment();
    Map<String, Table> tables = new LinkedHashMap<>();
    for (String name : TABLES) tables.put(name, Table.read(Path.of(arguments[0], name + ".npy")));
    int rows = (int) tables.get(TABLES[0]).dims()[0];
    List<String> kept = new ArrayList<>(List.of(TRAINED));
    kept.addAll(List.of(STATE));
    try (OrtSession step = environment.createSession("@STEM@.onnx");
        OrtSession initial = environment.createSession("@STEM@.init.onnx")) {
      OrtSession.Result before = initial.run(Map.of());
      Map<String, OnnxTensor> values = new HashMap<>();
      for (String name : kept) values.put(name, (OnnxTensor) before.get(name).orElseThrow());
      long done = 0;
      for (int epoch = 0; epoch < epochs; ++epoch) {
        int[] order = shuffled(rows, epoch);
        double sum = 0;
        for (int start = 0; start < rows; start += size) {
          int count = Math.min(size, rows - start);
          Map<String, OnnxTensor> own = new HashMap<>();
          for (Map.Entry<String, Table> entry : tables.entrySet())
            own.put(entry.getKey(), entry.getValue().rows(environment, order, start, count));
          own.put("lr", OnnxTensor.createTensor(environment, FloatBuffer.wrap(new float[] {RATE}), new long[0]));
          own.put("step", OnnxTensor.createTensor(environment, LongBuffer.wrap(new long[] {done + 1}), new long[0]));
          if (DROPOUT)
            own.put("dropout/key", OnnxTensor.createTensor(environment, LongBuffer.wrap(new long[] {0, done}), new long[] {2}));
          Map<String, OnnxTensor> feeds = new HashMap<>(values);
          feeds.putAll(own);
          OrtSession.Result results = step.run(feeds);
          sum += ((OnnxTensor) results.get(LOSS).orElseThrow()).getFloatBuffer().get(0) * (double) count;
          values = new HashMap<>();
          for (String name : kept) values.put(name, (OnnxTensor) results.get("new." + name).orElseThrow());
          before.close(); // the values of the step before
          before = results;
          for (OnnxTensor tensor : own.values()) tensor.close();
          ++done;
        }
        System.out.printf("epoch %d/%d  loss %.6f%n", epoch + 1, epochs, sum / rows);
      }
      Map<String, OnnxTensor> trained = new LinkedHashMap<>();
      for (String name : TRAINED) trained.put(name, values.get(name));
      writeSafetensors(Path.of("@STEM@.trained.safetensors"), trained);
      before.close();
    }
    System.out.println("wrote @STEM@.trained.safetensors");
  }
}
