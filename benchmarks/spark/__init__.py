"""Spark through the broker, beside Spark's own Kafka connector."""
