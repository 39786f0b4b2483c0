"""The ringside command: what it takes, what it refuses before anything is built, exit codes."""

import io
import json
import sys
import time

import pytest
import ringside as rs
from assertions import refused
from ringside.cli import commands as cli
from ringside.cli.verify import Heads, Pack, Settings, Verification
from ringside.testing import _sizes

BIG = 10**12


@pytest.mark.parametrize("number", [0, -1, -BIG, BIG, 2**31])
def test_random_takes_a_number_of_cases(run, number):
    result = run("verify", "--random", number)
    refused(result, f"--random {number}; expected a number of cases, 1 to 2147483647. Pass")


def test_random_takes_the_number_of_a_first_case_and_a_seed(run):
    refused(run("verify", "--random", 1, "--case", -1), "--case -1; expected", "Pass")
    refused(run("verify", "--random", 1, "--case", BIG), f"--case {BIG}; expected", "Pass")
    refused(run("verify", "--random", 1, "--seed", -1), "--seed -1; expected 0 or more. Pass")
    code, out, _ = run("verify", "--random", 2, "--case", 5, "--seed", BIG)
    assert code == 0 and out.startswith("2 random cases")


SIZES = ["--cp", "--heads", "--kv-heads", "--tokens", "--pad-to"]


@pytest.mark.parametrize("command", ["verify", "plan"])
@pytest.mark.parametrize("flag", SIZES)
@pytest.mark.parametrize("value", [-1, 2**31, 99_999_999_999, 10**30])
def test_sizes_that_no_int_holds_are_refused(run, command, flag, value):
    refused(run(command, flag, value), f"{flag} {value}; expected a number of", "Pass one")


@pytest.mark.parametrize(
    ("command", "flag"),
    [("verify", "--head-dim"), ("verify", "--seed"), ("plan", "--a2a-size"), ("plan", "--heads")],
)
def test_other_numbers_below_the_least_are_refused(run, command, flag):
    refused(run(command, flag, -5), f"{flag} -5; expected", "Pass")


@pytest.mark.parametrize(
    ("flags", "pieces"),
    [
        (("--cp", 2**31 - 1), ("--cp 2147483647: a plan", "GiB; expected at most", "--cp")),
        (("--head-dim", 2**31 - 1), ("(--head-dim)", "GiB; expected at most", "--tokens N")),
        (("--heads", 2 * 10**9), ("(--heads, --kv-heads)", "GiB; expected at most")),
        (("--heads", 10**7, "--kv-heads", 10**7), ("10000000 query", "GiB; expected at most")),
        (("--tokens", BIG), (f"--tokens {BIG}; expected", "Pass one in between")),
        (("--heads", 3, "--kv-heads", 2), ("--heads 3 --kv-heads 2; expected a multiple", "Pass")),
        (("--pad-to", 2**31 - 1), ("row numbers are int32", "Split the pack")),
        (("--mask", "window:99999999999,0"), ('mask="window:99999999999,0": expected', "Pass -1")),
        (("--mask", "window:-7,0"), ("window_size=(-7, 0)",)),
        (("--mask", f"chunked:{BIG}"), (f'mask="chunked:{BIG}": expected numbers',)),
        (("--mask", "chunked:x"), ('mask="chunked:x" is unknown; expected one of',)),
        (("--partition", "x"), ('"x" is unknown',)),
        (("--comm", "x"), ('"x" is unknown',)),
        (("--lengths", "/"), ('lengths "/" is neither a file nor a known trace',)),
        (("--lengths", sys.executable), (sys.executable, "expected a text file of integers")),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_before_anything_is_built(run, monkeypatch, flags, pieces):
    monkeypatch.setattr(_sizes, "memory", lambda: 16 * 2**30)
    begin = time.monotonic()
    refused(run("verify", *flags), *pieces)
    assert time.monotonic() - begin < 10


def test_a_plan_of_too_many_ranks_is_refused(run, monkeypatch):
    monkeypatch.setattr(_sizes, "memory", lambda: 16 * 2**30)
    refused(run("plan", "--cp", 100_000), "--cp 100000: a plan of all ranks would take about", "16")
    refused(
        run("plan", "--a2a-size", 2**31, "--comm", "a2a+p2p"), "--a2a-size 2147483648; expected"
    )
    refused(run("plan", "--stages", 0, "--comm", "fetch"), "--stages 0; expected", "1 to")
    refused(run("plan", "--stages", 2, "--comm", "p2p"), 'stages=2 with comm="p2p"', "Leave it out")
    refused(run("plan", "--mask", "window:1,99999999999"), 'mask="window:1,99999999999": expected')


def test_words_where_numbers_belong_are_refused_without_a_traceback(run):
    for command in (("verify", "--cp", "1e3"), ("plan", "--heads", "many"), ("bench", "cpu", "x")):
        code, out, err = run(*command)
        assert code == 2 and out == "" and "Traceback" not in err


def test_a_bench_of_what_is_not_there_is_refused(run, tmp_path):
    refused(run("bench", "gpu", "--section", "x"), "--section x; expected one of")


def test_too_little_memory_is_an_answer_not_a_traceback(run, monkeypatch):
    def no_memory(settings):
        raise MemoryError

    monkeypatch.setattr(cli, "Verification", no_memory)
    refused(run("verify"), "not enough memory", "--tokens")


# --- documents ---


@pytest.fixture
def trace(tmp_path):
    """trace(lengths): a file of a user's."""

    def write(lengths):
        file = tmp_path / "mine.csv"
        file.write_text("# mine\ntokens\n" + "".join(f"{length}\n" for length in lengths))
        return file

    return write


MINE = [512, 7, 0, 1300, 512, 1, 1355, 0]  # 3,687 tokens


def test_a_file_is_planned_whole_and_unpadded(run, trace, tmp_path):
    written = tmp_path / "plan.json"
    code, out, _ = run("plan", "--lengths", trace(MINE), "--cp", 2, "--json", written)
    assert code == 0
    assert out.splitlines()[0].endswith("mine.csv: 8 documents, 3,687 tokens, 3,687 rows")
    plan = rs.Plan.from_json(written.read_text())
    assert plan.layout_q == rs.PackedLayout.from_lengths(MINE)


def test_a_file_is_verified_whole_and_unpadded(run, trace, tmp_path):
    written, lengths = tmp_path / "result.json", [900] * 8
    one = (
        "--partition",
        "zigzag",
        "--comm",
        "p2p",
        "--mask",
        "causal",
        "--heads",
        2,
        "--head-dim",
        4,
    )
    code, out, _ = run("verify", "--lengths", trace(lengths), *one, "--json", written)
    assert code == 0
    assert out.splitlines()[0].endswith("mine.csv: 8 documents, 7,200 tokens, 7,200 rows")
    result = json.loads(written.read_text())
    assert (result["documents"], result["tokens"], result["rows"]) == (8, 7200, 7200)


def test_a_file_is_cut_and_padded_where_asked(run, trace):
    flags = ("--lengths", trace(MINE), "--tokens", 515, "--pad-to", 8)
    code, out, _ = run("plan", *flags)
    assert code == 0
    words = "2 documents, 515 tokens, 520 rows (the first of 8 documents, 3,687 tokens)"
    assert words in out.splitlines()[0]


def test_more_tokens_than_there_are_means_all_of_them(run, trace):
    code, out, _ = run("plan", "--lengths", trace(MINE), "--tokens", 99_999)
    assert code == 0
    assert "3,687 tokens, 3,687 rows (all there are; --tokens 99,999 asked for" in out


def test_rows_are_padded_to_a_multiple_of_the_ranks(run):
    code, out, _ = run("plan", "--lengths", "5,16,1", "--cp", 4, "--pad-to", "2cp")
    assert code == 0 and out.startswith("5,16,1: 3 documents, 22 tokens, 32 rows\n")
    assert run("plan", "--lengths", "5,16,1", "--cp", 4, "--pad-to", "cp")[1].startswith(
        "5,16,1: 3 documents, 22 tokens, 28 rows\n"
    )
    refused(run("plan", "--pad-to", "cp2"), "--pad-to cp2; expected a number of rows, or", "2cp")


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("512,1024,96\n", ()),
        ("id,tokens\na,512\nb,1024\nc,96\n", ()),
        ("[512, 1024, 96]", ()),
        ("0 512 1536 1632", ("--cu-seqlens",)),
        ("cu_seqlens\n0\n512\n1536\n1632\n", ()),
    ],
)
def test_lengths_of_every_form_are_read_from_standard_input(run, monkeypatch, text, flags):
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    code, out, _ = run("plan", "--lengths", "-", *flags)
    assert code == 0 and out.startswith("-: 3 documents, 1,632 tokens, 1,632 rows\n")


def test_lengths_that_are_none_are_named_as_they_stand(run, tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("id,tokens\na,512\nb,many\n")
    refused(run("verify", "--lengths", file), "mine.csv, line 3: many; expected an integer, 0 to")
    refused(run("plan", "--lengths", "512,-3"), 'lengths "512,-3" is neither a file nor')
    refused(run("plan", "--lengths", "0,5,3", "--cu-seqlens"), "--lengths, line 1: 3 after 5;")


def test_a_shipped_trace_is_cut_and_padded_by_default_and_says_so(run):
    code, out, _ = run("plan")
    assert code == 0
    assert out.startswith("long_tail_pack: 5 documents, 512 tokens, 544 rows (the first of 30 ")
    assert Pack("man_pages").taken()[0].num_tokens == 3072
    for command in ("plan", "verify"):
        _, words, _ = run(command, "--help")
        words = " ".join(words.replace("│", " ").split())
        assert "A file, taken whole and unpadded, or" in words
        assert "all of a FILE, at most" in words and "8 for a NAME, 0 for a FILE" in words


def test_a_file_without_tokens_is_refused(run, trace):
    refused(run("plan", "--lengths", trace([])), "holds no tokens; expected a document")
    refused(run("verify", "--lengths", trace([0, 0])), "holds no tokens; expected a document")


def test_a_file_too_large_to_check_is_refused_with_the_way_out(run, trace, monkeypatch):
    monkeypatch.setattr(_sizes, "memory", lambda: 2**30)
    refused(run("verify", "--lengths", trace([10**5] * 20)), "2,000,000 rows", "--tokens N takes")


def test_what_takes_long_says_how_long(capsys):
    cli._say_what_it_costs(90 * 60)
    words = capsys.readouterr().err
    assert "about 90 minutes" in words and "--tokens N" in words
    cli._say_what_it_costs(60)
    assert capsys.readouterr().err == ""


def test_the_cost_grows_with_the_square_of_a_document(trace):
    def seconds(*lengths, **more):
        return Verification(Settings(Pack(str(trace(lengths))), Heads(**more))).seconds()

    assert seconds(2000) == pytest.approx(4 * seconds(1000))
    assert seconds(1000, 1000) == pytest.approx(2 * seconds(1000))
    assert seconds(1000, num_heads=16) == pytest.approx(2 * seconds(1000))
