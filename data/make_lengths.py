#!/usr/bin/env python3
"""Derives the document-length traces in data/lengths from public Debian 12 packages.

    python3 data/make_lengths.py [--debs DIR]

Only lengths are kept, never text. tokens = ceil(bytes / 4) of the uncompressed document.
packages.sha256 pins every package by version and hash, so the files come out identical each time.
Needs apt-get and dpkg-deb; with all the .deb files already in DIR, only dpkg-deb. No root, and
nothing is installed. Writes the CSV files, then prints the table of data/README.md.
"""

import argparse
import gzip
import hashlib
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

BYTES_PER_TOKEN = 4
MAX_FILE_BYTES = 200_000
DATA = Path(__file__).resolve().parent
LENGTHS = DATA / "lengths"
PINS = DATA / "packages.sha256"


@dataclass(frozen=True)
class Package:
    name: str
    version: str
    architecture: str
    sha256: str
    file_name: str


def read_packages(pins: Path) -> dict[str, Package]:
    """Reads `sha256sum *.deb`; a file is NAME_VERSION_ARCHITECTURE.deb, with %3a for a colon."""
    packages = {}
    for line in pins.read_text(encoding="ascii").splitlines():
        sha256, file_name = line.split()
        name, version, architecture = file_name.removesuffix(".deb").split("_")
        version = version.replace("%3a", ":")
        packages[name] = Package(name, version, architecture, sha256, file_name)
    return packages


def whole_file(content: bytes) -> list[bytes]:
    return [content]


def changelog_entries(content: bytes) -> list[bytes]:
    """Splits a Debian changelog before each heading: `package (version) suite; urgency=...`."""
    return re.split(rb"(?m)^(?=\S+ \(\S+\) )", content)


def fortune_cookies(content: bytes) -> list[bytes]:
    """Splits a strfile(1) source at its lines holding one percent sign."""
    return re.split(rb"(?m)^%\n", content)


@dataclass(frozen=True)
class Trace:
    name: str
    document: str  # what one document is
    packages: list[str]
    path: str  # regular expression, searched in installed paths
    split: Callable[[bytes], list[bytes]] = whole_file


TRACES = [
    Trace("man_pages", "one manual page", ["manpages", "manpages-dev"], r"^/usr/share/man/man\d"),
    Trace(
        "c_headers",
        "one C or C++ header file",
        ["libc6-dev", "libeigen3-dev", "libstdc++-12-dev", "linux-libc-dev"],
        r"^/usr/include/",
    ),
    Trace(
        "python_stdlib",
        "one module of the Python 3.11 standard library",
        ["libpython3.11-minimal", "libpython3.11-stdlib"],
        r"^/usr/lib/python3\.11/.*\.py$",
    ),
    Trace("perl_manual", "one chapter of the Perl manual (POD source)", ["perl-doc"], r"\.pod$"),
    Trace(
        "changelog_entries",
        "one entry of a Debian changelog",
        [
            "fortunes",
            "libc6-dev",
            "libeigen3-dev",
            "libpython3.11-minimal",
            "linux-libc-dev",
            "manpages",
            "perl-doc",
        ],
        r"/changelog\.Debian\.gz$",
        changelog_entries,
    ),
    Trace(
        "fortunes",
        "one fortune cookie",
        ["fortunes", "fortunes-min"],
        r"^/usr/share/games/fortunes/[^./]+$",
        fortune_cookies,
    ),
]

# long_tail_pack: small enough for the dense definition, skewed enough to unbalance a partition.
PACK_SOURCE, PACK_STRIDE, PACK_LONGEST, PACK_TOKENS = "changelog_entries", 12, 2048, 6144


def fetch(package: Package, folder: Path) -> Path:
    """Downloads the package unless the folder has it; returns its path once the hash agrees."""
    deb = folder / package.file_name
    if not deb.exists():
        wanted = f"{package.name}={package.version}"
        done = subprocess.run(
            ["apt-get", "-o", "APT::Sandbox::User=root", "download", wanted],
            cwd=folder,
            capture_output=True,
            text=True,
        )
        if done.returncode or not deb.exists():
            raise SystemExit(
                f"apt-get download {wanted} failed; this needs the package lists of Debian 12 "
                f"(apt-get update). Or put {deb.name}, e.g. from snapshot.debian.org, in a folder "
                f"and pass it with --debs.\n{done.stderr}"
            )
    sha256 = hashlib.sha256(deb.read_bytes()).hexdigest()
    if sha256 != package.sha256:
        raise SystemExit(
            f"{deb}: sha256 is {sha256}, expected {package.sha256}. Delete the file and run again."
        )
    return deb


def regular_files(deb: Path) -> Iterator[tuple[str, bytes]]:
    """Yields (installed path, uncompressed content); links are not followed, so no duplicates."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as process:
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for member in archive:
                if member.isreg():
                    path = member.name.removeprefix(".")
                    content = archive.extractfile(member).read()
                    yield path, gzip.decompress(content) if path.endswith(".gz") else content
        process.stdout.read()  # the padding after the archive, lest dpkg-deb die of SIGPIPE
    if process.returncode:
        raise SystemExit(f"dpkg-deb --fsys-tarfile {deb} exited with {process.returncode}")


def tokens(document: bytes) -> int:
    return -(-len(document) // BYTES_PER_TOKEN)


def derive(trace: Trace, folder: Path) -> tuple[list[int], list[str]]:
    """Returns the trace's lengths and one provenance line per package."""
    packages = read_packages(PINS)
    lengths_of_path: dict[str, list[int]] = {}
    sources = []
    for package in (packages[name] for name in trace.packages):
        count = 0
        for path, content in regular_files(fetch(package, folder)):
            if re.search(trace.path, path):
                documents = [piece for piece in trace.split(content) if piece.strip()]
                lengths_of_path[path] = [tokens(document) for document in documents]
                count += len(documents)
        sources.append(
            f"source: {package.name} {package.version} {package.architecture}, "
            f"{count} documents, sha256 {package.sha256}"
        )
    lengths = [length for path in sorted(lengths_of_path) for length in lengths_of_path[path]]
    return lengths, sources


def long_tail_pack(lengths: list[int]) -> list[int]:
    """Takes every PACK_STRIDE-th length, skips the longest, stops before PACK_TOKENS is passed."""
    pack: list[int] = []
    for length in lengths[::PACK_STRIDE]:
        if length > PACK_LONGEST:
            continue
        if sum(pack) + length > PACK_TOKENS:
            break
        pack.append(length)
    return pack


def write(name: str, lengths: list[int], comments: list[str]) -> None:
    lines = [f"# {comment}" for comment in comments] + ["tokens"] + [str(n) for n in lengths]
    text = "\n".join(lines) + "\n"
    if len(text) > MAX_FILE_BYTES:
        raise SystemExit(
            f"{name}.csv would be {len(text)} bytes, more than {MAX_FILE_BYTES}. "
            "Name fewer packages in TRACES."
        )
    (LENGTHS / f"{name}.csv").write_text(text, encoding="ascii", newline="\n")


def table_row(name: str, lengths: list[int]) -> str:
    """One row of README's table; a percentile is the nearest rank."""
    ranked = sorted(lengths)
    p50, p90, p99 = (ranked[-(-len(ranked) * percent // 100) - 1] for percent in (50, 90, 99))
    numbers = [len(ranked), p50, p90, p99, ranked[-1], round(sum(ranked) / len(ranked))]
    return f"| `{name}` | " + " | ".join(f"{number:,}" for number in numbers) + " |"


def make(folder: Path) -> None:
    LENGTHS.mkdir(exist_ok=True)
    rows = []
    for trace in TRACES:
        lengths, sources = derive(trace, folder)
        comments = [
            f"{trace.name}: a document is {trace.document}",
            f"tokens = ceil(bytes / {BYTES_PER_TOKEN}), uncompressed; blank documents are left out",
            "order: by installed path, then by position in the file; every document is kept",
            *sources,
        ]
        write(trace.name, lengths, comments)
        rows.append(table_row(trace.name, lengths))
        if trace.name == PACK_SOURCE:
            pack = long_tail_pack(lengths)
            rule = (
                f"one document in {PACK_STRIDE} of {PACK_SOURCE}.csv from its first, without those "
                f"over {PACK_LONGEST} tokens, up to {PACK_TOKENS} tokens in all"
            )
            write("long_tail_pack", pack, [f"long_tail_pack: {rule}"])
            rows.append(table_row("long_tail_pack", pack))
    print("| trace | n | p50 | p90 | p99 | max | mean |", "|---|---|---|---|---|---|---|", sep="\n")
    print(*rows, sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--debs", type=Path, help="folder to keep and reuse the .deb files in")
    folder = parser.parse_args().debs
    if folder is None:
        with tempfile.TemporaryDirectory() as temporary:
            make(Path(temporary))
    else:
        folder.mkdir(parents=True, exist_ok=True)
        make(folder)


if __name__ == "__main__":
    main()
