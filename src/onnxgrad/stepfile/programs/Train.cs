// Trains with @STEM@.onnx in C#, with nothing but onnxruntime (C# 8: .NET Core 3.1 or newer, Unity):
//
//   dotnet new console -o train && cd train && dotnet add package Microsoft.ML.OnnxRuntime
//   cp ../@STEM@.train.cs Program.cs && cp ../@STEM@*.onnx . && dotnet run -- DATA_FOLDER [EPOCHS] [BATCH_SIZE]
//
// DATA_FOLDER holds one .npy file per input and target, with a row per example. The trained parameters are written to
// @STEM@.trained.safetensors; `onnxgrad merge model.onnx @STEM@.trained.safetensors -o tuned.onnx` puts them back.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Runtime.InteropServices;
using System.Text;
using System.Text.RegularExpressions;
using Microsoft.ML.OnnxRuntime;
using Microsoft.ML.OnnxRuntime.Tensors;

static class Train
{
    static readonly string[] tableNames = { @NAMES@ };  // inputs, then targets
    static readonly string[] trained = { @TRAINED@ };   // parameters, then running statistics
    static readonly string[] state = { @STATE@ };       // of the optimizer
    static readonly bool Dropout = @DROPOUT@;
    const string Loss = "@LOSS@";
    const float Rate = @LR@f;

    static int Main(string[] args)
    {
        if (args.Length < 1)
        {
            Console.Error.WriteLine("usage: dotnet run -- DATA_FOLDER [EPOCHS] [BATCH_SIZE]");
            return 2;
        }
        int epochs = args.Length > 1 ? int.Parse(args[1]) : 5;
        int size = args.Length > 2 ? int.Parse(args[2]) : 32;
        var tables = tableNames.ToDictionary(name => name, name => Table.Read(Path.Combine(args[0], name + ".npy")));
        int rows = (int)tables[tableNames[0]].Dims[0];
        string[] kept = trained.Concat(state).ToArray();
        using var options = new RunOptions();
        using var step = new InferenceSession("@STEM@.onnx");
        using var initial = new InferenceSession("@STEM@.init.onnx");
        var before = initial.Run(options, new Dictionary<string, OrtValue>(), initial.OutputNames);
        var values = initial.OutputNames.Zip(before).ToDictionary(pair => pair.First, pair => pair.Second);
        long done = 0;
        for (int epoch = 0; epoch < epochs; ++epoch)
        {
            int[] order = Shuffled(rows, epoch);
            double sum = 0;
            for (int start = 0; start < rows; start += size)
            {
                int count = Math.Min(size, rows - start);
                var own = tables.ToDictionary(entry => entry.Key, entry => entry.Value.Rows(order, start, count));
                own["lr"] = OrtValue.CreateTensorValueFromMemory(new[] { Rate }, Array.Empty<long>());
                own["step"] = OrtValue.CreateTensorValueFromMemory(new[] { done + 1 }, Array.Empty<long>());
                if (Dropout) own["dropout/key"] = OrtValue.CreateTensorValueFromMemory(new[] { 0L, done }, new long[] { 2 });
                var feeds = new Dictionary<string, OrtValue>(values.Where(entry => kept.Contains(entry.Key)));
                foreach (var entry in own) feeds[entry.Key] = entry.Value;
                var results = step.Run(options, feeds, step.OutputNames);
                var named = step.OutputNames.Zip(results).ToDictionary(pair => pair.First, pair => pair.Second);
                sum += named[Loss].GetTensorDataAsSpan<float>()[0] * (double)count;
                values = kept.ToDictionary(name => name, name => named["new." + name]);
                before.Dispose();  // the values of the step before
                before = results;
                foreach (var value in own.Values) value.Dispose();
                ++done;
            }
            Console.WriteLine($"epoch {epoch + 1}/{epochs}  loss {sum / rows:F6}");
        }
        WriteSafetensors("@STEM@.trained.safetensors", trained.Select(name => (name, values[name])));
        before.Dispose();
        Console.WriteLine("wrote @STEM@.trained.safetensors");
        return 0;
    }

    // Lehmer's generator: the same order in every language.
    static int[] Shuffled(int count, int epoch)
    {
        int[] rows = Enumerable.Range(0, count).ToArray();
        long random = epoch + 1;
        for (int i = count - 1; i > 0; --i)
        {
            random = random * 48271 % 2147483647L;
            int j = (int)(random % (i + 1));
            (rows[i], rows[j]) = (rows[j], rows[i]);
        }
        return rows;
    }

    static void WriteSafetensors(string file, IEnumerable<(string Name, OrtValue Value)> tensors)
    {
        var header = new List<string>();
        using var numbers = new MemoryStream();
        foreach (var (name, value) in tensors)
        {
            var about = value.GetTensorTypeAndShape();
            bool wide = about.ElementDataType == TensorElementType.Double;
            long at = numbers.Length;
            numbers.Write(wide ? MemoryMarshal.AsBytes(value.GetTensorDataAsSpan<double>())
                               : MemoryMarshal.AsBytes(value.GetTensorDataAsSpan<float>()));
            string shape = string.Join(",", about.Shape);
            string quoted = name.Replace("\\", "\\\\").Replace("\"", "\\\"");
            header.Add($"\"{quoted}\":{{\"dtype\":\"{(wide ? "F64" : "F32")}\",\"shape\":[{shape}],\"data_offsets\":[{at},{numbers.Length}]}}");
        }
        byte[] text = Encoding.UTF8.GetBytes("{" + string.Join(",", header) + "}");
        using (var part = File.Create(file + ".part"))
        {
            part.Write(BitConverter.GetBytes((ulong)text.Length));
            part.Write(text);
            numbers.WriteTo(part);
        }
        File.Move(file + ".part", file, true);
    }
}

// Rows of a .npy file in C order.
class Table
{
    public readonly string Kind;
    public readonly long[] Dims;
    public readonly int Width;  // bytes of a row
    public readonly byte[] Bytes;

    Table(string kind, long[] dims, int width, byte[] bytes)
    {
        (Kind, Dims, Width, Bytes) = (kind, dims, width, bytes);
    }

    public static Table Read(string file)
    {
        byte[] all = File.ReadAllBytes(file);
        int start = all[6] == 1 ? 10 + BitConverter.ToUInt16(all, 8) : 12 + (int)BitConverter.ToUInt32(all, 8);
        string header = Encoding.ASCII.GetString(all, 8, start - 8);
        string kind = Regex.Match(header, "'descr': '([^']+)'").Groups[1].Value;
        if (header.Contains("'fortran_order': True")) throw new IOException($"{file}: expected numbers in C order");
        string shape = Regex.Match(header, @"'shape': \(([^)]*)\)").Groups[1].Value;
        long[] dims = Regex.Matches(shape, @"\d+").Select(found => long.Parse(found.Value)).ToArray();
        int one = kind[^1] - '0';
        return new Table(kind, dims, one * (int)dims.Skip(1).Aggregate(1L, (a, b) => a * b), all[start..]);
    }

    // The chosen rows as a tensor.
    public OrtValue Rows(int[] order, int start, int count)
    {
        byte[] held = new byte[count * Width];
        for (int i = 0; i < count; ++i) Array.Copy(Bytes, (long)order[start + i] * Width, held, (long)i * Width, Width);
        long[] shape = Dims.ToArray();
        shape[0] = count;
        return Kind switch
        {
            "<f4" => OrtValue.CreateTensorValueFromMemory(MemoryMarshal.Cast<byte, float>(held).ToArray(), shape),
            "<f8" => OrtValue.CreateTensorValueFromMemory(MemoryMarshal.Cast<byte, double>(held).ToArray(), shape),
            "<i4" => OrtValue.CreateTensorValueFromMemory(MemoryMarshal.Cast<byte, int>(held).ToArray(), shape),
            "<i8" => OrtValue.CreateTensorValueFromMemory(MemoryMarshal.Cast<byte, long>(held).ToArray(), shape),
            "|u1" => OrtValue.CreateTensorValueFromMemory(held, shape),
            "|b1" => OrtValue.CreateTensorValueFromMemory(held.Select(b => b != 0).ToArray(), shape),
            _ => throw new IOException($"numbers of type {Kind} are not read here"),
        };
    }
}
