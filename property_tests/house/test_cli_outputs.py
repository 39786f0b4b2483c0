"""What the ringside command writes: refused before anything runs where it would be lost."""

import pytest
from assertions import refused
from ringside.cli.verify import Pack


@pytest.mark.parametrize("command", ["plan", "explore"])
@pytest.mark.parametrize("name", ["noext", "x.bmp", ".png", "png"])
def test_a_picture_of_another_kind_is_refused_before_anything_runs(
    run, monkeypatch, tmp_path, command, name
):
    monkeypatch.setattr(Pack, "taken", None)
    path = tmp_path / name
    refused(run(command, "--draw", path), f"--draw {path}; expected", ".png, .pdf or .svg. Pass")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (("plan",), "--draw"),
        (("plan",), "--json"),
        (("verify",), "--json"),
        (("explore",), "--draw"),
        (("explore",), "--csv"),
        (("bench", "cpu"), "--csv"),
        (("bench", "thd"), "--json"),
        (("bench", "cp"), "--csv"),
        (("peers", "--here"), "--junit"),
        (("calibrate",), "path"),
    ],
    ids=str,
)
def test_a_folder_is_no_file_to_write(run, monkeypatch, tmp_path, command, option):
    monkeypatch.setattr(Pack, "taken", None)
    folder = tmp_path / "folder.json"
    folder.mkdir()
    result = run(*command, *([] if option == "path" else [option]), folder)
    refused(result, f"{option} {folder}: it is a folder; expected a file that can be", "Pass")
    assert not list(folder.iterdir()) and [*tmp_path.iterdir()] == [folder]


def test_what_is_read_is_not_written_over(run, monkeypatch, tmp_path):
    file, link = tmp_path / "mine.svg", tmp_path / "link.svg"
    file.write_text("5\n7\n")
    link.symlink_to(file)
    again = tmp_path / "." / ".." / tmp_path.name / "mine.svg"
    for path in (file, link, again):
        for command, option in (
            *(("plan", "--json"), ("plan", "--draw"), ("verify", "--json")),
            *(("explore", "--csv"), ("explore", "--json"), ("explore", "--draw")),
        ):
            result = run(command, "--lengths", file, option, path)
            refused(result, f"{option} {path}: --lengths is the same file; expected", "Pass")
    refused(run("explore", "--model", file, "--csv", link), "--model is the same file")
    assert file.read_text() == "5\n7\n"


def test_two_answers_need_two_files(run, monkeypatch, tmp_path):
    monkeypatch.setattr(Pack, "taken", None)
    path = tmp_path / "x.svg"
    refused(run("plan", "--json", path, "--draw", path), "--draw", "--json is the same file")
    monkeypatch.chdir(tmp_path)
    refused(run("explore", "--json", path, "--csv", "x.svg"), "--csv x.svg: --json is the same")
    assert not list(tmp_path.iterdir())
