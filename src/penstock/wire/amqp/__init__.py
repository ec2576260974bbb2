"""AMQP 0-9-1 as bytes and events: frames, methods, content, and the state of a connection."""
