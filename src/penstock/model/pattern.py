"""Regular expressions over topic names, in time that cannot explode.

Patterns come from clients, so matching must be bounded whatever they wrote: a pattern is compiled
to a non-deterministic automaton of limited size, and names run through it with all its states at
once; the sets of states that occur are remembered as a deterministic automaton (also limited), so
that thousands of names cost a dictionary look-up a character. There is no backtracking, and for
that reason no back-references and no look-around: the syntax is RE2's (KIP-848), less named Unicode
classes. As in Kafka a pattern must match the whole name.

    x  .  [a-z]  [^a-z]  [[:alpha:]]  \\d \\w \\s \\D \\W \\S  \\.  \\Q...\\E  \\x41
    ^  $  \\A  \\z  \\b  \\B
    xy  x|y  x*  x+  x?  x{n}  x{n,}  x{n,m}  (lazy forms too)  (x)  (?:x)  (?P<name>x)  (?i) (?s)

Anchors and word boundaries are conditions between characters.
"""

from __future__ import annotations

from functools import lru_cache

from penstock.model.pattern_syntax import Program, compile_pattern

_REMEMBERED_STEPS = 20_000
_START = frozenset((0,))

_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


class Pattern:
    """A compiled pattern. `matches` takes time in proportion to the name's length."""

    __slots__ = ("_program", "_steps", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._program: Program = compile_pattern(text)
        self._steps: dict[tuple[frozenset[int], bool, bool, str], frozenset[int]] = {}

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"

    def matches(self, name: str) -> bool:
        """Whether the whole of `name` matches."""
        # What a condition may ask of the place between two characters: whether the name starts
        # here, and whether a word is on the one side and not on the other.
        states, at_start, after_word = _START, True, False
        for character in name:
            key = (states, at_start, after_word, character)
            following = self._steps.get(key)
            if following is None:
                following = self._step(*key)
                if len(self._steps) >= _REMEMBERED_STEPS:
                    self._steps.clear()
                self._steps[key] = following
            if not following:
                return False
            states, at_start, after_word = following, False, character in _WORD
        return self._program.end in self._closure(states, at_start, after_word, "")

    def _step(
        self, states: frozenset[int], at_start: bool, after_word: bool, character: str
    ) -> frozenset[int]:
        reached = self._closure(states, at_start, after_word, character)
        takes = self._program.takes
        return frozenset(
            takes[state][1] for state in reached if state in takes and takes[state][0](character)
        )

    def _closure(
        self, states: frozenset[int], at_start: bool, after_word: bool, following: str
    ) -> set[int]:
        """Every state that is reached without reading a character, here."""
        boundary = after_word != (following in _WORD)
        holds = {"^": at_start, "$": not following, "b": boundary, "B": not boundary, "": True}
        reached: set[int] = set()
        waiting = list(states)
        while waiting:
            state = waiting.pop()
            if state not in reached:
                reached.add(state)
                jumps = self._program.jumps.get(state, ())
                waiting += [target for condition, target in jumps if holds[condition]]
        return reached


@lru_cache(maxsize=256)
def pattern(text: str) -> Pattern:
    """The compiled pattern; `InvalidRegularExpression` when it cannot be one."""
    return Pattern(text)
