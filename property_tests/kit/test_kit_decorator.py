"""A test of one decorator: what it draws, what it says."""

import itertools

import pytest
import ringside as rs
import torch
from hypothesis import given, settings
from ringside.testing import Case, Disagreement, adapters, check_attention, fuzz
from ringside.testing._fuzz import LACKS, _cases
from ringside.testing.junit import Result, write_junit


def right(q, k, v, *, layout_q, layout_k, mask, softmax_scale):
    return rs.attention(q, k, v, layout_q, layout_k, mask=mask, softmax_scale=softmax_scale)


def test_a_right_one_passes_and_a_wrong_one_is_shrunk():
    fuzz(examples=10)(right)()

    @fuzz(examples=60)
    def full(q, k, v, *, layout_q, layout_k, mask, softmax_scale):
        return right(q, k, v, layout_q=layout_q, layout_k=layout_k, mask=rs.Mask.full(),
                     softmax_scale=softmax_scale)  # fmt: skip

    assert full.__name__ == "full"
    with pytest.raises(Disagreement, match="read key"):
        full()


def test_context_parallel_ones_too():
    def gathered(qs, ks, vs, *, plan, softmax_scale):
        whole = plan.unshard(qs), plan.unshard(ks, side="k"), plan.unshard(vs, side="k")
        out, _ = plan.attention(*whole, softmax_scale=softmax_scale)
        return [plan.shard(out, rank) for rank in range(plan.cp_size)]

    fuzz(examples=10, context_parallel=True, dtype="float64")(gathered)()


def test_what_refuses_everything_was_not_checked():
    @fuzz(examples=3)
    def refusing(*arguments, **keywords):
        raise NotImplementedError("no kernel here")

    with pytest.raises(AssertionError, match=r"nothing was checked: \['no kernel here'\]"):
        refusing()


@pytest.mark.parametrize("lacks", [{"padings": "typing"}, {"padding": ""}])
def test_what_it_lacks_has_a_known_name_and_a_reason(lacks):
    with pytest.raises(ValueError, match=r"lacks=.*; expected one of padding, .*Say why"):
        fuzz(lacks=lacks)


HAS = {
    "padding": lambda c: c.layout_q.num_rows > int(c.layout_q.lengths.sum()),
    "windows": lambda c: max(c.mask.window_size) > 0 or c.mask.window_size[0] == 0,
    "chunks": lambda c: c.mask.chunk_size > 0,
    "bottom_right": lambda c: c.mask.align == "bottom_right",
    "grouped_heads": lambda c: c.num_heads != c.num_kv_heads,
    "other_keys": lambda c: c.layout_k is not None,
    "empty": lambda c: any(c.layout_q.lengths == 0),
    "scales": lambda c: c.softmax_scale is not None and c.softmax_scale <= 0,
}


@pytest.mark.parametrize("name", LACKS)
def test_what_it_lacks_is_not_drawn_and_else_it_is(name):
    def of(lacks):
        found = []

        @settings(max_examples=150, database=None)
        @given(_cases("float32", lacks, True))
        def draw(case):
            found.append(HAS[name](case))

        draw()
        return any(found)

    assert of(set()) and not of({name})


def test_the_example_of_the_readme_holds_with_the_attention_of_torch():
    """Causal, document by document: at a scale of 0 or below torch gives NaN, or sees too much."""

    @adapters.TorchFunction
    def mine(q, k, v, *, layout_q, layout_k, mask, softmax_scale):
        attend = torch.nn.functional.scaled_dot_product_attention
        causal = mask.window_size[1] == 0
        documents = [
            attend(
                *(x[a:b].transpose(0, 1)[None] for x in (q, k, v)),
                is_causal=causal, scale=softmax_scale, enable_gqa=True,
            )[0].transpose(0, 1)
            for a, b in itertools.pairwise(layout_q.cu_seqlens.tolist())
        ]  # fmt: skip
        return torch.cat(documents) if documents else q.new_zeros(*q.shape[:2], v.shape[2])

    reasons = ("padding", "windows", "chunks", "bottom_right", "other_keys", "empty")
    lacks = dict.fromkeys(reasons, "one call a document")
    fuzz(examples=100, lacks={**lacks, "scales": "NaN below 0"})(mine)()
    layout = rs.PackedLayout.from_lengths([2, 5])
    for scale in (0.0, -0.5):  # heads of one dimension go by another kernel than those of two
        case = Case(layout, head_dim=4, head_dim_v=4, softmax_scale=scale)
        with pytest.raises(Disagreement, match=rf"softmax_scale={scale}"):
            check_attention(mine, case)


def test_junit_counts_and_holds_what_a_package_prints(tmp_path):
    from xml.etree import ElementTree

    path = tmp_path / "results.xml"
    results = [Result("a", "good", 1.5), Result("a", "bad", failure="wrong\x1b[0m\nat row 1 <&>")]
    write_junit(path, [*results, Result("b", "left out", skipped="no GPU")])
    suites = ElementTree.parse(path).getroot()
    assert [(s.get("name"), s.get("tests"), s.get("failures")) for s in suites] == [
        ("a", "2", "1"),
        ("b", "1", "0"),
    ]
    assert suites[0][1].find("failure").text == "wrong[0m\nat row 1 <&>"
    assert suites[1][0].find("skipped").get("message") == "no GPU"


def test_lacks_without_reasons_are_refused():
    with pytest.raises(TypeError, match="lacks is a list; expected a dict of names") as refusal:
        fuzz(lacks=["windows"])
    assert 'Pass lacks={"windows": "why"}' in str(refusal.value)
