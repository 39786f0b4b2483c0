"""Keys, clicks and addresses lead where they say, in all views at once."""

import numpy as np
import pytest
import ringside as rs
from matplotlib.image import imread
from pages import LAYOUT, hover_text, plan_over
from ringside._pictures.colours import rank_colours

PLAN = plan_over("p2p")
ROWS = PLAN.layout_q.num_rows
ROW, KEY = next(
    (row, key)
    for row in range(120, ROWS)
    for key in range(50, row)
    if (found := PLAN.who(row, key).places) and found[0].step > 1
)


def test_keys_choose_step_rank_document_and_heads(reader):
    reader.open(plan_over("a2a+p2p").show())
    assert reader.state() == {"step": "0", "rank": "0", "doc": "all", "head": "0"}
    reader.key("ArrowRight", "ArrowRight", "ArrowRight")  # there are two
    assert reader.state()["step"] == "1" and "Step 1 of 0 to 1, ring_shift: rank 0" in reader.text(
        ".sentence"
    )
    reader.key("ArrowLeft", "ArrowDown")
    assert reader.state()["step"] == "0" and "all_to_all: rank 1 receives" in reader.text(
        ".sentence"
    )
    assert reader.state()["head"] == "4"  # rank 1 computes the other half
    assert "heads 4 to 7" in reader.text(".pairs b")
    reader.key("h")
    assert reader.state()["head"] == "0" and "heads 0 to 3" in reader.text(".pairs b")
    reader.key("]", "]")
    assert reader.state()["doc"] == "1" and "document 1" in reader.text(".pairs b")
    reader.key("[", "[", "[")
    assert reader.state()["doc"] == "0"
    reader.key("ArrowUp", "ArrowUp", "ArrowUp")
    assert reader.state()["rank"] == "0"
    reader.check()


def test_a_click_on_a_pair_goes_to_who_computes_it(reader):
    reader.open(PLAN.show())
    place = PLAN.who(ROW, KEY).places[0]
    reader.at_cell(".map", (KEY, ROW), (ROWS, ROWS), click=True)
    state = reader.state()
    assert (state["rank"], state["step"]) == (str(place.rank), str(place.step))
    assert state["pair"] == f"{ROW},{KEY}"
    reader.browser.mouse(2, 2)  # elsewhere: the pair stays
    assert reader.text(".pair") == hover_text(PLAN, ROW, KEY)
    assert reader.run("document.querySelectorAll('.marks .pinned').length") == 1
    reader.key("Escape")
    assert "pair" not in reader.state() and reader.text(".pair").startswith("Point at")
    reader.check()


def test_ranks_bars_and_documents_can_be_clicked(reader):
    reader.open(PLAN.show())
    centre = "document.querySelectorAll('.rank')[3].getBoundingClientRect()"
    x, y = reader.run(f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])({centre})")
    reader.browser.mouse(x, y, click=True)
    assert reader.state()["rank"] == "3"
    left, top, width, _ = reader.box(".matrix")
    for rank, step in ((2, 1), (0, 3)):
        x = left + 26 + (width - 26) * (step + 0.5) / 4
        reader.browser.mouse(x, top + 16 + 26 * (rank + 0.5), click=True)
        assert (reader.state()["rank"], reader.state()["step"]) == (str(rank), str(step))
    begins = LAYOUT.cu_seqlens_padded
    for doc in (3, 0):
        middle = (begins[doc] + begins[doc + 1]) / 2 / LAYOUT.num_rows
        reader.at(".pack", float(middle), 0.5, click=True)
        assert reader.state()["doc"] == str(doc)
    reader.check()


def test_an_address_is_where_one_was(reader):
    reader.open(PLAN.show(), "#step=2&rank=3&doc=4&head=5&pair=190,150")
    state = {"step": "2", "rank": "3", "doc": "4", "head": "5", "pair": "190,150"}
    assert reader.state() == state and "document 4" in reader.text(".pairs b")
    assert reader.text(".pair") == hover_text(PLAN, 190, 150)
    reader.open(PLAN.show(), "#step=99&rank=-3&doc=x&head=1e9&pair=1,x&more=1")
    assert reader.state() == {"step": "3", "rank": "0", "doc": "0", "head": "1"}


def test_two_plans_share_the_step_and_the_pair(reader):
    other = plan_over("fetch", partition="balanced")
    reader.open(PLAN.show(compare=other))
    reader.at_cell(".map", (KEY, ROW), (ROWS, ROWS), number=1)
    for number, plan in enumerate((PLAN, other)):
        assert reader.text(".pair", number) == hover_text(plan, ROW, KEY)
    reader.key("ArrowRight", "ArrowRight")
    for number in range(2):
        assert reader.text(".sentence", number).startswith("Step 2")
    reader.key("ArrowRight")
    assert reader.text(".sentence", 0).startswith("Step 3")
    assert reader.text(".sentence", 1) == "This plan has ended: it has 3 steps."
    reader.check()


@pytest.mark.parametrize("width", [840, 1400])
def test_nothing_is_wider_than_the_window(reader, width):
    try:
        for page in (PLAN.show(), PLAN.show(compare=plan_over("a2a"))):
            reader.browser.resize(width, 2600)
            reader.open(page)
            assert reader.run("document.documentElement.scrollWidth") == width
    finally:
        reader.browser.resize(1400, 2600)


def test_names_of_the_user_are_words_and_nothing_else(reader):
    name = "</script><script>document.title='x'</script><b>\u2028&amp;"
    plan = rs.plan(
        rs.PackedLayout([0, 8]),
        cp_size=2,
        partition=[[rs.Segment(0, 0, 4)], [rs.Segment(0, 4, 4)]],
        name=name,
    )
    reader.open(plan.show())
    assert reader.text("h2").startswith(f"{name} over p2p") and reader.run("document.title") != "x"


def test_a_frame_without_room_waits_for_it(reader, tmp_path):
    """As a cell of a notebook does that nobody has scrolled to."""
    cell = tmp_path / "cell.html"
    frame = PLAN.show()._repr_html_().replace("border:0", "display:none")
    cell.write_text(f"<!DOCTYPE html><title>cell</title>{frame}", "utf-8")
    reader.browser.open(cell)  # which ends when all frames are there
    assert "display:none" in frame and reader.browser.complaints() == []


def test_a_notebook_s_cell_runs_it(reader, tmp_path):
    cell, picture = tmp_path / "cell.html", tmp_path / "cell.png"
    cell.write_text(f"<!DOCTYPE html><title>cell</title>{PLAN.show()._repr_html_()}", "utf-8")
    reader.browser.open(cell)
    assert reader.browser.complaints() == [] and reader.browser.requests() == [cell.as_uri()]
    wanted = np.rint(rank_colours(4) * 255)
    for _ in range(50):  # a frame is painted in its own time
        reader.browser.screenshot(picture)
        seen = np.rint(imread(picture)[..., :3] * 255).reshape(-1, 3)
        counts = [int((seen == colour).all(axis=1).sum()) for colour in wanted]
        if min(counts) > 500:
            break
    reader.browser.resize(1400, 2600)
    assert min(counts) > 500, counts
