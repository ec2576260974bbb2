// Scenarios for amqplib, each named on the command line: node scenarios.js URL NAME
// A scenario that ends well prints "ok"; one that fails throws.
"use strict";
const assert = require("node:assert");
const { randomBytes } = require("node:crypto");
const amqp = require("amqplib");

const unique = (stem) => `${stem}-${randomBytes(5).toString("hex")}`;
const events = (emitter, name) => new Promise((resolve) => emitter.once(name, resolve));

const scenarios = {
  async "publish and consume"(connection) {
    const channel = await connection.createConfirmChannel();
    const { queue } = await channel.assertQueue(unique("node"), { durable: true });
    await channel.prefetch(10);
    for (let n = 0; n < 200; n++) {
      channel.sendToQueue(queue, Buffer.from(String(n)), {
        persistent: true, headers: { n, half: 0.5, deep: { list: [1, "two", null] } }, messageId: `m${n}`,
      });
    }
    await channel.waitForConfirms();
    const got = [];
    await new Promise((resolve) => {
      channel.consume(queue, (message) => {
        if (message === null) return; // the queue is deleted below
        got.push(Number(message.content.toString()));
        assert.strictEqual(message.properties.headers.n, got.length - 1);
        assert.strictEqual(message.properties.headers.half, 0.5);
        assert.deepStrictEqual(message.properties.headers.deep, { list: [1, "two", null] });
        channel.ack(message);
        if (got.length === 200) resolve();
      });
    });
    assert.deepStrictEqual(got, [...Array(200).keys()]);
    await channel.deleteQueue(queue);
  },

  async "exchanges of every type"(connection) {
    const channel = await connection.createChannel();
    for (const type of ["direct", "fanout", "topic", "headers"]) {
      const { exchange } = await channel.assertExchange(unique(type), type, { autoDelete: true, durable: false });
      const { queue } = await channel.assertQueue("", { exclusive: true });
      const table = type === "headers" ? { "x-match": "all", a: "1" } : {};
      await channel.bindQueue(queue, exchange, type === "topic" ? "a.#" : "a.b", table);
      channel.publish(exchange, "a.b", Buffer.from(type), { headers: { a: "1" } });
      const got = await new Promise((resolve) => channel.consume(queue, resolve, { noAck: true }));
      assert.strictEqual(got.content.toString(), type);
      assert.strictEqual(got.fields.exchange, exchange);
    }
  },

  async "a mandatory message comes back"(connection) {
    const channel = await connection.createConfirmChannel();
    const returned = events(channel, "return");
    channel.publish("", unique("nowhere"), Buffer.from("x"), { mandatory: true });
    await channel.waitForConfirms();
    assert.strictEqual((await returned).fields.replyText, "NO_ROUTE");
  },

  async "a full queue refuses"(connection) {
    const channel = await connection.createConfirmChannel();
    const { queue } = await channel.assertQueue("", {
      exclusive: true, maxLength: 1, arguments: { "x-overflow": "reject-publish" },
    });
    const publish = () => new Promise((resolve) => channel.sendToQueue(queue, Buffer.from("x"), {}, (error) => resolve(error)));
    assert.strictEqual(await publish(), null);
    assert.ok((await publish()) instanceof Error);
  },

  async "nack, requeue and dead letters"(connection) {
    const channel = await connection.createChannel();
    const grave = (await channel.assertQueue("", { exclusive: true })).queue;
    const { queue } = await channel.assertQueue("", {
      exclusive: true, deadLetterExchange: "", deadLetterRoutingKey: grave,
    });
    channel.sendToQueue(queue, Buffer.from("x"));
    let first;
    while (!(first = await channel.get(queue)));
    channel.nack(first, false, true);
    let again;
    while (!(again = await channel.get(queue)));
    assert.strictEqual(again.fields.redelivered, true);
    channel.reject(again, false);
    let dead;
    while (!(dead = await channel.get(grave, { noAck: true })));
    assert.strictEqual(dead.properties.headers["x-death"][0].reason, "rejected");
    assert.strictEqual(dead.properties.headers["x-death"][0].count, 1);
  },

  async "a channel error closes the channel"(connection) {
    const channel = await connection.createChannel();
    const failed = events(channel, "error");
    await assert.rejects(channel.checkQueue(unique("nope")), /NOT_FOUND/);
    assert.strictEqual((await failed).code, 404);
    const other = await connection.createChannel();
    await other.assertQueue("", { exclusive: true });
  },

  async "an inequivalent queue is refused"(connection) {
    const name = unique("strict");
    const channel = await connection.createChannel();
    await channel.assertQueue(name, { autoDelete: true, durable: false });
    channel.on("error", () => {});
    await assert.rejects(channel.assertQueue(name, { autoDelete: true, durable: true }), /PRECONDITION_FAILED/);
  },

  async "requests are answered directly"(connection) {
    const server = await connection.createChannel();
    const { queue } = await server.assertQueue("", { exclusive: true });
    await server.consume(queue, (message) => {
      server.sendToQueue(message.properties.replyTo, Buffer.from(message.content.toString().toUpperCase()), {
        correlationId: message.properties.correlationId,
      });
    }, { noAck: true });
    const client = await connection.createChannel();
    const answer = new Promise((resolve) => client.consume("amq.rabbitmq.reply-to", resolve, { noAck: true }));
    client.sendToQueue(queue, Buffer.from("question"), { replyTo: "amq.rabbitmq.reply-to", correlationId: "7" });
    const got = await answer;
    assert.strictEqual(got.content.toString(), "QUESTION");
    assert.strictEqual(got.properties.correlationId, "7");
  },

  async "a consumer is told that its queue is gone"(connection) {
    const channel = await connection.createChannel();
    const { queue } = await channel.assertQueue(unique("gone"), { durable: false });
    const told = new Promise((resolve) => channel.consume(queue, resolve));
    const other = await connection.createChannel();
    await other.deleteQueue(queue);
    assert.strictEqual(await told, null);
  },

  async "a large body"(connection) {
    const channel = await connection.createConfirmChannel();
    const { queue } = await channel.assertQueue("", { exclusive: true });
    const body = randomBytes(3_000_000);
    channel.sendToQueue(queue, body);
    await channel.waitForConfirms();
    const got = await channel.get(queue, { noAck: true });
    assert.ok(got.content.equals(body));
  },
};

async function main() {
  const [url, name] = process.argv.slice(2);
  if (name === "list") return console.log(JSON.stringify(Object.keys(scenarios)));
  const connection = await amqp.connect(url + "?heartbeat=5");
  connection.on("error", () => {});
  await scenarios[name](connection);
  await connection.close();
  console.log("ok");
}

main().catch((error) => { console.error(error); process.exit(1); });
