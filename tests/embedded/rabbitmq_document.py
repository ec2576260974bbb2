"""The RabbitMQ producer and consumer of a textbook, word for word, with the lines they need above.

It is written for RabbitMQ and knows nothing of Penstock.
"""
# ruff: noqa
# fmt: off

import logging
from typing import List

logger = logging.getLogger(__name__)

import pika
import json
from typing import Callable
import threading

class RabbitMQProducer:
    """RabbitMQ message producer"""

    def __init__(self, host: str = 'localhost', exchange: str = 'orders'):
        """
        Args:
            host: RabbitMQ host
            exchange: Exchange name
        """
        self.host = host
        self.exchange = exchange

        # Connect to RabbitMQ
        connection = pika.BlockingConnection(
            pika.ConnectionParameters(host=self.host)
        )
        self.channel = connection.channel()

        # Declare exchange
        self.channel.exchange_declare(
            exchange=self.exchange,
            exchange_type='topic',
            durable=True
        )

    def publish(self, routing_key: str, message: dict):
        """
        Publish message

        Args:
            routing_key: Routing key (e.g., 'order.created')
            message: Message data
        """
        self.channel.basic_publish(
            exchange=self.exchange,
            routing_key=routing_key,
            body=json.dumps(message),
            properties=pika.BasicProperties(
                delivery_mode=2,  # Persistent
                content_type='application/json'
            )
        )
        logger.info(f"Published message to {routing_key}")

    def close(self):
        """Close connection"""
        self.channel.close()

class RabbitMQConsumer:
    """RabbitMQ message consumer"""

    def __init__(
        self,
        host: str = 'localhost',
        exchange: str = 'orders',
        queue: str = 'order_processing',
        routing_keys: List[str] = None
    ):
        """
        Args:
            host: RabbitMQ host
            exchange: Exchange name
            queue: Queue name
            routing_keys: Routing keys to bind (e.g., ['order.*'])
        """
        self.host = host
        self.exchange = exchange
        self.queue = queue
        self.routing_keys = routing_keys or ['#']

        # Connect to RabbitMQ
        connection = pika.BlockingConnection(
            pika.ConnectionParameters(host=self.host)
        )
        self.channel = connection.channel()

        # Declare exchange
        self.channel.exchange_declare(
            exchange=self.exchange,
            exchange_type='topic',
            durable=True
        )

        # Declare queue
        self.channel.queue_declare(queue=self.queue, durable=True)

        # Bind queue to exchange
        for routing_key in self.routing_keys:
            self.channel.queue_bind(
                exchange=self.exchange,
                queue=self.queue,
                routing_key=routing_key
            )

        # Set prefetch count (QoS)
        self.channel.basic_qos(prefetch_count=10)

    def consume(self, callback: Callable[[dict], None]):
        """
        Start consuming messages

        Args:
            callback: Function to call for each message
        """
        def on_message(ch, method, properties, body):
            """Handle incoming message"""
            try:
                message = json.loads(body)
                callback(message)

                # Acknowledge message
                ch.basic_ack(delivery_tag=method.delivery_tag)

            except Exception as e:
                logger.error(f"Error processing message: {e}")
                # Reject and requeue
                ch.basic_nack(delivery_tag=method.delivery_tag, requeue=True)

        self.channel.basic_consume(
            queue=self.queue,
            on_message_callback=on_message
        )

        logger.info(f"Started consuming from queue: {self.queue}")
        self.channel.start_consuming()

    def close(self):
        """Close connection"""
        self.channel.close()

# Example usage
# Producer
producer = RabbitMQProducer(host='localhost', exchange='orders')
producer.publish('order.created', {'order_id': 123, 'amount': 99.99})
producer.publish('order.shipped', {'order_id': 123, 'tracking': 'ABC123'})
producer.close()

# Consumer
def handle_order(message: dict):
    print(f"Received order: {message}")

consumer = RabbitMQConsumer(
    host='localhost',
    exchange='orders',
    queue='order_processing',
    routing_keys=['order.*']  # Subscribe to all order events
)

# Start consuming in separate thread
consumer_thread = threading.Thread(target=consumer.consume, args=(handle_order,), daemon=True)
consumer_thread.start()
