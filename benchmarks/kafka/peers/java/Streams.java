import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** Counts by key from the topic events to counts, exactly once. Arguments: servers, ms, folder. */
public final class Streams {
    private Streams() {}

    public static void main(String[] given) throws Exception {
        Properties settings = new Properties();
        settings.put("application.id", "streams");
        settings.put("bootstrap.servers", given[0]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", given[1]);
        settings.put("state.dir", given[2]);
        settings.put("replication.factor", "1");
        settings.put("auto.offset.reset", "earliest");
        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(Stores.keyValueStoreBuilder(
                Stores.inMemoryKeyValueStore("n"), Serdes.String(), Serdes.Long()));
        builder.stream("events", Consumed.with(Serdes.String(), Serdes.String()))
                .processValues(Count::new, "n")
                .to("counts", Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.start();
        Thread.currentThread().join();
    }

    static long number(String text, String name) {
        int from = text.indexOf(name) + name.length();
        int to = from;
        while (to < text.length() && Character.isDigit(text.charAt(to))) {
            to++;
        }
        return Long.parseLong(text, from, to, 10);
    }

    private static final class Count implements FixedKeyProcessor<String, String, String> {
        private FixedKeyProcessorContext<String, String> context;
        private KeyValueStore<String, Long> counts;

        @Override
        public void init(FixedKeyProcessorContext<String, String> given) {
            context = given;
            counts = given.getStateStore("n");
        }

        @Override
        public void process(FixedKeyRecord<String, String> record) {
            Long before = counts.get(record.key());
            long now = before == null ? 1 : before + 1;
            counts.put(record.key(), now);
            long sent = number(record.value(), "\"sent\": ");
            context.forward(record.withValue("{\"n\": " + now + ", \"sent\": " + sent + "}"));
        }
    }
}
