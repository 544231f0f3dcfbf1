import java.nio.charset.StandardCharsets;
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
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Counts by key from the topic events to counts, exactly once. Arguments: servers, ms, folder. */
public final class Flink {
    private Flink() {}

    public static void main(String[] given) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("execution.buffer-timeout.interval", "1 ms");
        settings.setString("execution.checkpointing.interval", given[1] + " ms");
        settings.setString("execution.checkpointing.dir", "file://" + given[2]);
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.createLocalEnvironment(1, settings);
        KafkaSource<String> events = KafkaSource.<String>builder()
                .setBootstrapServers(given[0])
                .setTopics("events")
                .setGroupId("flink")
                .setProperty("isolation.level", "read_committed")
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .build();
        KafkaSink<long[]> counts = KafkaSink.<long[]>builder()
                .setBootstrapServers(given[0])
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix("flink")
                .setProperty("transaction.timeout.ms", "600000")
                .setRecordSerializer((record, context, at) -> new ProducerRecord<>(
                        "counts", bytes(Long.toString(record[0])),
                        bytes("{\"n\": " + record[1] + ", \"sent\": " + record[2] + "}")))
                .build();
        env.fromSource(events, WatermarkStrategy.noWatermarks(), "events")
                .map(text -> new long[] {number(text, "\"key\": "), number(text, "\"sent\": ")})
                .returns(long[].class)
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
