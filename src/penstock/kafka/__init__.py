"""The Kafka door: sockets, dispatch and one handler per API."""
