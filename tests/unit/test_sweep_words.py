"""Words with several values, cut into one word a value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_multinode.errors import ConfigError
from hpc_multinode.overrides import prepare_override
from hpc_multinode.sweep_words import expand_word


def _values(word: str) -> list[str]:
    return [one.partition("=")[2] for one in expand_word(word).words]


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("nodes=1,2", ["1", "2"]),
        ("work.kwargs.lr=0.1,1e-3", ["0.1", "1e-3"]),
        ("nodes=range(1,4)", ["1", "2", "3"]),
        ("work.kwargs.x=choice(a,'b,c',3)", ["a", "'b,c'", "3"]),
        ("work.kwargs.x=sort(3,1,2)", ["1", "2", "3"]),
        ("work.kwargs.x=tag(t,choice(1,2))", ["1", "2"]),
        ("strategy=lite,lightning", ["lite", "lightning"]),
        ("work.args=[1,2],[3]", ["[1,2]", "[3]"]),
        ("work.kwargs.x={a:1,b:2},{a:3}", ["{a:1,b:2}", "{a:3}"]),
        ("work.kwargs.x='a,b',c", ["'a,b'", "c"]),
        ('name="a,b",c', ['"a,b"', "c"]),
        ("work.kwargs.x=it's,that's", ["it's", "that's"]),
        ("work.kwargs.x=a\\,b,c", ["a\\,b", "c"]),
        ("resources.nodelist=node[01-03],node07", ["node[01-03]", "node07"]),
        ("work.target=a b.py:X,c.py:Y", ["a b.py:X", "c.py:Y"]),
        ("work.kwargs.x=${nodes},2", ["${nodes}", "2"]),
        ("name=choice(a,'b,c')", ["a", "'b,c'"]),
        ("name=choice(0123,1e3)", ["0123", "1e3"]),
        ("+work.kwargs.x=null,1", ["null", "1"]),
    ],
)
def test_a_word_with_several_values_is_cut(word: str, values: list[str]) -> None:
    """At the commas outside of quotes and brackets, or as Hydra's functions say."""
    assert _values(word) == values
    assert expand_word(word).is_swept


@pytest.mark.parametrize(
    "word",
    ["nodes=2", "name=", "~name", "work.args=[1,2]", "work.kwargs.x='a,b'", "name=a(b,c", "work.kwargs.x={a:1,b:2}",
     "work.kwargs.x=int(3)", "work.kwargs.f=g(x,y)"],
)  # fmt: skip
def test_a_word_with_one_value_stays(word: str) -> None:
    """It is the same in all points."""
    assert expand_word(word) == ((word,), False)


def test_a_single_value_may_be_swept() -> None:
    """``choice(a)`` is a value to go through, and tells the point's name."""
    assert expand_word("nodes=choice(2)") == (("nodes=2",), True)


@pytest.mark.parametrize("word", ["nodes=1,", "nodes=1,,2", "name=,a", "name=choice()"])
def test_an_empty_value_is_refused(word: str) -> None:
    """A comma too many is no point without a value."""
    with pytest.raises(ConfigError, match="one of the values of a sweep is empty") as caught:
        expand_word(word)
    assert caught.value.found == word
    assert "write an empty text as ''" in caught.value.fix


def test_values_that_cannot_be_counted_are_refused() -> None:
    """An interval has no points."""
    with pytest.raises(ConfigError, match="cannot be counted") as caught:
        expand_word("nodes=interval(0,1)")
    assert (caught.value.found, caught.value.fix) == ("nodes=interval(0,1)", "nodes=range(1,4)")


@pytest.mark.parametrize("word", ["nodes=range(a)", "strategy=glob(*)", "nodes=sort()"])
def test_functions_that_hydra_does_not_take_are_told(word: str) -> None:
    """With the word and Hydra's reason."""
    with pytest.raises(ConfigError, match="the values of a sweep cannot be read") as caught:
        expand_word(word)
    assert caught.value.found.startswith(f"{word}: ")


_LETTERS = st.characters(exclude_characters="\"'\\,()[]{}", exclude_categories=["C", "Z"])


@given(st.lists(st.text(_LETTERS, min_size=1), min_size=2))
def test_texts_come_out_letter_by_letter(texts: list[str]) -> None:
    """Whatever stands between commas in the value of a text is one of its values."""
    words = expand_word(f"name={','.join(texts)}").words
    assert list(words) == [f"name={text}" for text in texts]
    assert all(prepare_override(word).startswith("name=") for word in words)
