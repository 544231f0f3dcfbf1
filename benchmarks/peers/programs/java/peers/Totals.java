package peers;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Locale;
import java.util.zip.CRC32;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;

/** Sinks that add up what comes; what they found is kept for `json`, as they run in this JVM. */
public final class Totals {
    private Totals() {}

    private static long rows;
    private static long sumN;
    private static long checksum;
    private static long ended;
    private static double endedUnix;
    private static long[] late = new long[0];

    private static synchronized void add(Adder<?> found) {
        rows += found.rows;
        sumN += found.sumN;
        checksum += found.checksum;
        ended = System.nanoTime();
        endedUnix = System.currentTimeMillis() / 1e3;
        int before = late.length;
        late = Arrays.copyOf(late, before + found.lates);
        System.arraycopy(found.late, 0, late, before, found.lates);
    }

    /** What was found, and the seconds from the first record to the last answer; with latencies, of
     * those records that were due after `warm` seconds. */
    public static String json() {
        return json((ended - Input.began) / 1e9);
    }

    /** The same, from a Unix time to the last answer. */
    public static String jsonFrom(double began) {
        return json(endedUnix - began);
    }

    private static synchronized String json(double seconds) {
        Arrays.sort(late);
        String latency = "null";
        if (late.length > 0) {
            latency = String.format(Locale.ROOT, "{\"p50\": %.3f, \"p99\": %.3f, \"n\": %d}",
                    at(0.50), at(0.99), late.length);
        }
        return String.format(Locale.ROOT,
                "{\"seconds\": %.6f, \"answers\": {\"rows\": %d, \"sum_n\": %d, \"checksum\": %s},"
                        + " \"latency_ms\": %s}",
                seconds, rows, sumN, Long.toUnsignedString(checksum), latency);
    }

    private static double at(double share) {
        return late[(int) Math.min(late.length - 1, share * late.length)] / 1e6;
    }

    private abstract static class Adder<T> implements SinkWriter<T> {
        long rows;
        long sumN;
        long checksum;
        long[] late = new long[0];
        int lates;

        void told(long n, long product) {
            rows++;
            sumN += n;
            checksum += product;
        }

        @Override
        public void flush(boolean endOfInput) {
            if (endOfInput) {
                add(this);
            }
        }

        @Override
        public void close() {}
    }

    /** Of W1: key and count. */
    public static class OfCounts implements Sink<Tuple2<Integer, Integer>> {
        @Override
        public SinkWriter<Tuple2<Integer, Integer>> createWriter(WriterInitContext context) {
            return new Adder<>() {
                @Override
                public void write(Tuple2<Integer, Integer> answer, Context context) {
                    told(answer.f1, (long) answer.f1 * answer.f0);
                }
            };
        }
    }

    /** Of W1 at a pace: key, count, and when the record was due. */
    public static class OfLate implements Sink<Tuple3<Integer, Integer, Long>> {
        private final double warm;

        public OfLate(double warm) {
            this.warm = warm;
        }

        @Override
        public SinkWriter<Tuple3<Integer, Integer, Long>> createWriter(WriterInitContext context) {
            return new Adder<>() {
                @Override
                public void write(Tuple3<Integer, Integer, Long> answer, Context context) {
                    told(answer.f1, (long) answer.f1 * answer.f0);
                    if (answer.f2 < Input.began + warm * 1e9) {
                        return;
                    }
                    if (lates == late.length) {
                        late = Arrays.copyOf(late, Math.max(1 << 20, 2 * lates));
                    }
                    late[lates++] = System.nanoTime() - answer.f2;
                }
            };
        }
    }

    /** Of W2: word, start of the window in ms, and count. */
    public static class OfWords implements Sink<Tuple3<String, Long, Long>> {
        @Override
        public SinkWriter<Tuple3<String, Long, Long>> createWriter(WriterInitContext context) {
            return new Adder<>() {
                @Override
                public void write(Tuple3<String, Long, Long> answer, Context context) {
                    CRC32 crc = new CRC32();
                    crc.update(answer.f0.getBytes(StandardCharsets.UTF_8));
                    told(answer.f2, crc.getValue() * (answer.f1 / 1000 + 1) * answer.f2);
                }
            };
        }
    }
}
