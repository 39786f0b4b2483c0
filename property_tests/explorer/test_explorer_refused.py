"""A plan that verify() refuses opens at its fault, says why, and is never called proved."""

import dataclasses
import json

import numpy as np
import pytest
import ringside as rs
from hypothesis import given, settings
from hypothesis import strategies as st
from pages import BLACK, LAYOUT, plan_over
from ringside._page.data import Fault, data_of
from ringside._page.page import Page
from ringside._plan.show import _of_text, page_of_texts
from ringside.testing import strategies

RED = (176, 0, 32)
PLAN = plan_over("p2p")


def edited(plan, edit):
    """The plan's JSON after edit(tables)."""
    data = json.loads(plan.to_json())
    edit({name: table["rows"] for name, table in data["tables"].items()})
    return json.dumps(data)


def refused(reader, page, address=""):
    """Opens the page of a refused plan, which must say so."""
    (why,) = page.refusals
    reader.open(page, address)
    assert reader.text(".verdict") == f"refused: {why}"
    assert reader.run("document.querySelectorAll('.refused').length") == 1
    assert "proved" not in reader.all_text().lower()


def test_what_is_proved_says_so_and_nothing_of_refusal(reader):
    reader.open(PLAN.show())
    assert reader.text(".verdict").startswith("proved: ") and "refused" not in reader.all_text()
    assert not (reader.pixels(".map") == BLACK).all(axis=-1).any()


@pytest.mark.parametrize("comm", ["p2p", "a2a+p2p"])
def test_pairs_that_nobody_computes_are_black(reader, comm):
    plan = plan_over(comm)
    part = plan.first_steps(1)
    refused(reader, part.show(), "#head=0")
    shown = reader.pixels(".map")
    later = [p for p in plan_pairs(plan) if plan.who(*p).places[0].step > 0]
    assert len(later) > 10
    for row, key in later:
        assert tuple(shown[row, key]) == BLACK
    row, key = later[0]
    reader.at_cell(".map", (key, row), (LAYOUT.num_rows, LAYOUT.num_rows))
    assert "nobody computes it, though the row sees the key" in reader.text(".who")
    reader.check()


def plan_pairs(plan):
    """Random ones that are seen."""
    rng = np.random.default_rng()
    pairs = rng.integers(LAYOUT.num_rows, size=(2000, 2)).tolist()
    return [(row, key) for row, key in pairs if plan.who(row, key).places][:60]


def test_pairs_that_are_computed_twice_are_black(reader):
    def twice(tables):
        tables["tiles"].insert(1, list(tables["tiles"][0]))

    refused(reader, page_of_texts([("", edited(PLAN, twice))]))
    tile = PLAN.steps(0)[0].tiles[0]
    assert tile.q.seq == 0
    shown = reader.pixels(".map")
    assert tuple(shown[tile.q.pos, tile.k.pos]) == BLACK
    reader.at_cell(".map", (tile.k.pos, tile.q.pos), (LAYOUT.num_rows, LAYOUT.num_rows))
    assert reader.text(".who").count("rank 0 in step 0") == 2


def at_fault(**places):
    """A page of a refused plan whose fault is there."""
    shown = _of_text(edited(PLAN, lambda tables: tables["tiles"].pop()))
    fault = dataclasses.replace(Fault(shown.fault.text), **places)
    return Page([data_of(dataclasses.replace(shown, fault=fault))])


def test_it_opens_at_the_fault_and_marks_it_everywhere(reader):
    tile = PLAN.steps(2)[1].tiles[3]
    refused(reader, at_fault(rank=2, step=1, tile=3))
    assert (reader.state()["rank"], reader.state()["step"]) == ("2", "1")
    assert reader.run("document.querySelectorAll('.ring .rank')[2].querySelector('.fault')!==null")
    assert reader.run("document.querySelectorAll('.ring .fault').length") == 1
    begin = int(LAYOUT.cu_seqlens_padded[tile.q.seq])
    names = "['x', 'y', 'width', 'height'].map((n) => +mark.getAttribute(n))"
    mark = reader.run(f"((mark) => {names})(document.querySelector('.marks rect.fault'))")
    assert mark == [begin + tile.k.pos, begin + tile.q.pos, tile.k.len, tile.q.len]
    matrix = reader.pixels(".matrix")
    red = np.argwhere((matrix == RED).all(axis=-1))
    (top, left), (bottom, right) = red.min(axis=0), red.max(axis=0)
    cell = (matrix.shape[1] - 26) / 4
    assert 16 + 2 * 26 <= top and bottom <= 16 + 3 * 26 + 2
    assert 26 + cell - 3 <= left and right <= 26 + 2 * cell + 3


@pytest.mark.parametrize("document", [-1, 2**31 - 1])
def test_a_tile_of_no_document_has_no_mark(reader, document):
    def lost(tables):
        tables["tiles"][0][1] = document  # the column seq

    page = page_of_texts([("", edited(PLAN, lost))])
    refused(reader, page)
    assert reader.run("document.querySelector('.marks rect.fault')") is None


def test_a_fault_of_a_rank_alone_marks_all_its_steps(reader):
    refused(reader, at_fault(rank=1))
    red = np.argwhere((reader.pixels(".matrix") == RED).all(axis=-1))
    assert red[:, 1].max() - red[:, 1].min() > reader.size(".matrix")[0] / 2
    assert reader.run("document.querySelector('.marks .fault').getAttribute('d')") == ""


def test_a_fault_of_a_pair_points_at_the_pair(reader):
    refused(reader, at_fault(row=130, key=60))
    assert reader.state()["pair"] == "130,60"
    assert "130.5" in reader.run("document.querySelector('.marks .fault').getAttribute('d')")
    assert reader.text(".who") == str(PLAN.who(130, 60))


def test_a_plan_that_cannot_be_counted_shows_its_tiles(reader):
    page = page_of_texts([("", edited(PLAN, lambda tables: tables["messages"].pop()))])
    refused(reader, page, "#rank=0&step=0")
    tiles = len(PLAN.steps(0)[0].tiles)
    assert f"It computes {tiles} tiles." in reader.text(".sentence")
    assert "blocks cannot be counted" in reader.text(".work .note")


def test_the_place_is_the_error_s_as_far_as_it_names_one():
    class Placed(rs.PlanError):
        rank, step, tile, row, key = 2, 1, None, 130, None

    assert Fault.of(Placed("why")) == Fault("why", rank=2, step=1, row=130)


@given(strategies.plans(), st.data())
@settings(max_examples=12)
def test_whatever_is_wrong_the_page_opens(reader, plan, data):
    def corrupt(tables):
        full = sorted(name for name, rows in tables.items() if rows)
        rows = tables[data.draw(st.sampled_from(full))]
        row = data.draw(st.integers(0, len(rows) - 1))
        column = data.draw(st.integers(0, len(rows[row]) - 1))
        rows[row][column] = data.draw(st.sampled_from([-1, 0, 1, 5, 2**31 - 1, -(2**31)]))

    if not any(len(cells) for _, cells in plan.tables().values()):
        return
    try:
        page = page_of_texts([("", edited(plan, corrupt))])
    except ValueError:  # not a plan at all
        return
    if page.refusals:
        refused(reader, page)
    else:
        reader.open(page)
    reader.key("ArrowRight", "ArrowDown", "]")
    reader.check()


def test_beside_a_proved_one_it_is_still_refused(reader):
    part = PLAN.first_steps(2)
    reader.open(PLAN.show(compare=part))
    verdicts = reader.text(".verdict", 0), reader.text(".verdict", 1)
    assert verdicts[0].startswith("proved: ") and verdicts[1].startswith("refused: ")
    with pytest.raises(rs.PlanError) as error:
        part.verify()
    assert verdicts[1] == f"refused: {error.value}"
