"""The AMQP 0-9-1 door: sockets, connections, channels and consumers over the queue service."""
