"""The commands of `penstock`.

`main` knows their names and loads one when it is called, so that a simple command answers at once.
All but `serve` are clients like any other: they talk to a running broker through confluent-kafka,
and work against any broker that speaks Kafka's protocol.

Data goes to standard output, words for people to standard error. Exit codes: 0 fine, 1 failed,
2 wrong usage.
"""
