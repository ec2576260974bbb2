"""From the text of a pattern to an automaton (Thompson's construction), in bounded size.

The parser goes by precedence: alternatives of sequences of repeated items. Each piece adds states
to one program; a repetition with counts copies its piece, which is what the size limit is for.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

from penstock.errors import InvalidRegularExpression

MAX_PATTERN_LENGTH = 1_024
MAX_STATES = 5_000
MAX_REPEAT = 1_000
MAX_DEPTH = 100

Takes = Callable[[str], bool]

_DIGITS = "0123456789"
_LOWER = "abcdefghijklmnopqrstuvwxyz"
_UPPER = _LOWER.upper()
_CLASSES = {"d": _DIGITS, "w": _LOWER + _UPPER + _DIGITS + "_", "s": "\t\n\f\r "}
_POSIX = {
    "alnum": _LOWER + _UPPER + _DIGITS,
    "alpha": _LOWER + _UPPER,
    "digit": _DIGITS,
    "lower": _LOWER,
    "upper": _UPPER,
    "word": _CLASSES["w"],
    "xdigit": _DIGITS + "abcdefABCDEF",
    "punct": "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
    "space": "\t\n\v\f\r ",
    "blank": "\t ",
}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_CONDITIONS = {"A": "^", "z": "$", "b": "b", "B": "B"}


class Program(NamedTuple):
    """States are numbers; 0 is the start. A state either takes a character or jumps."""

    takes: dict[int, tuple[Takes, int]]
    jumps: dict[int, list[tuple[str, int]]]  # (condition or "", target)
    end: int


class _Piece(NamedTuple):
    start: int
    end: int


# What the parser makes of the text; the builder turns it into states, as often as it is repeated.
_Node = tuple[Any, ...]


def compile_pattern(text: str) -> Program:
    """Raises `InvalidRegularExpression` with the reason when the text is not a pattern."""
    if len(text) > MAX_PATTERN_LENGTH:
        raise InvalidRegularExpression(f"a pattern has at most {MAX_PATTERN_LENGTH} characters")
    node = _Parser(text).parse()
    builder = _Builder()
    builder.state()
    piece = builder.build(node)
    builder.jump(0, piece.start)
    return Program(builder.takes, builder.jumps, piece.end)


class _Builder:
    """Makes states from nodes and refuses to make too many."""

    def __init__(self) -> None:
        self.takes: dict[int, tuple[Takes, int]] = {}
        self.jumps: dict[int, list[tuple[str, int]]] = {}
        self._count = 0

    def state(self) -> int:
        if self._count >= MAX_STATES:
            raise InvalidRegularExpression("the pattern is too large once its counts are unfolded")
        self._count += 1
        return self._count - 1

    def jump(self, start: int, target: int, condition: str = "") -> None:
        self.jumps.setdefault(start, []).append((condition, target))

    def build(self, node: _Node) -> _Piece:
        match node:
            case ("take", takes):
                start, end = self.state(), self.state()
                self.takes[start] = (takes, end)
                return _Piece(start, end)
            case ("if", condition):
                start, end = self.state(), self.state()
                self.jump(start, end, condition)
                return _Piece(start, end)
            case ("all", items):
                return self._sequence([self.build(item) for item in items])
            case ("any", items):
                return self._alternatives([self.build(item) for item in items])
            case ("repeat", item, low, high):
                return self._repeat(item, low, high)
        raise AssertionError(node)

    def _sequence(self, pieces: list[_Piece]) -> _Piece:
        if not pieces:
            state = self.state()
            return _Piece(state, state)
        for first, second in pairwise(pieces):
            self.jump(first.end, second.start)
        return _Piece(pieces[0].start, pieces[-1].end)

    def _alternatives(self, pieces: list[_Piece]) -> _Piece:
        start, end = self.state(), self.state()
        for piece in pieces:
            self.jump(start, piece.start)
            self.jump(piece.end, end)
        return _Piece(start, end)

    def _repeat(self, item: _Node, low: int, high: int | None) -> _Piece:
        pieces = [self.build(item) for _ in range(low)]
        if high is None:
            loop, inner = self.state(), self.build(item)
            self.jump(loop, inner.start)
            self.jump(inner.end, loop)
            return self._sequence([*pieces, _Piece(loop, loop)])
        end = self.state()
        for _ in range(high - low):
            optional = self.build(item)
            entry = self.state()
            self.jump(entry, optional.start)
            self.jump(entry, end)
            pieces.append(_Piece(entry, optional.end))
        return self._sequence([*pieces, _Piece(end, end)])


class _Parser:
    """One pass over the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self.ignore_case = False
        self.dot_takes_newline = False

    def parse(self) -> _Node:
        node = self._alternatives()
        if self.at < len(self.text):
            raise self._wrong("a ')' that nothing opened")
        return node

    def _wrong(self, what: str) -> InvalidRegularExpression:
        return InvalidRegularExpression(f"{what}, at character {self.at} of {self.text!r}")

    def _peek(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def _skip(self, text: str) -> bool:
        if not self._peek(text):
            return False
        self.at += len(text)
        return True

    def _next(self) -> str:
        if self.at >= len(self.text):
            raise self._wrong("the pattern ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def _alternatives(self) -> _Node:
        flags = self.ignore_case, self.dot_takes_newline
        branches = [self._sequence()]
        while self._skip("|"):
            branches.append(self._sequence())
        self.ignore_case, self.dot_takes_newline = flags
        return branches[0] if len(branches) == 1 else ("any", branches)

    def _sequence(self) -> _Node:
        items: list[_Node] = []
        while self.at < len(self.text) and not self._peek("|") and not self._peek(")"):
            if self._skip("\\Q"):
                end = self.text.find("\\E", self.at)
                quoted = self.text[self.at : end if end >= 0 else None]
                items += [self._literal(character) for character in quoted]
                self.at += len(quoted) + (2 if end >= 0 else 0)
                if quoted:
                    items.append(self._repeated(items.pop()))
                continue
            item = self._item()
            if item is not None:
                items.append(self._repeated(item))
        return ("all", items)

    def _item(self) -> _Node | None:
        character = self._next()
        match character:
            case "(":
                return self._group()
            case "[":
                return ("take", self._class())
            case ".":
                return ("take", _anything if self.dot_takes_newline else _anything_but_newline)
            case "^" | "$":
                return ("if", character)
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise self._wrong(f"a '{character}' with nothing to repeat")
        return self._literal(character)

    def _literal(self, character: str) -> _Node:
        wanted = character.lower() + character.upper() if self.ignore_case else character
        return ("take", wanted.__contains__)

    def _group(self) -> _Node | None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self._wrong("groups are nested too deeply")
        flags = self.ignore_case, self.dot_takes_newline
        if self._skip("?"):
            if self._skip("P<") or self._skip("<"):
                if self._peek("=") or self._peek("!"):
                    raise self._wrong("look-behind is not supported")
                while self._next() != ">":
                    pass
            elif not self._flags():
                self.depth -= 1
                return None
        node = self._alternatives()
        if not self._skip(")"):
            raise self._wrong("a '(' that nothing closes")
        self.depth -= 1
        self.ignore_case, self.dot_takes_newline = flags
        return node

    def _flags(self) -> bool:
        """Read `i`, `-s`, ... up to `:` (a group follows: True) or `)` (for the rest: False)."""
        value = True
        while True:
            flag = self._next()
            match flag:
                case "-":
                    value = False
                case "i":
                    self.ignore_case = value
                case "s":
                    self.dot_takes_newline = value
                case "m" | "U":
                    pass  # a name has one line, and laziness does not change what matches
                case ":" | ")":
                    return flag == ":"
                case _:
                    raise self._wrong(f"'(?{flag}' is not supported")

    def _repeated(self, item: _Node) -> _Node:
        bounds = self._bounds()
        if bounds is None:
            return item
        self._skip("?")  # the lazy form matches the same names
        if self._bounds() is not None:
            raise self._wrong("a repetition of a repetition")
        return ("repeat", item, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._skip(sign):
                return bounds
        if not self._peek("{"):
            return None
        end = self.text.find("}", self.at)
        low, comma, high = self.text[self.at + 1 : max(end, self.at + 1)].partition(",")
        if not low.isdigit() or not (high.isdigit() or not high):
            return None  # a brace that is no count is itself
        self.at = end + 1
        least = int(low)
        most = least if not comma else int(high) if high else None
        if least > MAX_REPEAT or (most is not None and not least <= most <= MAX_REPEAT):
            raise self._wrong(f"a repeat count that is not between 0 and {MAX_REPEAT}")
        return least, most

    def _escape(self) -> _Node:
        character = self._next()
        if character in _CONDITIONS:
            return ("if", _CONDITIONS[character])
        if character.lower() in _CLASSES:
            return ("take", _class_of(character))
        return self._literal(self._escaped(character))

    def _escaped(self, character: str) -> str:
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character == "x":
            return self._hexadecimal()
        if character.isalnum():
            raise self._wrong(f"'\\{character}' is not supported")
        return character

    def _hexadecimal(self) -> str:
        digits = self._next()
        if digits == "{":
            end = self.text.find("}", self.at)
            digits = self.text[self.at : max(end, self.at)]
            self.at = end + 1
        else:
            digits += self._next()
        try:
            return chr(int(digits, 16))
        except (ValueError, OverflowError):
            raise self._wrong("a '\\x' without a character code") from None

    def _class(self) -> Takes:
        negated = self._skip("^")
        ranges: list[tuple[str, str]] = []
        parts: list[Takes] = []
        first = True
        while first or not self._peek("]"):
            first = False
            if self._skip("[:"):
                parts.append(self._posix())
                continue
            low = self._next()
            if low == "\\":
                low = self._next()
                if low.lower() in _CLASSES:
                    parts.append(_class_of(low))
                    continue
                low = self._escaped(low)
            high = low
            if self._peek("-") and not self._peek("-]"):
                self.at += 1
                high = self._next()
                if high == "\\":
                    high = self._escaped(self._next())
                if high < low:
                    raise self._wrong(f"a range from '{low}' back to '{high}'")
            ranges.append((low, high))
        self.at += 1
        return _set_of(ranges, parts, negated=negated, ignore_case=self.ignore_case)

    def _posix(self) -> Takes:
        end = self.text.find(":]", self.at)
        name = self.text[self.at : max(end, self.at)]
        negated = name.startswith("^")
        characters = _POSIX.get(name.removeprefix("^"))
        if characters is None:
            raise self._wrong(f"an unknown class [:{name}:]")
        self.at = end + 2
        return _negated(characters.__contains__) if negated else characters.__contains__


def _anything(character: str) -> bool:
    return True


def _anything_but_newline(character: str) -> bool:
    return character != "\n"


def _class_of(letter: str) -> Takes:
    takes = _CLASSES[letter.lower()].__contains__
    return _negated(takes) if letter.isupper() else takes


def _negated(takes: Takes) -> Takes:
    return lambda character: not takes(character)


def _set_of(
    ranges: list[tuple[str, str]], parts: list[Takes], *, negated: bool, ignore_case: bool
) -> Takes:
    def takes(character: str) -> bool:
        forms = (character.lower(), character.upper()) if ignore_case else (character,)
        found = any(low <= form <= high for form in forms for low, high in ranges)
        return (found or any(part(character) for part in parts)) != negated

    return takes
