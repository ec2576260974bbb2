"""One async function per Kafka API: a request in, a response payload out."""
