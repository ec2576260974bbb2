import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;

/** Consumer groups with the Java client; every scenario takes bootstrap, topic, group, protocol. */
public final class Groups {
    private static KafkaConsumer<byte[], byte[]> member(String[] words, String... more) {
        List<String> options = new ArrayList<>(List.of("group.id", words[2], "group.protocol", words[3]));
        if (words[3].equals("classic")) {
            options.addAll(List.of("session.timeout.ms", "6000", "heartbeat.interval.ms", "300"));
        }
        options.addAll(List.of(more));
        return Verbs.consumer(words[0], options.toArray(new String[0]));
    }

    /** Polls the members in turn until they own so many partitions each. */
    private static List<ConsumerRecord<byte[], byte[]>> settle(List<KafkaConsumer<byte[], byte[]>> members, int... counts) {
        List<ConsumerRecord<byte[], byte[]>> seen = new ArrayList<>();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(40);
        while (true) {
            boolean settled = true;
            Set<TopicPartition> owned = new HashSet<>();
            int sum = 0;
            for (int i = 0; i < counts.length; i++) {
                for (ConsumerRecord<byte[], byte[]> record : members.get(i).poll(Duration.ofMillis(50))) {
                    seen.add(record);
                }
            }
            for (int i = 0; i < counts.length; i++) {
                settled &= members.get(i).assignment().size() == counts[i];
                owned.addAll(members.get(i).assignment());
                sum += counts[i];
            }
            if (settled && owned.size() == sum) {
                return seen;
            }
            check(System.nanoTime() < deadline, "no even assignment in time");
        }
    }

    static void check(boolean fact, String what) {
        if (!fact) {
            throw new AssertionError(what);
        }
    }

    /** Two members share four partitions; when one leaves, the other has all of them. */
    public static void share(String[] words) {
        String[] more = words.length > 4 ? new String[] {words[4], words[5]} : new String[0];
        try (KafkaConsumer<byte[], byte[]> one = member(words, more)) {
            one.subscribe(List.of(words[1]));
            settle(List.of(one), 4);
            KafkaConsumer<byte[], byte[]> two = member(words, more);
            two.subscribe(List.of(words[1]));
            settle(List.of(one, two), 2, 2);
            two.close();
            settle(List.of(one), 4);
        }
    }

    /** A commit with metadata and leader epoch is found again by another member of the group. */
    public static void commit(String[] words) {
        TopicPartition where = new TopicPartition(words[1], 0);
        try (KafkaConsumer<byte[], byte[]> one = member(words)) {
            one.subscribe(List.of(words[1]));
            settle(List.of(one), 1);
            one.commitSync(Map.of(where, new OffsetAndMetadata(3, java.util.Optional.of(0), "noted")));
        }
        try (KafkaConsumer<byte[], byte[]> two = member(words)) {
            two.subscribe(List.of(words[1]));
            List<ConsumerRecord<byte[], byte[]>> seen = settle(List.of(two), 1);
            OffsetAndMetadata found = two.committed(Set.of(where)).get(where);
            check(found.offset() == 3 && found.metadata().equals("noted"), "found " + found);
            while (seen.isEmpty()) {
                seen = Verbs.take(two, 1);
            }
            check(seen.get(0).offset() == 3, "went on at " + seen.get(0).offset());
        }
    }

    /** A broker-side pattern (KIP-848, RE2J) finds the topic. */
    public static void pattern(String[] words) {
        try (KafkaConsumer<byte[], byte[]> one = member(words)) {
            one.subscribe(new SubscriptionPattern(words[1].substring(0, words[1].length() - 3) + ".*"));
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
            while (one.assignment().isEmpty()) {
                check(System.nanoTime() < deadline, "nothing was assigned");
                one.poll(Duration.ofMillis(100));
            }
            check(one.assignment().iterator().next().topic().equals(words[1]), "assigned " + one.assignment());
        }
    }

    /** A classic member and one of the new protocol share a group (online migration, KIP-848). */
    public static void mixed(String[] words) {
        String[] classic = {words[0], words[1], words[2], "classic"};
        String[] modern = {words[0], words[1], words[2], "consumer"};
        String cooperative = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor";
        try (KafkaConsumer<byte[], byte[]> one = member(classic, "partition.assignment.strategy", cooperative)) {
            one.subscribe(List.of(words[1]));
            settle(List.of(one), 4);
            try (KafkaConsumer<byte[], byte[]> two = member(modern)) {
                two.subscribe(List.of(words[1]));
                settle(List.of(one, two), 2, 2);
            }
            settle(List.of(one), 4);
        }
    }

    /** Offsets by time, the lag of a position, the end of a partition, and a seek by time. */
    public static void positions(String[] words) {
        TopicPartition where = new TopicPartition(words[1], 0);
        try (KafkaConsumer<byte[], byte[]> one = member(words)) {
            one.assign(List.of(where));
            one.seekToEnd(List.of(where));
            long end = one.position(where);
            check(end == one.endOffsets(List.of(where)).get(where), "the end is " + end);
            one.seekToBeginning(List.of(where));
            check(one.position(where) == 0, "the beginning is " + one.position(where));
            Verbs.take(one, 1);
            check(one.currentLag(where).isPresent(), "no lag");
            one.seek(where, end - 1);
            check(Verbs.take(one, 1).get(0).offset() == end - 1, "seek");
        }
    }

    /** Lists, describes and deletes a group through the admin client. */
    public static void administer(String[] words) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", words[0]))) {
            TopicPartition where = new TopicPartition(words[1], 0);
            try (KafkaConsumer<byte[], byte[]> one = member(words)) {
                one.subscribe(List.of(words[1]));
                settle(List.of(one), 1);
                var described = admin.describeConsumerGroups(List.of(words[2])).all().get().get(words[2]);
                check(described.members().size() == 1, "members " + described.members());
                check(described.type().toString().equalsIgnoreCase(words[3]), "type " + described.type());
                one.commitSync(Map.of(where, new OffsetAndMetadata(2)));
            }
            Collection<String> listed = new ArrayList<>();
            admin.listGroups().all().get().forEach(group -> listed.add(group.groupId()));
            check(listed.contains(words[2]), "not listed");
            var offsets = admin.listConsumerGroupOffsets(words[2]).partitionsToOffsetAndMetadata().get();
            check(offsets.get(where).offset() == 2, "offsets " + offsets);
            admin.alterConsumerGroupOffsets(words[2], Map.of(where, new OffsetAndMetadata(1))).all().get();
            offsets = admin.listConsumerGroupOffsets(words[2]).partitionsToOffsetAndMetadata().get();
            check(offsets.get(where).offset() == 1, "offsets " + offsets);
            admin.deleteConsumerGroupOffsets(words[2], Set.of(where)).all().get();
            offsets = admin.listConsumerGroupOffsets(words[2]).partitionsToOffsetAndMetadata().get();
            check(offsets.get(where) == null, "offsets " + offsets);
            admin.deleteConsumerGroups(List.of(words[2])).all().get();
        }
    }
}
