"""Kafka's wire protocol as bytes and values: frames, headers, messages. No sockets, no clock."""
