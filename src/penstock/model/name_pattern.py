"""Patterns over names, as permissions and policies have them: found anywhere in a name.

`^` and `$` tie a pattern to the ends. The empty pattern is found in no name but the empty one, as
with RabbitMQ. Matching takes time in proportion to the name, whatever the pattern (see pattern.py).
"""

from __future__ import annotations

from functools import lru_cache

from penstock.model.pattern import Pattern

_ANYTHING = r"[\s\S]*"


class NamePattern:
    """A compiled pattern."""

    __slots__ = ("_pattern", "text")

    def __init__(self, text: str) -> None:
        """InvalidRegularExpression when it is none."""
        self.text = text
        self._pattern = None
        if text not in ("", ".*"):
            Pattern(text)  # so that an unbalanced one cannot hide in the parentheses below
            self._pattern = Pattern(f"{_ANYTHING}(?:{text}){_ANYTHING}")

    def __repr__(self) -> str:
        return f"NamePattern({self.text!r})"

    def found_in(self, name: str) -> bool:
        if self._pattern is None:
            return self.text == ".*" or name == ""
        return self._pattern.matches(name)


@lru_cache(maxsize=1024)
def name_pattern(text: str) -> NamePattern:
    """The compiled pattern; equal texts give the same one."""
    return NamePattern(text)
