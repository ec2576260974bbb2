import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.BuiltinExchangeType;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.MessageProperties;
import com.rabbitmq.client.RpcClient;
import com.rabbitmq.client.RpcClientParams;
import com.rabbitmq.client.ShutdownSignalException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentNavigableMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** RabbitMQ's Java client over its features; each scenario has the port and a name of its own. */
public final class Rabbit {
    private static final byte[] BODY = "x".getBytes(StandardCharsets.UTF_8);

    private static Connection connect(String[] words) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setHost("127.0.0.1");
        factory.setPort(Integer.parseInt(words[0]));
        factory.setNetworkRecoveryInterval(200);
        return factory.newConnection(words[1]);
    }

    private static void expect(boolean holds, Object what) {
        if (!holds) {
            throw new AssertionError(String.valueOf(what));
        }
    }

    /** A thousand confirmed messages are delivered in order and acknowledged. */
    public static void work(String[] words) throws Exception {
        try (Connection connection = connect(words); Channel channel = connection.createChannel()) {
            channel.queueDeclare(words[1], true, false, false, null);
            channel.confirmSelect();
            ConcurrentNavigableMap<Long, Integer> open = new ConcurrentSkipListMap<>();
            channel.addConfirmListener(
                (tag, multiple) -> {
                    if (multiple) {
                        open.headMap(tag, true).clear();
                    } else {
                        open.remove(tag);
                    }
                },
                (tag, multiple) -> open.put(-1L, -1));
            for (int number = 0; number < 1000; number++) {
                open.put(channel.getNextPublishSeqNo(), number);
                channel.basicPublish("", words[1], MessageProperties.PERSISTENT_TEXT_PLAIN,
                    String.valueOf(number).getBytes(StandardCharsets.UTF_8));
            }
            channel.waitForConfirmsOrDie(20_000);
            expect(open.isEmpty(), open.size() + " without a confirm");
            channel.basicQos(50);
            List<Integer> seen = Collections.synchronizedList(new ArrayList<>());
            CountDownLatch done = new CountDownLatch(1000);
            channel.basicConsume(words[1], false, (tag, delivery) -> {
                seen.add(Integer.parseInt(new String(delivery.getBody(), StandardCharsets.UTF_8)));
                channel.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
                done.countDown();
            }, tag -> { });
            expect(done.await(20, TimeUnit.SECONDS), done.getCount() + " are missing");
            for (int number = 0; number < 1000; number++) {
                expect(seen.get(number) == number, seen.get(number) + " at " + number);
            }
            channel.queueDelete(words[1]);
        }
    }

    /** Every property and every type of header comes out as it went in. */
    public static void properties(String[] words) throws Exception {
        try (Connection connection = connect(words); Channel channel = connection.createChannel()) {
            channel.queueDeclare(words[1], true, false, false, Map.of("x-max-priority", 5));
            Map<String, Object> headers = Map.of(
                "int", 1, "long", 1L << 40, "bool", true, "double", 1.5, "list", List.of(1, 2),
                "table", Map.of("in", 1), "date", new Date(1_700_000_000_000L));
            AMQP.BasicProperties given = new AMQP.BasicProperties.Builder()
                .contentType("a/b").contentEncoding("c").headers(headers).deliveryMode(2).priority(3)
                .correlationId("d").replyTo("e").expiration("60000").messageId("f")
                .timestamp(new Date(1_600_000_000_000L)).type("g").userId("guest").appId("h").build();
            channel.basicPublish("", words[1], given, BODY);
            GetResponse got = null;
            for (int tries = 0; got == null && tries < 200; tries++) {
                got = channel.basicGet(words[1], true);
                Thread.sleep(10);
            }
            expect(got != null, "nothing came");
            expect(got.getProps().toString().equals(given.toString()), got.getProps() + " != " + given);
            channel.queueDelete(words[1]);
        }
    }

    /** What cannot be routed comes back; what is rejected goes to the dead, with x-death. */
    public static void returns(String[] words) throws Exception {
        String dead = words[1] + "-dead";
        try (Connection connection = connect(words); Channel channel = connection.createChannel()) {
            BlockingQueue<Integer> back = new LinkedBlockingQueue<>();
            channel.addReturnListener(returned -> back.add(returned.getReplyCode()));
            channel.basicPublish("", words[1] + "-nowhere", true, null, BODY);
            expect(Integer.valueOf(312).equals(back.poll(10, TimeUnit.SECONDS)), "no return");
            channel.queueDeclare(dead, true, false, false, null);
            channel.queueDeclare(words[1], true, false, false,
                Map.of("x-dead-letter-exchange", "", "x-dead-letter-routing-key", dead));
            channel.exchangeDeclare(words[1], BuiltinExchangeType.TOPIC, true);
            channel.queueBind(words[1], words[1], "a.*");
            channel.basicPublish(words[1], "a.b", null, BODY);
            BlockingQueue<Delivery> taken = new LinkedBlockingQueue<>();
            channel.basicConsume(dead, true, (tag, delivery) -> taken.add(delivery), tag -> { });
            channel.basicConsume(words[1], false, (tag, delivery) ->
                channel.basicReject(delivery.getEnvelope().getDeliveryTag(), false), tag -> { });
            Delivery letter = taken.poll(10, TimeUnit.SECONDS);
            expect(letter != null, "no dead letter");
            expect(letter.getProperties().getHeaders().get("x-death").toString().contains("rejected"),
                letter.getProperties());
            channel.exchangeDelete(words[1]);
            channel.queueDelete(words[1]);
            channel.queueDelete(dead);
        }
    }

    /** Errors end the channel with RabbitMQ's code and text, and the connection goes on. */
    public static void errors(String[] words) throws Exception {
        try (Connection connection = connect(words)) {
            Channel first = connection.createChannel();
            try {
                first.queueDeclarePassive(words[1] + "-nope");
                expect(false, "a queue that nobody declared");
            } catch (java.io.IOException failure) {
                String text = failure.getCause().getMessage();
                expect(text.contains("reply-code=404") && text.contains("NOT_FOUND - no queue '"), text);
            }
            Channel second = connection.createChannel();
            second.queueDeclare(words[1], false, false, true, null);
            CountDownLatch closed = new CountDownLatch(1);
            List<ShutdownSignalException> why = Collections.synchronizedList(new ArrayList<>());
            second.addShutdownListener(cause -> {
                why.add(cause);
                closed.countDown();
            });
            second.basicAck(99, false);
            expect(closed.await(10, TimeUnit.SECONDS), "the channel is still open");
            expect(why.get(0).getMessage().contains("unknown delivery tag 99"), why);
            expect(connection.isOpen(), "the connection is closed too");
        }
    }

    /** A remote call over direct reply-to, with the client's own RpcClient. */
    public static void calls(String[] words) throws Exception {
        try (Connection connection = connect(words);
                Channel server = connection.createChannel();
                Channel channel = connection.createChannel()) {
            server.queueDeclare(words[1], false, true, true, null);
            server.basicConsume(words[1], true, (tag, request) -> {
                AMQP.BasicProperties asked = request.getProperties();
                AMQP.BasicProperties answer = new AMQP.BasicProperties.Builder()
                    .correlationId(asked.getCorrelationId()).build();
                String upper = new String(request.getBody(), StandardCharsets.UTF_8).toUpperCase();
                server.basicPublish("", asked.getReplyTo(), answer,
                    upper.getBytes(StandardCharsets.UTF_8));
            }, tag -> { });
            RpcClient client = new RpcClient(new RpcClientParams()
                .channel(channel).exchange("").routingKey(words[1]).timeout(10_000));
            for (int number = 0; number < 20; number++) {
                String answer = client.stringCall("ask" + number);
                expect(answer.equals("ASK" + number), answer);
            }
            client.close();
        }
    }

    /** What a transaction publishes is seen when it commits, and not when it is rolled back. */
    public static void transactions(String[] words) throws Exception {
        try (Connection connection = connect(words); Channel channel = connection.createChannel()) {
            channel.queueDeclare(words[1], true, false, false, null);
            channel.txSelect();
            channel.basicPublish("", words[1], null, BODY);
            channel.txRollback();
            channel.basicPublish("", words[1], null, BODY);
            expect(channel.messageCount(words[1]) == 0, "seen before the commit");
            channel.txCommit();
            expect(channel.messageCount(words[1]) == 1, channel.messageCount(words[1]));
            channel.queueDelete(words[1]);
        }
    }

    /** A connection that is lost is opened again by the client, with its queues and consumers. */
    public static void recovery(String[] words) throws Exception {
        try (Connection connection = connect(words); Channel channel = connection.createChannel()) {
            channel.queueDeclare(words[1], false, true, true, null);
            BlockingQueue<Delivery> taken = new LinkedBlockingQueue<>();
            channel.basicConsume(words[1], true, (tag, delivery) -> taken.add(delivery), tag -> { });
            CountDownLatch recovered = new CountDownLatch(1);
            ((com.rabbitmq.client.Recoverable) connection).addRecoveryListener(
                new com.rabbitmq.client.RecoveryListener() {
                    @Override
                    public void handleRecovery(com.rabbitmq.client.Recoverable it) {
                        recovered.countDown();
                    }

                    @Override
                    public void handleRecoveryStarted(com.rabbitmq.client.Recoverable it) { }
                });
            System.out.println("close me");
            System.out.flush();
            expect(recovered.await(30, TimeUnit.SECONDS), "the client did not come back");
            channel.basicPublish("", words[1], null, BODY);
            expect(taken.poll(10, TimeUnit.SECONDS) != null, "nothing was delivered");
        }
    }
}
