import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;

/** The Java admin client; every scenario takes bootstrap and a name of its own. */
public final class AdminCalls {
    private static Admin admin(String[] words) {
        return Admin.create(Map.of("bootstrap.servers", words[0], "request.timeout.ms", "10000"));
    }

    private static void refused(KafkaFuture<?> future, Class<? extends Exception> how) throws Exception {
        try {
            future.get();
        } catch (ExecutionException failed) {
            Groups.check(how.isInstance(failed.getCause()), "refused with " + failed.getCause());
            return;
        }
        throw new AssertionError("not refused");
    }

    private static TopicDescription describe(Admin admin, String topic) throws Exception {
        for (int attempt = 0; ; attempt++) {
            try {
                return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            } catch (ExecutionException failed) {
                if (attempt > 50 || !(failed.getCause() instanceof UnknownTopicOrPartitionException)) {
                    throw failed;
                }
                Thread.sleep(50);
            }
        }
    }

    /** Topics: made (with the settings told back), described, grown, deleted by name and by id. */
    public static void topics(String[] words) throws Exception {
        try (Admin admin = admin(words)) {
            String topic = words[1];
            NewTopic wanted = new NewTopic(topic, Optional.of(2), Optional.empty()).configs(Map.of("retention.ms", "9999999"));
            var made = admin.createTopics(List.of(wanted));
            Groups.check(made.numPartitions(topic).get() == 2, "partitions");
            Groups.check(made.replicationFactor(topic).get() == 1, "replication");
            Groups.check(made.config(topic).get().get("retention.ms").value().equals("9999999"), "config");
            Groups.check(made.topicId(topic).get() != null, "id");
            TopicDescription described = describe(admin, topic);
            Groups.check(described.partitions().size() == 2, "described " + described);
            Groups.check(described.topicId().equals(made.topicId(topic).get()), "same id");
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
            Groups.check(admin.listTopics().names().get().contains(topic), "listed");
            var byId = admin.describeTopics(org.apache.kafka.common.TopicCollection.ofTopicIds(List.of(described.topicId())));
            Groups.check(byId.allTopicIds().get().get(described.topicId()).name().equals(topic), "by id");
            refused(admin.createTopics(List.of(wanted)).all(), TopicExistsException.class);
            admin.deleteTopics(org.apache.kafka.common.TopicCollection.ofTopicIds(List.of(described.topicId()))).all().get();
        }
    }

    /** Each refusal has the class that programs catch. */
    public static void refusals(String[] words) throws Exception {
        try (Admin admin = admin(words)) {
            refused(admin.createTopics(List.of(new NewTopic("a b", 1, (short) 1))).all(), InvalidTopicException.class);
            refused(admin.createTopics(List.of(new NewTopic(words[1], 1, (short) 9))).all(), InvalidReplicationFactorException.class);
            refused(admin.createTopics(List.of(new NewTopic(words[1], 1, (short) 1).configs(Map.of("no.such", "1")))).all(),
                    InvalidConfigurationException.class);
            refused(admin.deleteTopics(List.of(words[1])).all(), UnknownTopicOrPartitionException.class);
            refused(admin.describeTopics(List.of(words[1])).allTopicNames(), UnknownTopicOrPartitionException.class);
        }
    }

    /** Settings: described with synonyms and documentation, changed, listed. */
    public static void configs(String[] words) throws Exception {
        try (Admin admin = admin(words)) {
            ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, words[1]);
            var options = new org.apache.kafka.clients.admin.DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
            ConfigEntry entry = admin.describeConfigs(List.of(topic), options).all().get().get(topic).get("retention.ms");
            Groups.check(entry.documentation() != null && !entry.documentation().isEmpty(), "documentation");
            Groups.check(entry.type() == ConfigEntry.ConfigType.LONG, "type " + entry.type());
            Collection<AlterConfigOp> change =
                    List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "77777777"), AlterConfigOp.OpType.SET));
            admin.incrementalAlterConfigs(Map.of(topic, change)).all().get();
            for (int i = 0; ; i++) {
                entry = admin.describeConfigs(List.of(topic), options).all().get().get(topic).get("retention.ms");
                if (entry.value().equals("77777777")) {
                    break;
                }
                Groups.check(i < 100, "still " + entry.value());
                Thread.sleep(50);
            }
            Groups.check(entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, "source " + entry.source());
            Groups.check(entry.synonyms().get(0).name().equals("retention.ms"), "synonyms " + entry.synonyms());
            Groups.check(!admin.listConfigResources().all().get().isEmpty(), "config resources");
        }
    }

    /** The cluster, its features, its log directories and its quorum of one. */
    public static void cluster(String[] words) throws Exception {
        try (Admin admin = admin(words)) {
            var cluster = admin.describeCluster();
            Groups.check(cluster.nodes().get().size() == 1, "nodes");
            Groups.check(!cluster.clusterId().get().isEmpty(), "cluster id");
            Groups.check(cluster.controller().get() != null, "controller");
            var features = admin.describeFeatures().featureMetadata().get().finalizedFeatures();
            Groups.check(features.get("transaction.version").maxVersionLevel() >= 2, "features " + features);
            int node = cluster.nodes().get().iterator().next().id();
            var directories = admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node);
            Groups.check(directories.size() == 1, "log dirs " + directories);
        }
    }

    /** Offsets by every question, records deleted, a leader that needs no election. */
    public static void offsets(String[] words) throws Exception {
        TopicPartition where = new TopicPartition(words[1], 0);
        try (Admin admin = admin(words); KafkaProducer<byte[], byte[]> sender = Verbs.producer(words[0])) {
            for (int i = 0; i < 10; i++) {
                sender.send(new ProducerRecord<>(words[1], 0, 1_600_000_000_000L + i, null, new byte[] {1})).get();
            }
            Map<OffsetSpec, Long> expected = Map.of(
                    OffsetSpec.earliest(), 0L, OffsetSpec.latest(), 10L, OffsetSpec.maxTimestamp(), 9L,
                    OffsetSpec.forTimestamp(1_600_000_000_004L), 4L, OffsetSpec.earliestLocal(), 0L,
                    OffsetSpec.latestTiered(), -1L);
            for (var one : expected.entrySet()) {
                long found = admin.listOffsets(Map.of(where, one.getKey())).partitionResult(where).get().offset();
                Groups.check(found == one.getValue(), one.getKey() + " is " + found);
            }
            admin.deleteRecords(Map.of(where, RecordsToDelete.beforeOffset(4))).all().get();
            long first = admin.listOffsets(Map.of(where, OffsetSpec.earliest())).partitionResult(where).get().offset();
            Groups.check(first == 4, "first " + first);
            var elected = admin.electLeaders(org.apache.kafka.common.ElectionType.PREFERRED, Set.of(where)).partitions().get();
            Groups.check(elected.get(where).isPresent(), "elected " + elected);
        }
    }

    /** Quotas are stored, told back, and taken away. */
    public static void quotas(String[] words) throws Exception {
        try (Admin admin = admin(words)) {
            ClientQuotaEntity entity = new ClientQuotaEntity(Map.of("client-id", words[1]));
            var filter = ClientQuotaFilter.containsOnly(List.of(ClientQuotaFilterComponent.ofEntity("client-id", words[1])));
            admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity,
                    List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 100000.0))))).all().get();
            var found = admin.describeClientQuotas(filter).entities().get();
            Groups.check(found.get(entity).get("producer_byte_rate") == 100000.0, "quotas " + found);
            admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity,
                    List.of(new ClientQuotaAlteration.Op("producer_byte_rate", null))))).all().get();
            found = admin.describeClientQuotas(filter).entities().get();
            Groups.check(found.isEmpty(), "quotas " + found);
        }
    }

    /** A hanging transaction is described, listed, fenced and aborted by its id. */
    public static void transactions(String[] words) throws Exception {
        TopicPartition where = new TopicPartition(words[1], 0);
        try (Admin admin = admin(words);
                KafkaProducer<byte[], byte[]> sender = Verbs.producer(words[0], "transactional.id", words[2])) {
            sender.initTransactions();
            sender.beginTransaction();
            sender.send(new ProducerRecord<>(words[1], 0, null, new byte[] {1})).get();
            var described = admin.describeTransactions(List.of(words[2])).all().get().get(words[2]);
            Groups.check(described.topicPartitions().equals(Set.of(where)), "described " + described);
            var producers = admin.describeProducers(List.of(where)).all().get().get(where).activeProducers();
            Groups.check(producers.size() == 1, "producers " + producers);
            Groups.check(producers.get(0).currentTransactionStartOffset().getAsLong() == 0, "start");
            boolean listed = admin.listTransactions().all().get().stream().anyMatch(t -> t.transactionalId().equals(words[2]));
            Groups.check(listed, "not listed");
            admin.fenceProducers(List.of(words[2])).all().get();
            try {
                sender.commitTransaction();
                throw new AssertionError("a fenced producer committed");
            } catch (org.apache.kafka.common.KafkaException expected) {
                // fenced, as it should be
            }
        }
    }
}
