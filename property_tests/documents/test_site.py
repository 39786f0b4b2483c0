"""The site's links lead somewhere, and so do those of every document in the repository."""

import subprocess
from pathlib import Path

import pytest
import site_of_documents as site

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = subprocess.run(
    ["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True
).stdout.split()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    site.write_documents(ROOT, folder, {"Ringside": "index.html"})
    return folder


def test_every_link_of_readme_and_what_it_leads_to_is_there(pages):
    assert (pages / "index.html").is_file() and (pages / "optimized/README.html").is_file()
    assert list(site.broken_links(pages, pages.rglob("*.html"))) == []
    assert "<table>" in (pages / "index.html").read_text()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_document_links_to_files_that_are_there(name):
    missing = [x for x in site.linked_files(ROOT / name) if not x.exists()]
    assert missing == []


def made(folder, **documents):
    for name, text in {"CHANGELOG": "# Changes", **documents}.items():
        (folder / f"{name}.md").write_text(text)
    site.write_documents(folder, folder / "site", {"Home": "index.html"})
    return list(site.broken_links(folder / "site", (folder / "site").rglob("*.html")))


def test_links_that_lead_nowhere_are_named(tmp_path):
    (tmp_path / "data").mkdir()
    told = (
        "[a](#two-words) [folder](data) [b](OTHER.md#there) [c](https://example.org) [d](data.csv)"
    )
    (tmp_path / "data.csv").write_text("1")
    assert (
        made(tmp_path, README=f"# Two `words`\n{told}", OTHER="## There\n[home](README.md)") == []
    )
    broken = made(tmp_path, README="# R\n[a](#x) [b](OTHER.md#y) [c](gone.png)", OTHER="## There")
    assert {x.split(": ")[1].split(" leads")[0] for x in broken} == {
        "#x",
        "OTHER.html#y",
        "gone.png",
    }
    assert any(x.endswith("no file") for x in broken)
