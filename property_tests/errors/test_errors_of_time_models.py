"""Time models that are not: got, expected, and what to do; nothing is computed, nothing written."""

import copy
import json

import pytest
import ringside as rs
from ringside._time import model_json

PLAN = rs.plan(rs.PackedLayout([0, 256]), cp_size=4, num_heads=4)
GOOD = model_json.to_dict(rs.TimeModel.preset("h200"))


def changed(*place, to):
    """A good model with something else there; to=None deletes it."""
    data = copy.deepcopy(GOOD)
    *way, last = place
    at = data
    for name in way:
        at = at[name]
    if to is None:
        del at[last]
    else:
        at[last] = to
    return data


KERNEL, LINKS = ("kernels", 0), ("links", 0)
HOP = (*LINKS, "us_of_bytes", "hop")
RISING = "expected bytes and microseconds that rise from point to point. Sort it"
WRONG = [
    (changed("name", to=None), "has no 'name'; expected one. Add it"),
    (changed("speed", to=3), "has 'speed'; expected no such field. Remove it"),
    (changed("ringside_time_model", to=2), "ringside_time_model is 2; expected 1"),
    (changed("multiprocessors", to=0), "multiprocessors is 0; expected an integer from 1"),
    (changed("multiprocessors", to=True), "multiprocessors is True; expected an integer"),
    (changed("overlap", to="no"), "overlap is 'no'; expected true or false"),
    (changed("host_us_per_step", to=-1), "host_us_per_step is -1; expected a finite number from 0"),
    (changed("host_us_per_step", to=float("nan")), "host_us_per_step is nan; expected a finite"),
    (changed("exchange_multiprocessors", to=132), "is 132; expected fewer than the 132"),
    (changed("kernels", to=[]), "kernels is []; expected a list of at least one"),
    (changed(*KERNEL, "dtype", to="int8"), "kernels[0]: dtype is 'int8'; expected one of bfloat16"),
    (changed(*KERNEL, "block_size", to=[128]), "block_size is [128]; expected [query rows, key"),
    (changed(*KERNEL, "forward", "us_per_block", to=None), "forward has no 'us_per_block'"),
    (changed(*KERNEL, "forward", "us_per_block", to="2"), "us_per_block is '2'; expected a finite"),
    (changed(*HOP, to=[[1, 2.0], [1, 3.0]]), RISING),
    (changed(*HOP, to=[[1, 3.0], [2, 2.0]]), RISING),
    (changed(*HOP, to=[[2, 2.0], [1, 3.0]]), RISING),
    (changed(*HOP, to=[]), "hop is []; expected a list of [bytes, microseconds], at least one"),
    (changed(*HOP, to=[[1, 2, 3]]), "expected a list of [bytes, microseconds]"),
    (changed(*HOP, to=[[0, 2]]), "of finite numbers above 0"),
    (changed(*LINKS, "us_of_bytes", "carrier", to=[[1, 1]]), "has 'carrier'; expected no such"),
    (changed(*LINKS, "ranks", to=0), "links[0]: ranks is 0; expected an integer from 1, or null"),
    (changed("links", 1, "ranks", to=4), "links[1]: ranks is 4; expected more than the 8"),
    (
        changed("memory", "gb_per_s", to=0),
        "memory: gb_per_s is 0; expected a finite number above 0",
    ),
    (
        changed("memory", "per_byte_received", to=3),
        "per_byte_received is a int; expected an object",
    ),
]


@pytest.mark.parametrize(("data", "words"), WRONG, ids=[words for _, words in WRONG])
def test_a_model_that_is_none_is_refused_by_its_place(data, words, tmp_path):
    with pytest.raises(rs.InvalidArgument) as told:
        PLAN.timeline(data)
    assert words in str(told.value)
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(data))
    for call in (rs.TimeModel.load, PLAN.timeline):
        with pytest.raises(rs.InvalidArgument) as told:
            call(path)
        assert words in str(told.value) and str(path) in str(told.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "is not JSON: lists or objects lie too deep in each other"),
        ('{"name": "a", "name": "b"}', 'is not JSON: "name" stands 2 times in one object'),
        (
            json.dumps(GOOD | {"host_us_per_step": 10**400}),
            "host_us_per_step is 1" + 400 * "0" + "; expected a finite number from 0",
        ),
    ],
    ids=["deep", "twice", "large"],
)
def test_hostile_text_is_refused_by_its_place(text, words, tmp_path):
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(rs.InvalidArgument) as told:
        rs.TimeModel.load(tmp_path / "bad.json")
    assert words in str(told.value) and "bad.json" in str(told.value)


def test_the_good_model_is_good():
    assert PLAN.timeline(GOOD).total_us == PLAN.timeline("h200").total_us


def test_a_missing_file_and_one_of_words_are_refused(tmp_path):
    with pytest.raises(rs.InvalidArgument, match=r"none.json cannot be read.*expected"):
        rs.TimeModel.load(tmp_path / "none.json")
    (tmp_path / "words.json").write_text("words")
    with pytest.raises(rs.InvalidArgument, match="is not JSON"):
        rs.TimeModel.load(tmp_path / "words.json")
    with pytest.raises(rs.InvalidArgument, match="cannot be read"):
        PLAN.timeline("nowhere/at/all.json")


def test_an_unknown_preset_names_those_there_are():
    for call in (rs.TimeModel.preset, PLAN.timeline, lambda name: PLAN.cost(model=name)):
        with pytest.raises(rs.InvalidArgument, match="expected one of h200, h200-mma"):
            call("h300")


def unsupported(call, words):
    with pytest.raises(rs.Unsupported) as told:
        call()
    assert words in str(told.value), told.value


def test_what_a_model_lacks_is_named_with_what_it_has():
    unsupported(
        lambda: PLAN.timeline("h200-mma", head_dim=96),
        "dtype=bfloat16, head_dim=96: model h200-mma has no such kernel; expected one of bfloat16 "
        "of 128, bfloat16 of 64",
    )
    for call in (
        lambda: PLAN.timeline("h200", dtype="float32"),
        lambda: PLAN.cost(model="h200", dtype="float32", bytes_per_element=4),
        lambda: rs.estimate(PLAN.layout_q, cp_size=2, model="h200", dtype="float32"),
    ):
        unsupported(call, "dtype=float32, head_dim=128: model h200 has no such kernel")
    unsupported(lambda: PLAN.timeline("h200", head_dim_v=64), "head_dim=128/64")
    unsupported(
        lambda: PLAN.timeline(changed(*HOP, to=None)),
        "exchange 'hop': model h200 has no table of it among its links of 8 ranks; it has all_g",
    )
    near = copy.deepcopy(GOOD)
    near["links"] = [{**GOOD["links"][0], "ranks": 2}]
    unsupported(lambda: PLAN.timeline(near), "4 ranks: model h200 has links among 2 ranks only")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"block_size": (64, 64)}, "block_size=(64, 64); expected (128, 128), of which model h200"),
        ({"bytes_per_element": 4}, "bytes_per_element=4; expected 2, the size of bfloat16"),
        ({"dtype": "int8"}, "dtype='int8' is unknown; expected one of bfloat16, float16, float32"),
    ],
)
def test_counts_that_a_model_cannot_time_are_refused(more, words):
    for call in (PLAN.cost, lambda **x: rs.estimate(PLAN.layout_q, cp_size=4, **x)):
        with pytest.raises(rs.InvalidArgument) as told:
            call(model="h200", **more)
        assert words in str(told.value)


def test_a_direction_is_one_of_two():
    with pytest.raises(rs.InvalidArgument, match="direction='sideways' is unknown; expected forw"):
        PLAN.timeline("h200", direction="sideways")


@pytest.mark.parametrize("model", ["measured", "h200"])
@pytest.mark.parametrize("name", ["head_dim", "head_dim_v"])
def test_a_head_has_a_size(model, name):
    for size in (0, -3):
        with pytest.raises(ValueError, match=rf"^{name}={size}; expected .* at least 1\. Leave"):
            PLAN.timeline(model, **{name: size})
