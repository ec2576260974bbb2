"""Patterns of topic names: right, bounded, and clear about what they refuse."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidRegularExpression
from penstock.model.pattern import Pattern, pattern


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        ("orders", ["orders"], ["order", "orders2", "xorders"]),
        ("orders.*", ["orders", "orders-eu"], ["my-orders"]),
        ("^orders$", ["orders"], ["orders2"]),
        ("a|b+", ["a", "b", "bbb"], ["ab", ""]),
        ("(eu|us)-[a-f0-9]{2,3}", ["eu-a0", "us-fff"], ["eu-a", "us-ffff", "uk-aa"]),
        ("x{0}y", ["y"], ["xy"]),
        ("x{2,}", ["xx", "xxxxx"], ["x"]),
        ("[^.]+", ["abc"], ["a.b"]),
        (r"\d+\.\w*", ["12.a_b", "1."], ["a.b"]),
        (r"\Qa.b*\E+c?", ["a.b*", "a.b**c"], ["aXb*"]),
        ("(?i)ORDERS", ["orders", "OrDeRs"], ["orderz"]),
        ("(?i:A)b", ["ab", "Ab"], ["aB"]),
        ("(?P<region>eu)-(?:x)", ["eu-x"], ["eu-"]),
        ("[[:alpha:]]+[[:^digit:]]", ["abc-"], ["abc1"]),
        (r"[\w.-]+", ["a.b-c_1"], ["a b"]),
        (r"\x41\x{42}", ["AB"], ["ab"]),
        (r"a\b.*", ["a-b", "a"], ["ab"]),
        ("", [""], ["a"]),
        ("(a*)*b", ["b", "aab"], ["a"]),
        ("[]a]+", ["]a]"], ["b"]),
        ("[a-]+", ["a-a"], ["b"]),
        ("x{,2}", ["x{,2}"], ["xx"]),
        ("a+?b??", ["aa", "aab"], ["b"]),
    ],
)
def test_a_pattern_matches_whole_names(text: str, yes: list[str], no: list[str]) -> None:
    compiled = Pattern(text)
    assert [name for name in yes if not compiled.matches(name)] == []
    assert [name for name in no if compiled.matches(name)] == []


@pytest.mark.parametrize(
    "text",
    [
        "(", ")", "a)", "[a", "*a", "a**", "a{2,1}", "a{2000}", r"(a)\1", "(?=a)", "(?<!a)", "\\",
        "[z-a]", r"\x", r"\p{L}", "[[:nope:]]", "((a{900}){900}){900}", "a" * 2000, "(" * 500,
    ],
)  # fmt: skip
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        pattern(text)


@pytest.mark.parametrize(
    "text", ["(a+)+$", "(a|aa)+$", "(a|a)*b", "(.*)(.*)(.*)(.*)(.*)x", "(a?){80}a{80}"]
)
def test_patterns_that_explode_elsewhere_do_not_explode_here(text: str) -> None:
    compiled = Pattern(text)
    began = time.perf_counter()
    compiled.matches("a" * 248 + "!")
    assert time.perf_counter() - began < 2


_ATOMS = st.sampled_from(["a", "b", "-", ".", "[ab]", "[^a]", r"\d", r"\.", "^", "$", r"\b", "c1"])
_TEXTS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds("(?:{}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}"])),
    ),
    max_leaves=8,
)


@given(_TEXTS, st.text("abc1-.", max_size=8))
def test_a_pattern_agrees_with_pythons_on_what_both_can_say(text: str, name: str) -> None:
    expected = re.compile(text, re.ASCII).fullmatch(name) is not None
    assert Pattern(text).matches(name) == expected
