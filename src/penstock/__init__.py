"""Penstock: a durable, partitioned log that speaks Kafka's wire protocol, in one `pip install`."""

__version__ = "0.1.0"
