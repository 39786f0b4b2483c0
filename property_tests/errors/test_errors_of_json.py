"""JSON that is not a plan: refused by the name of what is missing or off."""

import json

import pytest
import ringside as rs
from bad_calls import PLAN, refused


def broken_json(edit):
    data = json.loads(PLAN.to_json())
    edit(data)
    return lambda: rs.Plan.from_json(json.dumps(data))


def put(*path, value):
    def edit(data):
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return edit


BAD_JSON = {
    "another format": (put("format", value="onnx"), '"format": "ringside.plan"'),
    "another version": (put("version", value=2), '"version": 1'),
    "an unknown key": (put("num_head", value=4), '"num_head" of the plan is unknown', "num_heads"),
    "an unknown key of the mask": (put("mask", "left", value=1), '"left" of mask is unknown'),
    "an unknown key of a layout": (
        put("layout_k", "lengths", value=[1]),
        '"lengths" of layout_k is unknown',
        "cu_seqlens",
    ),
    "an unknown table": (put("tables", "notes", value={}), '"notes" of tables is unknown'),
    "an unknown key of a table": (
        put("tables", "homes", "cells", value=[]),
        '"cells" of table "homes" is unknown',
        "columns, rows",
    ),
    "true for a number of heads": (put("num_heads", value=True), '"num_heads" is True'),
    "true in a table": (
        put("tables", "homes", "rows", 0, 1, value=True),
        'table "homes" holds true or false; expected integers',
    ),
    "a ragged table": (
        put("tables", "homes", "rows", 0, value=[0]),
        'table "homes" has rows that are not lists of 3 integers',
    ),
    "a version that is true": (put("version", value=True), '"version": 1'),
    "no layout": (put("layout_q", value=None), '"layout_q" is None; expected a dict'),
    "heads in words": (put("num_heads", value="four"), "\"num_heads\" is 'four'; expected a int"),
    "a bad layout": (put("layout_k", "cu_seqlens", value=[1, 2]), "cu_seqlens[0]=1"),
    "an unknown alignment": (put("mask", "align", value="middle"), 'align="middle" is unknown'),
    "no table": (lambda data: data["tables"].pop("steps"), 'the table "steps" is missing'),
    "a table that is none": (
        put("tables", "steps", value=5),
        'table "steps" is 5; expected a dict',
    ),
    "other columns": (
        put("tables", "homes", "columns", value=["rank", "kv_shard", "q_shard"]),
        'table "homes" has columns',
        "expected ['rank', 'q_shard', 'kv_shard']",
    ),
    "fractions": (put("tables", "homes", "rows", 0, 1, value=0.5), "float64; expected integers"),
    "numbers beyond int32": (
        put("tables", "homes", "rows", 0, 1, value=2**31),
        'table "homes" holds a number beyond int32',
    ),
    "numbers below int32": (
        put("tables", "homes", "rows", 0, 1, value=-(2**63)),
        'table "homes" holds a number beyond int32',
    ),
    "ranks out of order": (
        put("tables", "homes", "rows", 0, 0, value=1),
        "names rank 1 where rank 0 is due",
    ),
    "steps out of order": (
        put("tables", "steps", "rows", 0, 1, value=1),
        "names step 1 of rank 0 where step 0 is due",
    ),
    "steps of a stranger": (put("tables", "steps", "rows", 0, 0, value=2), "names rank 2 of 2"),
    "an unknown kind": (
        put("tables", "steps", "rows", 0, 2, value=4),
        "exchange kind 4",
        "known are 0 to 3",
    ),
    "a message of a stranger": (put("tables", "messages", "rows", 0, 0, value=2), "rank 2 of 2"),
    "a message of no step": (put("tables", "messages", "rows", 0, 1, value=9), "names step 9"),
    "an unknown direction": (
        put("tables", "messages", "rows", 0, 2, value=2),
        "direction 2",
        "both are 0 or 1",
    ),
    "shards out of order": (
        put("tables", "shards", "rows", 0, 0, value=2),
        'table "shards" names entry 2 after entry 0',
    ),
}


@pytest.mark.parametrize("edit", BAD_JSON.values(), ids=BAD_JSON.keys())
def test_json_that_is_not_a_plan_is_refused_by_name(edit):
    edit, *pieces = edit
    refused(broken_json(edit), *pieces)


DOUBLED = [
    ('"comm": "p2p"', '"comm": "a2a", "comm": "p2p"', "comm"),
    ('"chunk_size": 0', '"chunk_size": 0, "chunk_size": 0', "chunk_size"),
    ('"layout_k": {', '"layout_k": {"cu_seqlens": [0, 1], ', "cu_seqlens"),
    ('"homes": {', '"homes": {"rows": [], ', "rows"),
    ('"tables": {', '"tables": {"homes": {}, ', "homes"),
]


@pytest.mark.parametrize(("once", "twice", "key"), DOUBLED, ids=[key for *_, key in DOUBLED])
def test_a_key_that_stands_twice_is_refused_by_name(once, twice, key):
    """Readers of JSON differ in which of the two they take; ours would have taken the last."""
    text = PLAN.to_json()
    assert text.count(once) == 1
    refused(
        lambda: rs.Plan.from_json(text.replace(once, twice)),
        f'"{key}" stands 2 times in one object',
        "expected once",
    )


@pytest.mark.parametrize("text", ["", "{", "null", "[]", "{}", '"plan"', "[" * 100_000])
def test_text_that_is_not_the_json_of_a_plan_is_refused(text):
    with pytest.raises(ValueError, match=r"not JSON: .*to_json\(\)|ringside\.plan"):
        rs.Plan.from_json(text)
