"""Where messages go: kinds of exchanges, bindings between them, alternates, circles."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import PreconditionFailed
from penstock.machines.exchange import Exchange, Exchanges
from penstock.machines.topic_trie import TopicTrie
from penstock.model.binding import Binding, Destination


class Content:
    """A message with headers and properties."""

    def __init__(self, headers: Mapping[str, object] | None = None, **properties: object) -> None:
        self._headers = headers or {}
        self._properties = properties

    def headers(self) -> Mapping[str, object]:
        return self._headers

    def property(self, name: str) -> object | None:
        return self._properties.get(name)


PLAIN = Content()
QUEUES = {"q1", "q2", "q3"}


def exchanges(**kinds: str | tuple[str, dict[str, object]]) -> Exchanges:
    made = Exchanges(QUEUES.__contains__)
    for name, kind in kinds.items():
        text, arguments = kind if isinstance(kind, tuple) else (kind, {})
        made.add(Exchange(name, text, arguments=arguments))
    return made


def bind(
    where: Exchanges, source: str, target: str, key: str = "", to: str = "queue", **arguments: Any
) -> Binding:
    names = {name.replace("_", "-"): value for name, value in arguments.items()}
    binding = Binding.of(source, Destination(target, to == "exchange"), key, names)
    where.bind(binding)
    return binding


def routed(where: Exchanges, exchange: str, key: str, content: Content = PLAIN) -> list[str]:
    return sorted(where.route(exchange, key, content).queues)


# --- kinds ----------------------------------------------------------------------------------------


def test_the_default_exchange_leads_to_the_queue_that_the_key_names() -> None:
    where = exchanges()
    assert routed(where, "", "q1") == ["q1"]
    assert routed(where, "", "nobody") == []


def test_direct_goes_by_equal_key() -> None:
    where = exchanges(x="direct")
    bind(where, "x", "q1", "a")
    bind(where, "x", "q2", "a")
    bind(where, "x", "q3", "b")
    assert routed(where, "x", "a") == ["q1", "q2"]
    assert routed(where, "x", "A") == []


def test_fanout_goes_to_all_once() -> None:
    where = exchanges(x="fanout")
    bind(where, "x", "q1", "a")
    bind(where, "x", "q1", "b")
    bind(where, "x", "q2")
    assert routed(where, "x", "whatever") == ["q1", "q2"]


@pytest.mark.parametrize(
    ("pattern", "key", "fits"),
    [
        ("a.b", "a.b", True),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("a.#", "a", True),
        ("a.#", "a.b.c", True),
        ("#", "", True),
        ("#", "a.b", True),
        ("*", "", False),
        ("#.c", "a.b.c", True),
        ("#.c", "c", True),
        ("#.c", "c.d", False),
        ("a.#.#.b", "a.b", True),
        ("a.#.*.b", "a.b", False),
        ("a.#.*.b", "a.x.b", True),
        ("*.*", "..", False),
        ("*.*", ".", True),
        ("", "", True),
        ("", "a", False),
    ],
)
def test_topic_patterns(pattern: str, key: str, fits: bool) -> None:
    where = exchanges(x="topic")
    bind(where, "x", "q1", pattern)
    assert bool(routed(where, "x", key)) is fits


WORDS = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=6)
KEYS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=6)


def fits(pattern: list[str], words: list[str]) -> bool:
    """What the specification says, taken literally."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(fits(pattern[1:], words[skip:]) for skip in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and fits(pattern[1:], words[1:])


@given(st.lists(WORDS, max_size=8), KEYS)
def test_the_tree_finds_what_each_pattern_alone_would(
    patterns: list[list[str]], key: list[str]
) -> None:
    trie = TopicTrie()
    for number, pattern in enumerate(patterns):
        trie.add(".".join(pattern), number)
    expected = {n for n, pattern in enumerate(patterns) if fits(pattern, key)}
    assert set(trie.match(".".join(key))) == expected
    for number, pattern in enumerate(patterns):
        trie.remove(".".join(pattern), number)
    assert not list(trie.match(".".join(key)))
    assert trie._root.is_empty, "branches that lead nowhere are cut"


def test_many_wildcards_in_a_row_do_not_explode() -> None:
    trie = TopicTrie()
    for length in range(1, 60):
        trie.add(".".join(["#"] * length + ["x"]), length)
    begin = time.process_time()
    assert not list(trie.match(".".join(["a"] * 120)))
    assert time.process_time() - begin < 0.5


def test_headers_all_and_any() -> None:
    where = exchanges(x="headers")
    bind(where, "x", "q1", a=1, b="two")
    bind(where, "x", "q2", x_match="any", a=1, b="two")
    assert routed(where, "x", "", Content({"a": 1, "b": "two", "c": 0})) == ["q1", "q2"]
    assert routed(where, "x", "", Content({"a": 1})) == ["q2"]
    assert routed(where, "x", "", Content({"a": True})) == [], "true is not the number one"
    assert routed(where, "x", "", Content({})) == []


def test_headers_that_begin_with_x_count_only_when_asked_for() -> None:
    where = exchanges(x="headers")
    bind(where, "x", "q1", x_kind="k")
    bind(where, "x", "q2", x_match="all-with-x", x_kind="k")
    bind(where, "x", "q3", x_match="any-with-x", x_kind="k", y=1)
    assert routed(where, "x", "", Content({"x-kind": "k"})) == ["q1", "q2", "q3"]
    assert routed(where, "x", "", Content({"x-kind": "other"})) == ["q1"]


def test_a_header_without_a_value_asks_only_for_presence() -> None:
    where = exchanges(x="headers")
    bind(where, "x", "q1", a=None)
    assert routed(where, "x", "", Content({"a": "anything"})) == ["q1"]
    assert routed(where, "x", "", Content({"b": 1})) == []


def test_a_wrong_x_match_is_refused() -> None:
    where = exchanges(x="headers")
    with pytest.raises(PreconditionFailed, match="x-match"):
        bind(where, "x", "q1", x_match="some")


@pytest.mark.timeout(60)
def test_a_heavy_binding_is_made_in_a_moment() -> None:
    where = exchanges(x="x-consistent-hash")
    where.bind(Binding.of("x", Destination("q1"), "10000", {}))
    assert where.route("x", "key", PLAIN).queues == ("q1",)


def test_the_hash_spreads_by_weight_and_moves_little() -> None:
    where = exchanges(x="x-consistent-hash")
    bind(where, "x", "q1", "10")
    bind(where, "x", "q2", "20")
    keys = [f"key-{number}" for number in range(9000)]
    before = {key: routed(where, "x", key)[0] for key in keys}
    shares = Counter(before.values())
    assert 0.75 < shares["q2"] / (2 * shares["q1"]) < 1.33
    bind(where, "x", "q3", "10")
    moved = [key for key in keys if routed(where, "x", key)[0] != before[key]]
    assert all(routed(where, "x", key) == ["q3"] for key in moved)
    assert len(moved) < 0.35 * len(keys)


def test_the_hash_can_be_that_of_a_header_or_property() -> None:
    where = exchanges(
        h=("x-consistent-hash", {"hash-header": "user"}),
        p=("x-consistent-hash", {"hash-property": "message_id"}),
    )
    for name in ("h", "p"):
        bind(where, name, "q1", "1")
        bind(where, name, "q2", "1")
    users = {tuple(routed(where, "h", str(n), Content({"user": "u1"}))) for n in range(50)}
    assert len(users) == 1
    ids = {tuple(routed(where, "p", "", Content(message_id=str(n)))) for n in range(50)}
    assert ids == {("q1",), ("q2",)}
    with pytest.raises(PreconditionFailed, match="weight"):
        bind(where, "h", "q3", "heavy")


def test_a_delayed_exchange_routes_as_the_kind_inside_it_and_says_so() -> None:
    where = exchanges(x=("x-delayed-message", {"x-delayed-type": "topic"}), y="fanout")
    bind(where, "x", "q1", "a.#")
    bind(where, "y", "x", to="exchange")
    assert where.route("x", "a.b", PLAIN)[:3] == (("q1",), True, None)
    assert where.route("y", "a.b", PLAIN).delayed
    with pytest.raises(PreconditionFailed, match="x-delayed-type"):
        Exchange("z", "x-delayed-message", arguments={})


def test_an_exchange_that_deduplicates_says_so() -> None:
    where = exchanges(x="x-message-deduplication", y=("direct", {"x-message-deduplication": True}))
    bind(where, "x", "q1")
    assert where.route("x", "", PLAIN).deduplicated == "x"
    assert where.route("y", "", PLAIN).deduplicated == "y"


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(PreconditionFailed, match="unknown exchange type 'nope'"):
        Exchange("z", "nope", arguments={})


# --- several exchanges ----------------------------------------------------------------------------


def test_circles_of_exchanges_end() -> None:
    where = exchanges(a="fanout", b="fanout", c="fanout")
    bind(where, "a", "b", to="exchange")
    bind(where, "b", "c", to="exchange")
    bind(where, "c", "a", to="exchange")
    bind(where, "c", "q1")
    bind(where, "a", "q1")
    assert routed(where, "b", "k") == ["q1"]


def test_what_matches_nothing_goes_to_the_alternate_exchange() -> None:
    where = exchanges(
        a=("direct", {"alternate-exchange": "b"}),
        b=("direct", {"alternate-exchange": "a"}),
        c="fanout",
    )
    bind(where, "a", "q1", "known")
    assert routed(where, "a", "known") == ["q1"]
    assert routed(where, "a", "unknown") == []
    bind(where, "b", "q2", "unknown")
    assert routed(where, "a", "unknown") == ["q2"]
    assert routed(where, "missing", "unknown") == []


def test_more_routing_keys_reach_more_queues_each_once() -> None:
    where = exchanges(x="direct", t="topic")
    bind(where, "x", "q1", "a")
    bind(where, "x", "q2", "b")
    bind(where, "t", "q3", "#.b")
    assert where.route_all("x", ["a", "b", "a"], PLAIN).queues == ("q1", "q2")
    assert where.route_all("", ["q1", "q2", "nobody"], PLAIN).queues == ("q1", "q2")
    assert where.route_all("t", ["a", "a.b"], PLAIN).queues == ("q3",)


def test_a_change_is_seen_by_the_next_message() -> None:
    where = exchanges(x="direct")
    assert routed(where, "x", "a") == []
    binding = bind(where, "x", "q1", "a")
    assert routed(where, "x", "a") == ["q1"]
    assert where.bind(binding) is False
    where.unbind(binding)
    assert routed(where, "x", "a") == []
    assert where.unbind(binding) == ((), ())


def test_a_queue_that_goes_takes_its_bindings_and_auto_delete_exchanges_with_it() -> None:
    where = exchanges(top="fanout")
    where.add(Exchange("x", "fanout", auto_delete=True, arguments={}))
    to_x = bind(where, "top", "x", to="exchange")
    to_q = bind(where, "x", "q1")
    removed = where.remove_destination(Destination("q1"))
    assert removed.bindings == [to_q, to_x]
    assert removed.exchanges == ["x"]
    assert where.get("x") is None
    assert routed(where, "top", "") == []


def test_an_exchange_that_goes_takes_both_sides_of_its_bindings_with_it() -> None:
    where = exchanges(a="fanout", b="fanout")
    to_b = bind(where, "a", "b", to="exchange")
    to_q = bind(where, "b", "q1")
    assert where.remove("b") == ([to_q, to_b], ["b"])
    assert list(where.bindings_to(Destination("q1"))) == []
    assert routed(where, "a", "") == []
