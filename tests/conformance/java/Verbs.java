import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;

/** The verbs that every client under test has (support/clients), and the makers of clients. */
public final class Verbs {
    static final Duration SHORT = Duration.ofMillis(200);
    static final Duration PATIENCE = Duration.ofSeconds(15);

    static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, String... options) {
        Properties all = new Properties();
        all.put("bootstrap.servers", bootstrap);
        all.put("auto.offset.reset", "earliest");
        all.put("enable.auto.commit", "false");
        all.put("fetch.max.wait.ms", "100");
        all.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        all.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        for (int i = 0; i < options.length; i += 2) {
            all.put(options[i], options[i + 1]);
        }
        return new KafkaConsumer<>(all);
    }

    static KafkaProducer<byte[], byte[]> producer(String bootstrap, String... options) {
        Properties all = new Properties();
        all.put("bootstrap.servers", bootstrap);
        all.put("linger.ms", "5");
        all.put("max.request.size", "20000000");
        all.put("delivery.timeout.ms", "15000");
        all.put("request.timeout.ms", "10000");
        all.put("max.block.ms", "15000");
        all.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        all.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        for (int i = 0; i < options.length; i += 2) {
            all.put(options[i], options[i + 1]);
        }
        return new KafkaProducer<>(all);
    }

    static String text(byte[] bytes) {
        return bytes == null ? "-" : "=" + Base64.getEncoder().encodeToString(bytes);
    }

    static byte[] bytes(String text) {
        return text.equals("-") ? null : Base64.getDecoder().decode(text.substring(1));
    }

    static void print(ConsumerRecord<byte[], byte[]> record) {
        StringBuilder line = new StringBuilder();
        line.append(record.partition()).append(' ').append(record.offset()).append(' ');
        line.append(record.timestamp()).append(' ');
        line.append(text(record.key())).append(' ').append(text(record.value()));
        for (Header header : record.headers()) {
            line.append(' ').append(text(header.key().getBytes(java.nio.charset.StandardCharsets.UTF_8)));
            line.append(':').append(text(header.value()));
        }
        System.out.println(line);
    }

    static List<ConsumerRecord<byte[], byte[]>> take(KafkaConsumer<byte[], byte[]> source, int count) {
        List<ConsumerRecord<byte[], byte[]>> taken = new ArrayList<>();
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (taken.size() < count) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError(taken.size() + " of " + count + " records in time");
            }
            ConsumerRecords<byte[], byte[]> polled = source.poll(SHORT);
            for (ConsumerRecord<byte[], byte[]> record : polled) {
                taken.add(record);
            }
        }
        return taken;
    }

    /** bootstrap topic codec acks idempotent, then "partition timestamp key value header:value ..." */
    public static void produce(String[] words) throws Exception {
        try (KafkaProducer<byte[], byte[]> sender =
                producer(words[0], "compression.type", words[2], "acks", words[3], "enable.idempotence", words[4])) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 5; i < words.length; i++) {
                String[] parts = words[i].split(" ");
                Long stamp = parts[1].equals("-") ? null : Long.valueOf(parts[1]);
                ProducerRecord<byte[], byte[]> record =
                        new ProducerRecord<>(words[1], Integer.valueOf(parts[0]), stamp, bytes(parts[2]), bytes(parts[3]));
                for (int h = 4; h < parts.length; h++) {
                    String[] pair = parts[h].split(":", 2);
                    record.headers().add(new String(bytes(pair[0])), bytes(pair[1]));
                }
                sent.add(sender.send(record));
            }
            for (Future<RecordMetadata> one : sent) {
                System.out.println(one.get(15, TimeUnit.SECONDS).offset());
            }
        }
    }

    /** bootstrap topic partition start count isolation */
    public static void read(String[] words) {
        TopicPartition where = new TopicPartition(words[1], Integer.parseInt(words[2]));
        try (KafkaConsumer<byte[], byte[]> source = consumer(words[0], "isolation.level", words[5])) {
            source.assign(List.of(where));
            source.seek(where, Long.parseLong(words[3]));
            int count = Integer.parseInt(words[4]);
            take(source, count).subList(0, count).forEach(Verbs::print);
        }
    }

    /** bootstrap topic partition timestamp */
    public static void offset_at(String[] words) {
        TopicPartition where = new TopicPartition(words[1], Integer.parseInt(words[2]));
        try (KafkaConsumer<byte[], byte[]> source = consumer(words[0])) {
            OffsetAndTimestamp found = source.offsetsForTimes(Map.of(where, Long.valueOf(words[3]))).get(where);
            System.out.println(found == null ? "-" : String.valueOf(found.offset()));
        }
    }

    /** bootstrap topic partition */
    public static void watermarks(String[] words) {
        TopicPartition where = new TopicPartition(words[1], Integer.parseInt(words[2]));
        try (KafkaConsumer<byte[], byte[]> source = consumer(words[0])) {
            System.out.println(source.beginningOffsets(List.of(where)).get(where));
            System.out.println(source.endOffsets(List.of(where)).get(where));
        }
    }

    /** bootstrap topic group count protocol(classic|consumer) */
    public static void read_group(String[] words) {
        try (KafkaConsumer<byte[], byte[]> source =
                consumer(words[0], "group.id", words[2], "group.protocol", words[4])) {
            source.subscribe(List.of(words[1]));
            take(source, Integer.parseInt(words[3])).forEach(Verbs::print);
            source.commitSync();
        }
    }
}
