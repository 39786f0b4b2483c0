"""Lengths in the forms in which people have them."""

import json

import numpy as np
import pytest
import ringside as rs
from hypothesis import given
from hypothesis import strategies as st

LENGTHS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=8)


def spellings(lengths):
    """The same lengths, written in every form."""
    rows = [str(n) for n in lengths]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).tolist()
    yield ",".join(rows)
    yield "  " + " ".join(rows) + "\n"
    yield "# of yesterday\n\n" + "\n".join(rows)
    yield "tokens\n" + "\n".join(rows) + "\n"
    yield "my lengths\r\n" + "\r\n".join(rows) + "\r\n"
    yield "name,Length,source\n" + "".join(f'"a, {i}", {n} ,web\n' for i, n in enumerate(rows))
    yield json.dumps(lengths)
    yield json.dumps({"lengths": lengths, "tokenizer": 3})
    if offsets[-1] < 2**31:
        yield json.dumps({"cu_seqlens": offsets})
        yield "cu_seqlens\n" + "\n".join(map(str, offsets))
        yield "cu_seqlens,id\n" + "".join(f"{n},7\n" for n in offsets)


@given(LENGTHS)
def test_every_form_of_the_same_lengths_is_read_alike(lengths):
    for text in spellings(lengths):
        read = rs.lengths.parse(text)
        assert read.dtype == np.int32 and read.tolist() == lengths, text


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=8))
def test_offsets_are_read_where_they_are_said_to_be(lengths):
    offsets = [0, *np.cumsum(lengths).tolist()]
    for text in (json.dumps(offsets), "\n".join(map(str, offsets)), " ".join(map(str, offsets))):
        assert rs.lengths.parse(text, cu_seqlens=True).tolist() == lengths


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "mine: got nothing; expected lengths"),
        ("# all\n# comments", "mine: got nothing; expected lengths"),
        ("512\n12.5\n", "mine, line 2: 12.5; expected an integer, 0 to 2147483647"),
        ("512, x, 3", "mine, line 1: x; expected an integer"),
        ("tokens\n5\n-1\n", "mine, line 3: -1; expected an integer"),
        ("tokens\n5\n\n2147483648\n", "mine, line 4: 2147483648; expected an integer"),
        ("0,512\n1,96\n", "mine, line 1: 2 numbers; expected one a line, all of them in one line"),
        ("id,count\n1,2\n", "mine, line 1: columns 'id', 'count'; expected one of them to be"),
        ("tokens,length\n1,2\n", "mine, line 1: columns 'tokens', 'length'; expected one of"),
        ("id,tokens\n1,2\n3\n", "mine, line 3: 1 cells; expected 2, as in mine, line 1"),
        ("12.5\n", "mine, line 1: '12.5'; expected a name of a column, or an integer"),
        ("[1, 2", "mine: Expecting ',' delimiter"),
        ("[1, 2.0]", "mine, entry 1: 2.0; expected an integer"),
        ("[1, true]", "mine, entry 1: True; expected an integer"),
        ('["1"]', "mine, entry 0: '1'; expected an integer"),
        ('{"lengths": 3}', "mine: got 3; expected a list of integers"),
        ('{"documents": [3]}', "mine: an object with 'documents'; expected one list"),
        ('{"lengths": [3], "tokens": [3]}', "expected one list of integers"),
        ("cu_seqlens\n0\n7\n5\n", "mine, line 4: 5 after 7; expected offsets that never fall"),
        ("cu_seqlens\n1\n7\n", "mine, line 2: 1; expected offsets that begin with 0"),
        ('{"cu_seqlens": []}', "mine: got nothing; expected offsets that begin with 0"),
        ("5,,6", "mine, line 1: an empty cell; expected an integer"),
        ("id,tokens\n1,\n2,5\n", "mine, line 2: 1 cells; expected 2, as in mine, line 1"),
        ("null", "mine, line 1: null; expected lengths, here or below that name"),
        ("[" * 100_000, "mine: lists or objects lie too deep in each other; expected JSON"),
        ('{"lengths": [1], "lengths": [2]}', 'mine: "lengths" stands 2 times in one object'),
    ],
)
def test_what_is_wrong_is_named_as_it_stands(text, words):
    with pytest.raises(ValueError) as error:
        rs.lengths.parse(text, source="mine")
    assert words in str(error.value)


def test_a_negative_length_is_not_packed():
    with pytest.raises(ValueError, match=r"lengths\[1\]=-3; expected numbers of tokens, from 0"):
        rs.lengths.pack([5, -3], 2)


def test_a_file_is_read_in_any_form(tmp_path):
    file = tmp_path / "mine.json"
    file.write_text("\ufeff[0, 5, 5, 9]", encoding="utf-8")
    assert rs.lengths.load(file, cu_seqlens=True).tolist() == [5, 0, 4]
