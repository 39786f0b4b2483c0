"""A wheel names where its sources came from, and nothing where that is no public address."""

import doctest
import importlib.util
import subprocess
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / ".dev" / "project_urls.py"
SPEC = importlib.util.spec_from_file_location("project_urls", PATH)
urls = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(urls)


def clone_of(folder, remote):
    for command in (["init", "-q"], ["remote", "add", "origin", remote]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return urls.urls_of_clone(folder)


def test_examples():
    assert doctest.testmod(urls).failed == 0


@pytest.mark.parametrize(
    "remote",
    [
        "git@example.org:a/ringside.git",
        "https://me:word@example.org/a/ringside",
        "ssh://git@example.org:22/a/ringside.git",
    ],
)
def test_a_clone_knows_its_address_without_anybodys_password(tmp_path, remote):
    found = clone_of(tmp_path, remote)
    assert found["Source"] == "https://example.org/a/ringside"
    assert found["Changelog"].startswith(found["Source"])


def test_folders_and_sources_without_git_have_none(tmp_path):
    assert clone_of(tmp_path, str(tmp_path)) == {}
    other = tmp_path / "other"
    other.mkdir()
    assert urls.urls_of_clone(other) == {} and urls.urls_of_archive(other) == {}


def test_an_archive_keeps_what_it_was_made_with(tmp_path):
    text = "Metadata-Version: 2.4\nName: ringside\nProject-URL: Source, https://a.org/b, c\n\nText"
    (tmp_path / "PKG-INFO").write_text(text)
    assert urls.urls_of_archive(tmp_path) == {"Source": "https://a.org/b, c"}


def test_another_field_is_refused():
    with pytest.raises(RuntimeError, match="got version"):
        urls.dynamic_metadata("version", {})
