package peers;

import java.util.HashMap;
import java.util.Map;
import java.util.StringTokenizer;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.ReduceFunction;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.util.Collector;

/** W1, W2 and the latency of W1 in a cluster inside this JVM. Arguments: name=value. */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        Map<String, String> given = new HashMap<>();
        for (String argument : arguments) {
            String[] pair = argument.split("=", 2);
            given.put(pair[0], pair[1]);
        }
        long rows = Long.parseLong(given.get("rows"));
        int instances = Integer.parseInt(given.get("instances"));
        Configuration settings = new Configuration();
        for (Map.Entry<String, String> entry : given.entrySet()) {
            if (entry.getKey().contains(".")) {
                settings.setString(entry.getKey(), entry.getValue());
            }
        }
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.createLocalEnvironment(instances, settings);
        String path = given.get("path");
        switch (given.get("work")) {
            case "w1" -> count(env, path, rows, instances);
            case "latency" -> paced(env, path, rows, Long.parseLong(given.get("rate")),
                    Double.parseDouble(given.get("warm")));
            case "w2" -> words(env, path, rows, instances, given);
            default -> throw new IllegalArgumentException("work=" + given.get("work"));
        }
        env.execute();
        System.out.println(Totals.json());
    }

    private static void count(StreamExecutionEnvironment env, String path, long rows, int instances) {
        env.fromSource(Input.keys(path, rows, instances), WatermarkStrategy.noWatermarks(), "keys")
                .keyBy(key -> key)
                .process(new Count())
                .sinkTo(new Totals.OfCounts());
    }

    private static class Count
            extends KeyedProcessFunction<Integer, Integer, Tuple2<Integer, Integer>> {
        private transient ValueState<Integer> n;
        private transient Tuple2<Integer, Integer> answer;

        @Override
        public void open(OpenContext context) {
            n = getRuntimeContext().getState(new ValueStateDescriptor<>("n", Types.INT));
            answer = new Tuple2<>();
        }

        @Override
        public void processElement(
                Integer key, Context context, Collector<Tuple2<Integer, Integer>> out)
                throws Exception {
            Integer before = n.value();
            int now = before == null ? 1 : before + 1;
            n.update(now);
            answer.setFields(key, now);
            out.collect(answer);
        }
    }

    private static void paced(
            StreamExecutionEnvironment env, String path, long rows, long rate, double warm) {
        env.fromSource(Input.paced(path, rows, rate), WatermarkStrategy.noWatermarks(), "keys")
                .keyBy(record -> record.f0)
                .process(new PacedCount())
                .sinkTo(new Totals.OfLate(warm));
    }

    private static class PacedCount extends KeyedProcessFunction<
            Integer, Tuple2<Integer, Long>, Tuple3<Integer, Integer, Long>> {
        private transient ValueState<Integer> n;

        @Override
        public void open(OpenContext context) {
            n = getRuntimeContext().getState(new ValueStateDescriptor<>("n", Types.INT));
        }

        @Override
        public void processElement(Tuple2<Integer, Long> record, Context context,
                Collector<Tuple3<Integer, Integer, Long>> out) throws Exception {
            Integer before = n.value();
            int now = before == null ? 1 : before + 1;
            n.update(now);
            out.collect(Tuple3.of(record.f0, now, record.f1));
        }
    }

    private static void words(StreamExecutionEnvironment env, String path, long rows, int instances,
            Map<String, String> given) {
        int bytes = Integer.parseInt(given.get("line_bytes"));
        long perSecond = Long.parseLong(given.get("lines_per_second"));
        DataStream<Tuple2<String, Long>> words = Input.lines(
                        env, path, rows, instances, bytes, perSecond)
                .flatMap(new Split());
        long window = 1000 * Long.parseLong(given.get("window_seconds"));
        if (given.get("combine").equals("yes")) {
            words = words.transform("combine", words.getType(), new Combine(window));
        }
        SingleOutputStreamOperator<Tuple3<String, Long, Long>> counts = words.keyBy(word -> word.f0)
                .window(TumblingEventTimeWindows.of(java.time.Duration.ofMillis(window)))
                .reduce(new Add(), new WithStart());
        counts.sinkTo(new Totals.OfWords());
    }

    private static class Split implements FlatMapFunction<Tuple2<Long, String>, Tuple2<String, Long>> {
        private final Tuple2<String, Long> one = Tuple2.of("", 1L);

        @Override
        public void flatMap(Tuple2<Long, String> line, Collector<Tuple2<String, Long>> out) {
            StringTokenizer words = new StringTokenizer(line.f1, " ");
            while (words.hasMoreTokens()) {
                one.f0 = words.nextToken();
                out.collect(one);
            }
        }
    }

    /** Sums of words up to each watermark, so that fewer records are sent. Nothing is left in it at
     * a checkpoint. */
    private static class Combine extends AbstractStreamOperator<Tuple2<String, Long>>
            implements OneInputStreamOperator<Tuple2<String, Long>, Tuple2<String, Long>> {
        private static final int MOST = 20_000;
        private final long window;
        private transient HashMap<String, long[]> sums;
        private transient long start;

        Combine(long window) {
            this.window = window;
        }

        @Override
        public void open() throws Exception {
            super.open();
            sums = new HashMap<>();
        }

        @Override
        public void processElement(StreamRecord<Tuple2<String, Long>> word) {
            long its = word.getTimestamp() / window * window;
            if (its != start || sums.size() >= MOST) {
                send();
                start = its;
            }
            sums.computeIfAbsent(word.getValue().f0, w -> new long[1])[0] += word.getValue().f1;
        }

        private void send() {
            StreamRecord<Tuple2<String, Long>> record = new StreamRecord<>(Tuple2.of("", 0L), start);
            sums.forEach((word, sum) -> {
                record.getValue().setFields(word, sum[0]);
                output.collect(record);
            });
            sums.clear();
        }

        @Override
        public void processWatermark(Watermark mark) throws Exception {
            send();
            super.processWatermark(mark);
        }

        @Override
        public void prepareSnapshotPreBarrier(long checkpoint) {
            send();
        }

        @Override
        public void finish() throws Exception {
            send();
            super.finish();
        }
    }

    private static class Add implements ReduceFunction<Tuple2<String, Long>> {
        @Override
        public Tuple2<String, Long> reduce(Tuple2<String, Long> sum, Tuple2<String, Long> word) {
            sum.f1 += word.f1;
            return sum;
        }
    }

    private static class WithStart extends ProcessWindowFunction<
            Tuple2<String, Long>, Tuple3<String, Long, Long>, String, TimeWindow> {
        @Override
        public void process(String word, Context context, Iterable<Tuple2<String, Long>> sums,
                Collector<Tuple3<String, Long, Long>> out) {
            out.collect(Tuple3.of(word, context.window().getStart(), sums.iterator().next().f1));
        }
    }
}
