import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Share groups with the Java client; every scenario takes bootstrap, topic (of ten records), group. */
public final class Shares {
    private static KafkaShareConsumer<byte[], byte[]> member(String[] words, String mode, String... more) {
        Properties options = new Properties();
        options.put("bootstrap.servers", words[0]);
        options.put("group.id", words[2]);
        options.put("share.acknowledgement.mode", mode);
        options.put("fetch.max.wait.ms", "100");
        for (int i = 0; i < more.length; i += 2) {
            options.put(more[i], more[i + 1]);
        }
        KafkaShareConsumer<byte[], byte[]> made =
            new KafkaShareConsumer<>(options, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        made.subscribe(List.of(words[1]));
        return made;
    }

    private static Admin admin(String[] words) {
        return Admin.create(Map.of("bootstrap.servers", words[0]));
    }

    private static void fromTheBeginning(String[] words) throws Exception {
        try (Admin admin = admin(words)) {
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, words[2]);
            AlterConfigOp set = new AlterConfigOp(
                new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(group, List.of(set))).all().get(10, TimeUnit.SECONDS);
        }
    }

    private static List<ConsumerRecord<byte[], byte[]>> take(KafkaShareConsumer<byte[], byte[]> member) {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        while (true) {
            List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
            member.poll(Duration.ofMillis(200)).forEach(found::add);
            if (!found.isEmpty()) {
                return found;
            }
            Groups.check(System.nanoTime() < deadline, "no records in time");
        }
    }

    private static void commit(KafkaShareConsumer<byte[], byte[]> member) {
        for (Map.Entry<TopicIdPartition, Optional<KafkaException>> one : member.commitSync().entrySet()) {
            Groups.check(one.getValue().isEmpty(), one.toString());
        }
    }

    /** Implicit members accept with the next poll. */
    public static void implicit(String[] words) throws Exception {
        fromTheBeginning(words);
        try (KafkaShareConsumer<byte[], byte[]> member = member(words, "implicit")) {
            Groups.check(take(member).size() == 10, "ten records");
            Groups.check(member.poll(Duration.ofSeconds(1)).isEmpty(), "and no more");
        }
    }

    /** Accept, release, reject and renew, each with its consequence. */
    public static void explicit(String[] words) throws Exception {
        fromTheBeginning(words);
        try (KafkaShareConsumer<byte[], byte[]> member = member(words, "explicit")) {
            List<ConsumerRecord<byte[], byte[]>> taken = take(member);
            Groups.check(taken.size() == 10, "ten records");
            AcknowledgeType[] kinds = {AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT};
            for (ConsumerRecord<byte[], byte[]> record : taken) {
                Groups.check(record.deliveryCount().equals(Optional.of((short) 1)), "first time");
                member.acknowledge(record, kinds[(int) record.offset() % 3]);
            }
            commit(member);
            List<ConsumerRecord<byte[], byte[]>> again = take(member);
            Groups.check(again.size() == 3, "three were released: " + again.size());
            for (ConsumerRecord<byte[], byte[]> record : again) {
                Groups.check(record.offset() % 3 == 1, "released");
                Groups.check(record.deliveryCount().equals(Optional.of((short) 2)), "second time");
                member.acknowledge(record, AcknowledgeType.RENEW);
            }
            commit(member);
            member.poll(Duration.ofMillis(200));
            for (ConsumerRecord<byte[], byte[]> record : again) {
                member.acknowledge(record, AcknowledgeType.ACCEPT);
            }
            commit(member);
            Groups.check(member.poll(Duration.ofSeconds(1)).isEmpty(), "and no more");
        }
    }

    /** Two members share one partition, record by record. */
    public static void two(String[] words) throws Exception {
        fromTheBeginning(words);
        String[] few = {"max.poll.records", "2", "share.acquire.mode", "record_limit"};
        try (KafkaShareConsumer<byte[], byte[]> one = member(words, "explicit", few);
             KafkaShareConsumer<byte[], byte[]> two = member(words, "explicit", few)) {
            Map<Long, Integer> seen = new HashMap<>();
            int[] counts = new int[2];
            while (seen.size() < 10) {
                int number = 0;
                for (KafkaShareConsumer<byte[], byte[]> member : List.of(one, two)) {
                    List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
                    member.poll(Duration.ofMillis(200)).forEach(found::add);
                    Groups.check(found.size() <= 2, "at most two at once");
                    for (ConsumerRecord<byte[], byte[]> record : found) {
                        seen.merge(record.offset(), 1, Integer::sum);
                        member.acknowledge(record);
                    }
                    counts[number++] += found.size();
                }
            }
            Groups.check(seen.values().stream().allMatch(count -> count == 1), "each once: " + seen);
            commit(one);
            commit(two);
        }
    }

    /** Listing, describing, moving and deleting. */
    public static void administer(String[] words) throws Exception {
        fromTheBeginning(words);
        TopicPartition partition = new TopicPartition(words[1], 0);
        try (Admin admin = admin(words)) {
            try (KafkaShareConsumer<byte[], byte[]> member = member(words, "implicit")) {
                Groups.check(take(member).size() == 10, "ten records");
                commit(member);
                ShareGroupDescription found =
                    admin.describeShareGroups(List.of(words[2])).all().get(10, TimeUnit.SECONDS).get(words[2]);
                Groups.check(found.groupState() == GroupState.STABLE, found.toString());
                Groups.check(found.members().iterator().next().assignment().topicPartitions().contains(partition), found.toString());
                GroupListing listed = admin.listGroups().all().get(10, TimeUnit.SECONDS).stream()
                    .filter(each -> each.groupId().equals(words[2])).findFirst().orElseThrow();
                Groups.check(listed.type().equals(Optional.of(GroupType.SHARE)), listed.toString());
            }
            Map<TopicPartition, SharePartitionOffsetInfo> offsets = admin
                .listShareGroupOffsets(Map.of(words[2], new ListShareGroupOffsetsSpec()))
                .partitionsToOffsetInfo(words[2]).get(10, TimeUnit.SECONDS);
            Groups.check(offsets.get(partition).startOffset() == 10, offsets.toString());
            admin.alterShareGroupOffsets(words[2], Map.of(partition, 4L)).all().get(10, TimeUnit.SECONDS);
            try (KafkaShareConsumer<byte[], byte[]> member = member(words, "implicit")) {
                List<ConsumerRecord<byte[], byte[]>> again = take(member);
                Groups.check(again.get(0).offset() == 4 && again.size() == 6, "from offset 4");
                commit(member);
            }
            admin.deleteShareGroupOffsets(words[2], java.util.Set.of(words[1])).all().get(10, TimeUnit.SECONDS);
            admin.deleteShareGroups(List.of(words[2])).all().get(10, TimeUnit.SECONDS);
        }
    }
}
