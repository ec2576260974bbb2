"""A small language to choose messages by: headers, key and properties, nothing else.

    headers.type == "order" and priority >= 5
    key like "user-%" or headers["x-region"] in ("eu", "us")
    not (retry_count > 3) and headers.source exists

    expression  := either ("or" either)*
    either      := part ("and" part)*
    part        := "not" part | "(" expression ")" | operand [comparison]
    comparison  := ("==" | "=" | "!=" | "<" | "<=" | ">" | ">=") operand
                 | ["not"] "in" "(" literal ("," literal)* ")"
                 | ["not"] "like" text            % stands for anything, _ for one character
                 | "exists"
    operand     := literal | field | "headers" ("." name | "[" text "]")

What is absent is unlike everything: a comparison with it is false, and only `exists` tells. A
header is text; compared with a number it is read as one. There is no arithmetic, no call, no loop,
and nothing of Python in it: a text of a stranger can be slow to read at worst, and its length and
depth are bounded.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.client.errors import InvalidArgument
from penstock.client.message import Message

Scalar = str | float | bool | None
Term = Callable[[Message], Scalar]
Test = Callable[[Message], bool]

MOST_CHARACTERS = 4096
_MOST_DEPTH = 40

_FIELDS: dict[str, Term] = {
    "topic": lambda message: message.topic,
    "partition": lambda message: float(message.partition),
    "offset": lambda message: float(message.offset),
    "timestamp": lambda message: message.timestamp_ms / 1000,
    "key": lambda m: None if m.key is None else m.key.decode("utf-8", "surrogateescape"),
    "size": lambda message: float(len(message.payload)),
    "priority": lambda message: float(message.priority),
    "ttl": lambda message: message.ttl,
    "retry_count": lambda message: float(message.retry_count),
    "message_id": lambda message: message.message_id,
    "correlation_id": lambda message: message.correlation_id,
    "reply_to": lambda message: message.reply_to,
}
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_WORDS = {"and", "or", "not", "in", "like", "exists", "true", "false", "headers"}
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>-?\d+(?:\.\d+)?(?![\w.]))
      | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<name>[A-Za-z_][\w-]*)
      | (?P<sign>==|!=|<=|>=|[=<>(),.\[\]])
    )""",
    re.VERBOSE,
)


class Filter:
    """A compiled expression.

    >>> Filter('headers.type == "order" and priority >= 5').matches(
    ...     Message(b"", headers={"type": "order"}, priority=7))
    True
    """

    __slots__ = ("_test", "expression")

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._test = _Parser(expression).whole()

    def matches(self, message: Message) -> bool:
        """Whether the message is wanted.

        >>> Filter("headers.type == 'order'").matches(Message("a", headers={"type": "order"}))
        True
        """
        return self._test(message)

    def __repr__(self) -> str:
        return f"Filter({self.expression!r})"


def find_filter(wanted: str | Filter | None) -> Filter | None:
    """The filter that is meant, None for none."""
    return Filter(wanted) if isinstance(wanted, str) else wanted


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Parser:
    """Recursive descent; each method returns the function that its part of the text means."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        if len(expression) > MOST_CHARACTERS:
            raise InvalidArgument(f"a filter has at most {MOST_CHARACTERS} characters")
        self._tokens = self._cut(expression)
        self._at = 0
        self._depth = 0

    def _cut(self, text: str) -> list[_Token]:
        tokens: list[_Token] = []
        position, end = 0, len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None or match.lastgroup is None:
                raise self._wrong("this is no part of the language", position)
            tokens.append(
                _Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup))
            )
            position = match.end()
        tokens.append(_Token("end", "", len(text)))
        return tokens

    def _wrong(self, why: str, at: int) -> InvalidArgument:
        return InvalidArgument(
            f"the filter {self._expression!r} cannot be read at character {at + 1}: {why}"
        )

    # --- looking at tokens ------------------------------------------------------------------------

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _is_word(self, word: str) -> bool:
        return self._next.kind == "name" and self._next.text.lower() == word

    def _accept(self, *texts: str) -> str | None:
        token = self._next
        if token.kind in ("sign", "name") and token.text.lower() in texts:
            self._take()
            return token.text.lower()
        return None

    def _expect(self, text: str) -> None:
        if self._accept(text) is None:
            found = self._next.text or "the end"
            raise self._wrong(f"{text!r} is expected, not {found!r}", self._next.at)

    # --- the grammar ------------------------------------------------------------------------------

    def whole(self) -> Test:
        test = self._either()
        if self._next.kind != "end":
            raise self._wrong(f"{self._next.text!r} is not expected here", self._next.at)
        return test

    def _either(self) -> Test:
        tests = [self._all()]
        while self._accept("or"):
            tests.append(self._all())
        if len(tests) == 1:
            return tests[0]
        return lambda message: any(test(message) for test in tests)

    def _all(self) -> Test:
        tests = [self._part()]
        while self._accept("and"):
            tests.append(self._part())
        if len(tests) == 1:
            return tests[0]
        return lambda message: all(test(message) for test in tests)

    def _part(self) -> Test:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise self._wrong(f"more than {_MOST_DEPTH} levels deep", self._next.at)
        try:
            if self._accept("not"):
                inner = self._part()
                return lambda message: not inner(message)
            if self._accept("("):
                test = self._either()
                self._expect(")")
                return test
            return self._comparison(self._operand())
        finally:
            self._depth -= 1

    def _comparison(self, left: Term) -> Test:
        order = self._accept(*_ORDERS)
        if order is not None:
            return _ordered(left, _ORDERS[order], self._operand())
        if self._accept("exists"):
            return lambda message: left(message) is not None
        negated = self._accept("not") is not None
        if self._accept("in"):
            return _one_of(left, self._literals(), negated)
        if self._accept("like"):
            return _like(left, self._pattern(), negated)
        if negated:
            raise self._wrong("'in' or 'like' is expected after 'not'", self._next.at)
        return lambda message: left(message) is True or left(message) == "true"

    def _literals(self) -> list[Scalar]:
        self._expect("(")
        found = [self._literal()]
        while self._accept(","):
            found.append(self._literal())
        self._expect(")")
        return found

    def _pattern(self) -> str:
        token = self._take()
        if token.kind != "text":
            raise self._wrong("'like' wants a text", token.at)
        return _unquoted(token.text)

    def _literal(self) -> Scalar:
        token = self._take()
        if token.kind == "text":
            return _unquoted(token.text)
        if token.kind == "number":
            return float(token.text)
        if token.kind == "name" and token.text.lower() in ("true", "false"):
            return token.text.lower() == "true"
        raise self._wrong("a text, a number, true or false is expected", token.at)

    def _operand(self) -> Term:
        token = self._next
        name = token.text.lower()
        if token.kind != "name" or name in ("true", "false"):
            literal = self._literal()
            return lambda message: literal
        self._take()
        if name == "headers":
            return self._header()
        field = _FIELDS.get(token.text)
        if field is None:
            if name in _WORDS:
                raise self._wrong(f"{token.text!r} is not expected here", token.at)
            known = ", ".join([*_FIELDS, "headers.<name>"])
            raise self._wrong(f"there is no field {token.text!r}; there are {known}", token.at)
        return field

    def _header(self) -> Term:
        if self._accept("["):
            token = self._take()
            name = _unquoted(token.text)
            if token.kind != "text":
                raise self._wrong("the name of the header is expected, in quotes", token.at)
            self._expect("]")
        else:
            self._expect(".")
            token = self._take()
            name = token.text
            if token.kind != "name":
                raise self._wrong("the name of the header is expected", token.at)
        return lambda message: _header_of(message, name)


def _header_of(message: Message, name: str) -> str | None:
    for key, value in message.raw_headers:
        if key == name:
            return (value or b"").decode("utf-8", "surrogateescape")
    return None


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.S)


def _alike(left: Scalar, right: Scalar) -> tuple[Scalar, Scalar] | None:
    """Both as the same kind of thing; None when they cannot be compared."""
    if left is None or right is None:
        return None
    if isinstance(left, str) != isinstance(right, str):
        try:
            if isinstance(left, str):
                left = _as_kind_of(right, left)
            else:
                right = _as_kind_of(left, str(right))
        except ValueError:
            return None
    return (left, right) if isinstance(left, bool) == isinstance(right, bool) else None


def _as_kind_of(other: Scalar, text: str) -> Scalar:
    if isinstance(other, bool):
        return {"true": True, "false": False}.get(text.lower())
    return float(text)


def _ordered(left: Term, order: Callable[[Any, Any], bool], right: Term) -> Test:
    def test(message: Message) -> bool:
        pair = _alike(left(message), right(message))
        return pair is not None and None not in pair and order(*pair)

    return test


def _one_of(left: Term, literals: list[Scalar], negated: bool) -> Test:
    def test(message: Message) -> bool:
        value = left(message)
        if value is None:
            return False
        pairs = (_alike(value, literal) for literal in literals)
        return any(pair is not None and pair[0] == pair[1] for pair in pairs) is not negated

    return test


def _like(left: Term, pattern: str, negated: bool) -> Test:
    def test(message: Message) -> bool:
        value = left(message)
        return isinstance(value, str) and is_like(value, pattern) is not negated

    return test


def is_like(text: str, pattern: str) -> bool:
    """SQL's LIKE, in at most len(text) * len(pattern) steps: a regular expression could take ages.

    >>> is_like("user-17", "user-%"), is_like("user-17", "user-_")
    (True, False)
    """
    at = wanted = 0
    star, resume = -1, 0  # the last %, and how far it has eaten
    while at < len(text):
        if wanted < len(pattern) and pattern[wanted] == "%":
            star, resume = wanted, at
            wanted += 1
        elif wanted < len(pattern) and pattern[wanted] in ("_", text[at]):
            at += 1
            wanted += 1
        elif star >= 0:
            resume += 1
            at, wanted = resume, star + 1
        else:
            return False
    return not pattern[wanted:].strip("%")
