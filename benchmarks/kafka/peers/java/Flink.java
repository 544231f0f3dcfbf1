import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.api.common.serialization.AbstractDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Counts by key from the topic events to counts, exactly once. Arguments: servers, ms, folder; and
 * json or avro, and the parallelism (json and 1 unless given).
 */
public final class Flink {
    private Flink() {}

    public static void main(String[] given) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("execution.buffer-timeout.interval", "1 ms");
        settings.setString("execution.checkpointing.interval", given[1] + " ms");
        settings.setString("execution.checkpointing.dir", "file://" + given[2]);
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.createLocalEnvironment(
                        given.length > 4 ? Integer.parseInt(given[4]) : 1, settings);
        boolean avro = given.length > 3 && given[3].equals("avro");
        KafkaSource<long[]> events = KafkaSource.<long[]>builder()
                .setBootstrapServers(given[0])
                .setTopics("events")
                .setGroupId("flink")
                .setProperty("isolation.level", "read_committed")
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setValueOnlyDeserializer(new Values(avro))
                .build();
        KafkaSink<long[]> counts = KafkaSink.<long[]>builder()
                .setBootstrapServers(given[0])
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix("flink")
                .setProperty("transaction.timeout.ms", "600000")
                .setRecordSerializer((record, context, at) -> new ProducerRecord<>(
                        "counts", bytes(Long.toString(record[0])),
                        avro
                                ? zigzags(record[1], record[2])
                                : bytes("{\"n\": " + record[1] + ", \"sent\": " + record[2] + "}")))
                .build();
        env.fromSource(events, WatermarkStrategy.noWatermarks(), "events")
                .keyBy(record -> record[0], Types.LONG)
                .process(new Count())
                .returns(long[].class)
                .sinkTo(counts);
        env.execute();
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static long number(String text, String name) {
        int from = text.indexOf(name) + name.length();
        int to = from;
        while (to < text.length() && Character.isDigit(text.charAt(to))) {
            to++;
        }
        return Long.parseLong(text, from, to, 10);
    }

    /** Two numbers as a record of Avro. */
    static byte[] zigzags(long... values) {
        byte[] made = new byte[20];
        int at = 0;
        for (long value : values) {
            long left = (value << 1) ^ (value >> 63);
            while ((left & ~0x7FL) != 0) {
                made[at++] = (byte) (left & 0x7F | 0x80);
                left >>>= 7;
            }
            made[at++] = (byte) left;
        }
        return Arrays.copyOf(made, at);
    }

    private static class Values extends AbstractDeserializationSchema<long[]> {
        private final boolean avro;

        Values(boolean avro) {
            super(long[].class);
            this.avro = avro;
        }

        @Override
        public long[] deserialize(byte[] message) {
            if (!avro) {
                String text = new String(message, StandardCharsets.UTF_8);
                return new long[] {number(text, "\"key\": "), number(text, "\"sent\": ")};
            }
            long[] found = new long[2];
            int at = 0;
            for (int i = 0; i < 2; i++) {
                long value = 0;
                int shift = 0;
                do {
                    value |= (message[at] & 0x7FL) << shift;
                    shift += 7;
                } while (message[at++] < 0);
                found[i] = (value >>> 1) ^ -(value & 1);
            }
            return found;
        }
    }

    private static class Count extends KeyedProcessFunction<Long, long[], long[]> {
        private transient ValueState<Long> n;

        @Override
        public void open(OpenContext context) {
            n = getRuntimeContext().getState(new ValueStateDescriptor<>("n", Types.LONG));
        }

        @Override
        public void processElement(long[] record, Context context, Collector<long[]> out)
                throws Exception {
            Long before = n.value();
            long now = before == null ? 1 : before + 1;
            n.update(now);
            out.collect(new long[] {record[0], now, record[1]});
        }
    }
}
