"""TLS and logging in, from plain keyword arguments: for librdkafka, and for sockets of our own.

What goes wrong leaves as one error in words that say which argument to change, never as one of
OpenSSL's. The same arguments serve the Kafka, AMQP and HTTP doors of a server.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, NamedTuple

from penstock.client.errors import Denied, InvalidArgument, PenstockError, Unavailable

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
_NEED_A_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class Security(NamedTuple):
    """How to reach the servers and who we are."""

    tls: bool = False
    ca: str | Path | None = None
    certificate: str | Path | None = None
    private_key: str | Path | None = None
    private_key_password: str | None = None
    verify_hostname: bool = True
    username: str | None = None
    password: str | None = None
    sasl_mechanism: str | None = None

    @property
    def uses_tls(self) -> bool:
        return self.tls or self.ca is not None or self.certificate is not None

    @property
    def mechanism(self) -> str | None:
        if self.sasl_mechanism is not None:
            return self.sasl_mechanism.upper()
        return "PLAIN" if self.username is not None else None

    def check(self) -> None:
        """Raise for what cannot be right, before anything is connected."""
        mechanism = self.mechanism
        if mechanism is not None and mechanism not in MECHANISMS:
            raise InvalidArgument(
                f"sasl_mechanism is one of {', '.join(MECHANISMS)}, not {self.sasl_mechanism!r}"
            )
        if (self.username is None) != (self.password is None):
            raise InvalidArgument("give username and password, or neither")
        if mechanism in _NEED_A_PASSWORD and self.username is None:
            raise InvalidArgument(f"sasl_mechanism={mechanism} needs username and password")
        if self.private_key is not None and self.certificate is None:
            raise InvalidArgument("private_key needs the certificate that it belongs to")
        for file in (self.ca, self.certificate, self.private_key):
            if file is not None and not Path(file).is_file():
                raise InvalidArgument(f"there is no file {str(file)!r}")

    def context(self) -> ssl.SSLContext | None:
        """For a socket of our own."""
        if not self.uses_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=None if self.ca is None else str(self.ca))
        except ssl.SSLError:
            raise InvalidArgument(f"ca={str(self.ca)!r} holds no certificate in PEM form") from None
        if not self.verify_hostname:
            context.check_hostname = False
        if self.certificate is not None:
            self._show(context, self.certificate)
        return context

    def _show(self, context: ssl.SSLContext, certificate: str | Path) -> None:
        secret = self.private_key_password or ""
        try:
            # Without a password, OpenSSL would ask at the terminal, and wait.
            context.load_cert_chain(certificate, self.private_key, password=lambda: secret)
        except (ssl.SSLError, OSError, ValueError) as failure:
            raise InvalidArgument(
                f"certificate={str(certificate)!r} and its private key "
                f"{str(self.private_key or certificate)!r} cannot be used: both in PEM form, do "
                "they belong together, and is private_key_password right?"
            ) from failure

    def settings(self, *, log_in: bool = True) -> dict[str, Any]:
        """For librdkafka; without a login where the server has none."""
        mechanism = self.mechanism if log_in else None
        protocol = ("SASL_" if mechanism else "") + ("SSL" if self.uses_tls else "PLAINTEXT")
        found: dict[str, Any] = {"security.protocol": protocol}
        texts = {
            "ssl.ca.location": self.ca,
            "ssl.certificate.location": self.certificate,
            "ssl.key.location": self.private_key or self.certificate,
            "ssl.key.password": self.private_key_password,
            "sasl.mechanism": mechanism,
            "sasl.username": self.username if mechanism else None,
            "sasl.password": self.password if mechanism else None,
        }
        found |= {name: str(value) for name, value in texts.items() if value is not None}
        if self.uses_tls and not self.verify_hostname:
            found["ssl.endpoint.identification.algorithm"] = "none"
        return found


def of_tls_failure(where: str, failure: ssl.SSLError) -> PenstockError:
    """What a failure of TLS means, as one of ours.

    >>> of_tls_failure("a:1", ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"))
    Unavailable('a:1 does not speak TLS; connect without tls, ca and certificate, or elsewhere')
    """
    if isinstance(failure, ssl.SSLCertVerificationError):
        reason = failure.verify_message.rstrip(".")
        advice = (
            "verify_hostname=False would not look"
            if "mismatch" in reason
            else "ca= names the authority that vouches for it"
        )
        return Denied(f"{where} is not trusted: {reason}; {advice}")
    text = str(failure).lower()
    if "alert" in text and ("cert" in text or "unknown ca" in text or "unknown_ca" in text):
        return Denied(
            f"{where} wants a certificate that it trusts; give certificate= and private_key="
        )
    if "alert" in text:
        return Unavailable(f"{where} refuses to speak TLS with us: {failure}")
    return Unavailable(
        f"{where} does not speak TLS; connect without tls, ca and certificate, or elsewhere"
    )
