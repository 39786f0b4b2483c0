"""The documents as a static site: README and what it links to, notebooks with outputs, the API.

Run: .venv/bin/python .dev/site_of_documents.py [FOLDER], build/site by default (./dev site does,
and installs what it needs). Every link is followed; one that leads nowhere fails.
"""

from __future__ import annotations

import argparse
import html
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parent.parent
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1f2328; line-height: 1.5;
  font-family: system-ui, sans-serif; }}
a {{ color: #0a58a8; }} img {{ max-width: 100%; }}
code, pre {{ font-family: ui-monospace, monospace; font-size: 0.88em; background: #f3f4f6; }}
pre {{ padding: 0.7rem; overflow-x: auto; }}
table {{ border-collapse: collapse; display: block; overflow-x: auto; }}
th, td {{ border: 1px solid #d0d4da; padding: 0.25rem 0.6rem; text-align: left; }}
</style></head><body>
<nav>{navigation}</nav>
{body}
</body></html>
"""


def slug(heading: str) -> str:
    """The anchor of a heading, as on the pages of repositories.

    >>> slug("Packages that people use"), slug("`ringside` on a GPU")
    ('packages-that-people-use', 'ringside-on-a-gpu')
    """
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def parser() -> MarkdownIt:
    """Of Markdown with tables, whose headings have anchors."""
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark").enable("table")

    def heading(self, tokens, index, options, env):  # type: ignore[no-untyped-def]
        tokens[index].attrSet("id", slug(tokens[index + 1].content))
        return self.renderToken(tokens, index, options, env)

    reader.add_render_rule("heading_open", heading)
    return reader


def relative_target(link: str) -> tuple[str, str] | None:
    """Path and anchor of a link into the site; None of one that leaves it."""
    parts = urlsplit(html.unescape(link))
    return None if parts.scheme or parts.netloc else (unquote(parts.path), parts.fragment)


def linked_files(markdown: Path) -> Iterator[Path]:
    """Files that a document links to or shows, whether they are there or not."""
    found = re.findall(r"\]\(([^)\s]+)[^)]*\)", markdown.read_text(encoding="utf-8"))
    for link in found:
        target = relative_target(link)
        if target is not None and target[0]:
            yield (markdown.parent / target[0]).resolve()


def files_of_site(root: Path) -> set[Path]:
    """README.md and CHANGELOG.md, and whatever they lead to."""
    waiting, seen = [root / "README.md", root / "CHANGELOG.md"], set()
    while waiting:
        file = waiting.pop()
        if file in seen or not file.is_file():
            continue
        seen.add(file)
        if file.suffix == ".md":
            waiting.extend(linked_files(file))
    return seen


def with_pages_for_documents(text: str, folder: Path) -> str:
    """Links to documents lead to their pages; folders, which have none, are named only."""
    text = re.sub(r'href="(?!\w+:)([^"#]+)\.md(#[^"]*)?"', r'href="\1.html\2"', text)

    def named(link: re.Match[str]) -> str:
        return link[2] if (folder / link[1]).is_dir() else link[0]

    return re.sub(r'<a href="([^"#:]+)">(.*?)</a>', named, text)


def write_page(site: Path, name: str, title: str, body: str, links: dict[str, str]) -> None:
    """A page with the navigation of all."""
    up = "../" * (len(PurePosixPath(name).parts) - 1)
    navigation = " &middot; ".join(f'<a href="{up}{to}">{said}</a>' for said, to in links.items())
    path = site / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = PAGE.format(title=html.escape(title), navigation=navigation, body=body)
    path.write_text(text, encoding="utf-8")


def write_documents(root: Path, site: Path, links: dict[str, str]) -> None:
    """A page for each document, and all other files that they link to as they are."""
    reader = parser()
    for file in sorted(files_of_site(root)):
        name = file.relative_to(root)
        if file.suffix == ".md":
            body = with_pages_for_documents(
                reader.render(file.read_text(encoding="utf-8")), file.parent
            )
            title = body.partition("</h1>")[0].rpartition(">")[2] or str(name)
            write_page(site, name.with_suffix(".html").as_posix(), title, body, links)
        else:
            (site / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, site / name)
    shutil.copyfile(site / "README.html", site / "index.html")


def write_notebooks(root: Path, site: Path) -> list[Path]:
    """Each is run, and shown with what it printed and drew."""
    notebooks = sorted(
        (root / "notebooks").glob("*.ipynb"), key=lambda x: int(x.stem.split("_")[0])
    )
    if notebooks:
        command = [sys.executable, "-m", "nbconvert", "--to", "html", "--execute"]
        command += [f"--output-dir={site / 'notebooks'}", *map(str, notebooks)]
        subprocess.run(command, check=True, cwd=root)
    return notebooks


def write_api(site: Path) -> None:
    """pdoc's reference of what is public."""
    modules = ["ringside", "ringside.testing", "ringside.torch", "ringside.learn"]
    command = [sys.executable, "-m", "pdoc", "-d", "google", "-o", str(site / "api"), *modules]
    subprocess.run(command, check=True)


def write_explorers(site: Path) -> list[str]:
    """Two plans of one pack: the one people know, and the one that is quick."""
    import ringside as rs

    pack = rs.lengths.pack(rs.lengths.load("man_pages"), 16384)
    layout = rs.PackedLayout.from_lengths(pack)
    folder = site / "explorer"
    folder.mkdir(parents=True, exist_ok=True)
    zigzag = rs.plan(layout, cp_size=8, partition="zigzag")
    balanced = rs.plan(layout, cp_size=8, partition="balanced", comm="fetch")
    zigzag.show().save(folder / "zigzag.html")
    zigzag.show(compare=balanced).save(folder / "zigzag_balanced.html")
    return ["zigzag", "zigzag_balanced"]


class Links(HTMLParser):
    """What a page links to, and what can be linked to in it."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called for each tag."""
        given = dict(attrs)
        self.anchors |= {x for x in (given.get("id"), given.get("name")) if x}
        wanted = given.get("href") if tag == "a" else given.get("src") if tag == "img" else None
        if wanted and not wanted.startswith("data:"):
            self.targets.append(wanted)


def links_of(page: Path) -> Links:
    """Those of one page."""
    links = Links()
    links.feed(page.read_text(encoding="utf-8"))
    return links


def broken_links(site: Path, pages: Iterable[Path]) -> Iterator[str]:
    """Page and link, of each that leads nowhere."""
    known: dict[Path, Links] = {}
    for page in pages:
        for link in links_of(page).targets:
            target = relative_target(link)
            if target is None:
                continue
            path, anchor = target
            file = (page.parent / path).resolve() if path else page.resolve()
            if not file.is_file():
                yield f"{page.relative_to(site)}: {link} leads to no file"
            elif anchor and file.suffix == ".html":
                if file not in known:
                    known[file] = links_of(file)
                if anchor not in known[file].anchors:
                    yield f"{page.relative_to(site)}: {link} leads to no place in that page"


def main(arguments: list[str] | None = None) -> int:
    """All of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default=str(ROOT / "build" / "site"))
    site = Path(parser.parse_args(arguments).folder).resolve()
    if site.is_dir() and any(site.iterdir()) and not (site / "index.html").is_file():
        parser.error(
            f"got {site}, which holds something else; expected a folder that is not there, is "
            "empty, or holds a site, which is made anew. Name another"
        )
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(parents=True)
    notebooks = write_notebooks(ROOT, site)
    write_api(site)
    explorers = write_explorers(site)
    links = {"Ringside": "index.html", "API": "api/ringside.html", "Changes": "CHANGELOG.html"}
    links |= {f"explore {x.replace('_', ' beside ')}": f"explorer/{x}.html" for x in explorers}
    links["Notebooks"] = "notebooks/README.html"
    links |= {x.stem.partition("_")[0]: f"notebooks/{x.stem}.html" for x in notebooks}
    write_documents(ROOT, site, links)
    pages = [
        x for x in site.rglob("*.html") if x.parts[len(site.parts)] not in ("api", "notebooks")
    ]
    broken = sorted(broken_links(site, pages))
    print("\n".join(broken) or f"{site / 'index.html'}: every link leads somewhere")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
