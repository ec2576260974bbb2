"""One table: what the broker refuses, and with which AMQP reply code.

Whether a code ends the channel or the connection is AMQP's own rule (`wire.amqp.codes`). Errors
that only Kafka clients can cause are here as well, because an AMQP client may meet any of them
through a queue's log; a test proves that no error is missing.
"""

from __future__ import annotations

from penstock import errors
from penstock.errors import BrokerError
from penstock.wire.amqp import codes
from penstock.wire.amqp.codes import AmqpError

# The first class of an error's ancestry that stands here decides, so the last entry catches all.
REPLY_CODES: dict[type[BrokerError], int] = {
    errors.NotFound: codes.NOT_FOUND,
    errors.NotForStreams: codes.NOT_IMPLEMENTED,
    errors.PreconditionFailed: codes.PRECONDITION_FAILED,
    errors.ResourceLocked: codes.RESOURCE_LOCKED,
    errors.AccessRefused: codes.ACCESS_REFUSED,
    errors.AccessDenied: codes.ACCESS_REFUSED,
    errors.LoginRefused: codes.ACCESS_REFUSED,
    errors.NotAllowed: codes.NOT_ALLOWED,
    errors.MalformedRequest: codes.SYNTAX_ERROR,
    errors.UnknownTopicOrPartition: codes.NOT_FOUND,
    errors.UnknownTopicId: codes.NOT_FOUND,
    errors.TopicExists: codes.PRECONDITION_FAILED,
    errors.InvalidTopicName: codes.PRECONDITION_FAILED,
    errors.InvalidConfig: codes.PRECONDITION_FAILED,
    errors.InvalidRequest: codes.PRECONDITION_FAILED,
    errors.PolicyViolation: codes.PRECONDITION_FAILED,
    errors.RecordTooLarge: codes.PRECONDITION_FAILED,
    errors.RecordListTooLarge: codes.PRECONDITION_FAILED,
    errors.OffsetOutOfRange: codes.PRECONDITION_FAILED,
    errors.InvalidRecord: codes.PRECONDITION_FAILED,
    errors.StorageError: codes.RESOURCE_ERROR,
    errors.ThrottlingQuotaExceeded: codes.RESOURCE_ERROR,
    BrokerError: codes.INTERNAL_ERROR,
}


def amqp_error(failure: BrokerError, method: tuple[int, int]) -> AmqpError:
    """The failure as the reply that ends the channel or connection of the method."""
    for kind in type(failure).__mro__:
        if kind in REPLY_CODES:
            return AmqpError(REPLY_CODES[kind], str(failure), method)
    raise AssertionError("BrokerError itself is in the table")
