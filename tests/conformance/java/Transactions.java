import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/** Transactional producers by handle, so that a test can hold several at once. */
public final class Transactions {
    private static final Map<String, KafkaProducer<byte[], byte[]>> HELD = new HashMap<>();

    /** handle bootstrap transactionalId timeoutMs */
    public static void open(String[] words) {
        KafkaProducer<byte[], byte[]> made =
                Verbs.producer(words[1], "transactional.id", words[2], "transaction.timeout.ms", words[3]);
        HELD.put(words[0], made);
        made.initTransactions();
    }

    public static void begin(String[] words) {
        HELD.get(words[0]).beginTransaction();
    }

    /** handle topic partition value... */
    public static void send(String[] words) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int i = 3; i < words.length; i++) {
            sent.add(HELD.get(words[0]).send(
                    new ProducerRecord<>(words[1], Integer.valueOf(words[2]), null, words[i].getBytes())));
        }
        for (Future<RecordMetadata> one : sent) {
            one.get(15, TimeUnit.SECONDS);
        }
    }

    /** handle group topic offset partition */
    public static void send_offset(String[] words) {
        TopicPartition where = new TopicPartition(words[2], Integer.parseInt(words[4]));
        HELD.get(words[0]).sendOffsetsToTransaction(
                Map.of(where, new OffsetAndMetadata(Long.parseLong(words[3]))), new ConsumerGroupMetadata(words[1]));
    }

    public static void commit(String[] words) {
        HELD.get(words[0]).commitTransaction();
    }

    public static void abort(String[] words) {
        HELD.get(words[0]).abortTransaction();
    }

    public static void close(String[] words) {
        HELD.remove(words[0]).close(Duration.ofSeconds(5));
    }
}
