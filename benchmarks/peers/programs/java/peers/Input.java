package peers;

import java.io.IOException;
import java.io.Serializable;
import java.nio.ByteOrder;
import java.nio.IntBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.concurrent.locks.LockSupport;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** Flink's own generator source, over mapped files: it gives each instance a run of indices, and
 * the record at an index is looked up. Where its position is belongs to Flink's checkpoints. */
public final class Input {
    private Input() {}

    /** When the first record was asked for, by System.nanoTime; 0 before. */
    static volatile long began;

    private static synchronized long begin() {
        if (began == 0) {
            began = System.nanoTime();
        }
        return began;
    }

    /** Which row an index is: instances take turns, so that they move through event time together. */
    private record Turns(long rows, int instances) implements Serializable {
        Turns {
            if (rows % instances != 0) {
                throw new IllegalArgumentException(rows + " rows for " + instances + " instances");
            }
        }

        long row(long index) {
            long each = rows / instances;
            return index % each * instances + index / each;
        }
    }

    private static MappedByteBuffer mapped(String path, long from, long bytes) throws IOException {
        try (FileChannel file = FileChannel.open(Path.of(path))) {
            return file.map(FileChannel.MapMode.READ_ONLY, from, bytes);
        }
    }

    /** The keys of W1. */
    public static DataGeneratorSource<Integer> keys(String path, long rows, int instances) {
        return new DataGeneratorSource<>(new Keys(path, new Turns(rows, instances)), rows, Types.INT);
    }

    private static class Keys implements GeneratorFunction<Long, Integer> {
        private final String path;
        private final Turns turns;
        private transient IntBuffer keys;

        Keys(String path, Turns turns) {
            this.path = path;
            this.turns = turns;
        }

        @Override
        public void open(SourceReaderContext context) throws IOException {
            keys = mapped(path, 0, 4 * turns.rows()).order(ByteOrder.LITTLE_ENDIAN).asIntBuffer();
        }

        @Override
        public Integer map(Long index) {
            if (began == 0) {
                begin();
            }
            return keys.get((int) turns.row(index));
        }
    }

    /** The keys of W1 at a rate, each with the time at which it was due, by System.nanoTime. */
    public static DataGeneratorSource<Tuple2<Integer, Long>> paced(String path, long rows, long rate) {
        TypeInformation<Tuple2<Integer, Long>> type = TypeInformation.of(new TypeHint<>() {});
        return new DataGeneratorSource<>(new Paced(path, rows, rate), rows, type);
    }

    private static class Paced implements GeneratorFunction<Long, Tuple2<Integer, Long>> {
        private final Keys keys;
        private final long rate;

        Paced(String path, long rows, long rate) {
            this.keys = new Keys(path, new Turns(rows, 1));
            this.rate = rate;
        }

        @Override
        public void open(SourceReaderContext context) throws IOException {
            keys.open(context);
        }

        @Override
        public Tuple2<Integer, Long> map(Long index) {
            long due = begin() + index * 1_000_000_000L / rate;
            for (long early; (early = due - System.nanoTime()) > 0; ) {
                LockSupport.parkNanos(early);
            }
            return Tuple2.of(keys.map(index), due);
        }
    }

    private static DataGeneratorSource<Tuple2<Long, String>> linesOf(
            String path, long rows, int instances, int bytes, long perSecond) {
        TypeInformation<Tuple2<Long, String>> type = TypeInformation.of(new TypeHint<>() {});
        Lines lines = new Lines(path, new Turns(rows, instances), bytes, perSecond);
        return new DataGeneratorSource<>(lines, rows, type);
    }

    /** The lines of W2, event time in ms and text, with watermarks. */
    public static DataStream<Tuple2<Long, String>> lines(StreamExecutionEnvironment env,
            String path, long rows, int instances, int bytes, long perSecond) {
        return env.fromSource(linesOf(path, rows, instances, bytes, perSecond),
                WatermarkStrategy.<Tuple2<Long, String>>forMonotonousTimestamps()
                        .withTimestampAssigner((line, before) -> line.f0),
                "lines");
    }

    private static class Lines implements GeneratorFunction<Long, Tuple2<Long, String>> {
        private static final int PIECE = 1_000_000;
        private final String path;
        private final Turns turns;
        private final int bytes;
        private final long perSecond;
        private transient MappedByteBuffer[] pieces;
        private transient byte[] line;

        Lines(String path, Turns turns, int bytes, long perSecond) {
            this.path = path;
            this.turns = turns;
            this.bytes = bytes;
            this.perSecond = perSecond;
        }

        @Override
        public void open(SourceReaderContext context) throws IOException {
            line = new byte[bytes - 1];
            pieces = new MappedByteBuffer[(int) ((turns.rows() + PIECE - 1) / PIECE)];
            for (int i = 0; i < pieces.length; i++) {
                long from = (long) i * PIECE;
                pieces[i] = mapped(path, from * bytes, Math.min(PIECE, turns.rows() - from) * bytes);
            }
        }

        @Override
        public Tuple2<Long, String> map(Long index) {
            if (began == 0) {
                begin();
            }
            long row = turns.row(index);
            pieces[(int) (row / PIECE)].get((int) (row % PIECE) * bytes, line);
            return Tuple2.of(row / perSecond * 1000, new String(line, StandardCharsets.ISO_8859_1));
        }
    }
}
