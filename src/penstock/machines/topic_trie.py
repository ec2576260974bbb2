"""Topic patterns, found by routing key: words between dots, `*` for one word, `#` for any number.

The patterns are a tree with a level for each word. A routing key walks all its branches at once:
the walk holds a set of places in the tree, each at most once, and takes one step for each word. So
the work is bounded by words times places, whatever the patterns; `#.#.#.#.a` and a long key cannot
make it explode, as trying each way a `#` could stretch would (RabbitMQ had a CVE for that).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable


class _Node:
    __slots__ = ("any_words", "children", "one_word", "stays", "targets")

    def __init__(self, *, stays: bool = False) -> None:
        self.children: dict[str, _Node] = {}
        self.one_word: _Node | None = None  # after `*`
        self.any_words: _Node | None = None  # after `#`
        self.stays = stays  # this is the place after a `#`, which takes any number of words
        self.targets: dict[Hashable, int] = {}  # how many bindings lead there

    @property
    def is_empty(self) -> bool:
        return not (self.targets or self.children or self.one_word or self.any_words)


class TopicTrie:
    """Targets by pattern."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, pattern: str, target: Hashable) -> None:
        node = self._root
        for word in _words(pattern):
            node = _child(node, word)
        node.targets[target] = node.targets.get(target, 0) + 1

    def remove(self, pattern: str, target: Hashable) -> None:
        """Take back one `add`; branches that lead nowhere any more are cut."""
        way: list[tuple[_Node, str]] = []
        node = self._root
        for word in _words(pattern):
            way.append((node, word))
            node = _child(node, word)
        count = node.targets.get(target, 0)
        if count > 1:
            node.targets[target] = count - 1
        else:
            node.targets.pop(target, None)
        for parent, word in reversed(way):
            if not _child(parent, word).is_empty:
                return
            if word == "*":
                parent.one_word = None
            elif word == "#":
                parent.any_words = None
            else:
                del parent.children[word]

    def match(self, routing_key: str) -> Iterable[Hashable]:
        """The targets of every pattern that fits, each once."""
        places = _closure([self._root])
        for word in _words(routing_key):
            step: list[_Node] = []
            for node in places:
                if node.stays:
                    step.append(node)
                child = node.children.get(word)
                if child is not None:
                    step.append(child)
                if node.one_word is not None:
                    step.append(node.one_word)
            if not step:
                return ()
            places = _closure(step)
        found: dict[Hashable, None] = {}
        for node in places:
            found.update(dict.fromkeys(node.targets))
        return found


def _words(text: str) -> list[str]:
    """The words of a pattern or key. An empty one has none, so that `*` does not fit it."""
    return text.split(".") if text else []


def _child(node: _Node, word: str) -> _Node:
    if word == "*":
        if node.one_word is None:
            node.one_word = _Node()
        return node.one_word
    if word == "#":
        if node.any_words is None:
            node.any_words = _Node(stays=True)
        return node.any_words
    child = node.children.get(word)
    if child is None:
        child = node.children[word] = _Node()
    return child


def _closure(nodes: list[_Node]) -> dict[_Node, None]:
    """These places and all that are reached from them without a word, each once."""
    found = dict.fromkeys(nodes)
    waiting = list(found)
    while waiting:
        beyond = waiting.pop().any_words
        if beyond is not None and beyond not in found:
            found[beyond] = None
            waiting.append(beyond)
    return found
