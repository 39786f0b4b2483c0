"""Faults that one build holds: each is as real as in a text of its own, and without a number none.

Programs here are tiny, and compiled; whether tests notice the faults, ./dev mutants says.
"""

import os
import shutil
import subprocess

import mutants
import pytest
from copies import switches
from copies.bodies import bodies
from copies.scratch import Failure, Joint, Seat
from copies.switches import ADDED, VARIABLE, number_of, switched
from mutants_list import Mutant

AWKWARD = r"""
#include <utility>
#define OPEN {  /* no bracket: a directive */
namespace a::b {
// } a comment {
/* } another { */
enum class Kind : char { one = '{', two = '\'' };
constexpr int kMillion = 1'000'000;
int of_literals() { return R"x(} ")" { )x"[0] + "}\"{"[1] + '}' + 1'000; /*BODY literals*/ }
template <typename T = int, auto N = (3 > 2)>
struct alignas(16) Box : std::pair<T, T> {
  T first{1}, second = {2};
  int table[2] = {[] { return 1; }(), 2};
  Box() : first{3}, second(4) { /*BODY constructor*/ }
  explicit Box(T t) noexcept(sizeof(T) > 1) : std::pair<T, T>{t, t}, first{t} { /*BODY another*/ }
  ~Box() { /*BODY destructor*/ }
  bool operator()(int x = int{3}) const noexcept { return [&] { return x; }() > 0; /*BODY call*/ }
  bool operator==(const Box&) const { return true; /*BODY equal*/ }
  auto of_type() && -> std::pair<T, T> { return {}; /*BODY trailing*/ }
  private: static constexpr T zero() { return {}; /*BODY constexpr*/ }
};
template <typename T>
  requires(sizeof(T) > 1)
inline T twice(T t) { struct Local { T t; } local{t}; return local.t * 2; /*BODY required*/ }
const auto kLambda = [](int x) { return x; };
extern "C" { int of_c(void) { return 0; /*BODY c*/ } }
int of_directive() {
#if 1
  return 1;
#endif
}
consteval int of_compiler() { return 3; }
}  // namespace a::b
"""


def inside(text):
    return [text[body.begin : body.end] for body in bodies(text)]


def test_bodies_of_functions_are_found_in_awkward_text():
    named = [name for name in AWKWARD.split("/*BODY ")[1:]]
    found = inside(AWKWARD)
    assert [inner.count("/*BODY ") for inner in found] == [1] * len(named)
    for inner, name in zip(found, named, strict=True):
        assert f"/*BODY {name.partition('*/')[0]}*/" in inner


@pytest.mark.parametrize(
    "text", ["int f() { return 1; ", "int f() { return (1; } )", "} int f() {}"]
)
def test_text_whose_brackets_do_not_match_has_no_bodies(text):
    assert inside(text) == []


PROGRAM = """\
#include <cstdio>
constexpr int kBase = 100;
constexpr int twice(int x) { return 2 * x; }
static_assert(twice(2) == 4);
template <typename T>
T half(T x) {
  const auto divided = [&] { return x / 2; };
  return divided();
}
struct Pair {
  int a, b;
  Pair(int x) : a(x), b(7) { b += 1; }
  void swap() { const int c = a; a = b; b = c; }
};
int early = twice(5) + (std::printf("early "), 0);
int main(int argc, char**) {
  Pair pair(kBase);
  pair.swap();
  std::printf("%d %d %d %d %d\\n", twice(argc), half(9), early, pair.a, pair.b);
}
"""
HEALTHY = "early 2 4 10 8 100"
FAULTS = {
    11: (Mutant("twice", "x.cpp", "2 * x", "3 * x"), "early 3 4 15 8 100"),
    12: (Mutant("half", "x.cpp", "x / 2", "x / 3"), "early 2 3 10 8 100"),
    15: (Mutant("constructor", "x.cpp", "b += 1", "b += 2"), "early 2 4 10 9 100"),
    16: (Mutant("nothing", "x.cpp", "b = c;", "(void)c;"), "early 2 4 10 8 8"),
    18: (Mutant("twice again", "x.cpp", "return 2 *", "return 0 *"), "early 0 4 0 8 100"),
    19: (Mutant("member", "x.cpp", "b(7)", "b(0)"), None),
    20: (Mutant("constant", "x.cpp", "kBase = 100", "kBase = 99"), None),
    21: (Mutant("of two", "x.cpp", "2 * x; }\nstatic", "2 * x + 0; }\nstatic"), None),
    22: (Mutant("longer", "x.cpp", "pair.swap();", "pair.swap(); } int g() {"), None),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """One program with all faults that can be switched."""
    folder = tmp_path_factory.mktemp("switched")
    text, numbers = switched(PROGRAM, {number: fault for number, (fault, _) in FAULTS.items()})
    assert numbers == {number for number, (_, said) in FAULTS.items() if said}
    for name, content in {**ADDED, "x.cpp": text}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return compiled(folder, "x.cpp", switches.SOURCE)


def compiled(folder, *sources):
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    command = [compiler, "-std=c++20", "-Wall", "-Werror", "-I.", *sources, "-o", "program"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "program"


def said_by(program, env):
    done = subprocess.run([program], env=env, text=True, capture_output=True, check=True)
    return done.stdout.strip()


def test_without_a_number_no_fault_is_on(program):
    assert said_by(program, {}) == said_by(program, {VARIABLE: "0"}) == HEALTHY
    assert said_by(program, {VARIABLE: "999"}) == HEALTHY


@pytest.mark.parametrize("number", [number for number, (_, said) in FAULTS.items() if said])
def test_a_fault_that_is_on_is_that_in_a_text_of_its_own(program, number, tmp_path):
    fault, said = FAULTS[number]
    assert said_by(program, {VARIABLE: str(number)}) == said
    assert PROGRAM.count(fault.old) == 1
    planted = PROGRAM.replace(fault.old, fault.new).replace("static_assert(twice(2) == 4);", "")
    (tmp_path / "x.cpp").write_text(planted, encoding="utf-8")
    assert said_by(compiled(tmp_path, "x.cpp"), {}) == said


def test_a_text_in_which_nothing_can_be_switched_is_as_it_was():
    assert switched(PROGRAM, {20: FAULTS[20][0]}) == (PROGRAM, set())


def test_numbers_of_faults_differ_and_are_numbers_of_c():
    numbers = [number_of(mutant) for mutant in mutants.everything()]
    assert len(set(numbers)) == len(numbers) and min(numbers) > 0 and max(numbers) < 2**31


GOOD = number_of(Mutant("good", "", "", ""))


class Played(Joint):
    """A joint copy of two files, whose compiler dislikes what contains "odd"."""

    def __init__(self, folder):
        faults = [
            Mutant("good", "room/good.cpp", "return 1;", "return 2;"),
            Mutant("odd", "room/odd.h", "return 3;", "return 4;"),
            Mutant("python", "room/x.py", "1", "2"),
        ]
        super().__init__(folder, 1, faults)
        (self.source / "room").mkdir(parents=True)
        (self.source / "reference/support").mkdir(parents=True)
        (self.source / "room/good.cpp").write_text("int good() { return 1; }\n")
        (self.source / "room/odd.h").write_text("auto odd() { return 3; }\n")
        self.edit(self.source)
        self.builds = 0

    def compile(self, *targets):
        self.builds += 1
        if "ringside_fault" not in (self.source / "room/odd.h").read_text():
            return 0, ""
        return 1, f"{self.source}/room/odd.h:2:3: error: inconsistent deduction for auto\n"


def test_a_file_that_does_not_compile_with_switches_goes_back_to_its_text(tmp_path, capsys):
    joint = Played(tmp_path)
    assert joint.numbers == {"good": GOOD, "odd": number_of(Mutant("odd", "", "", ""))}
    joint.make_all(["all"])
    assert joint.builds == 2 and joint.numbers == {"good": GOOD}
    assert (joint.source / "room/odd.h").read_text() == "auto odd() { return 3; }\n"
    assert f"ringside_fault_is({GOOD})" in (joint.source / "room/good.cpp").read_text()
    assert "room/odd.h" in capsys.readouterr().out


def test_an_error_in_no_switched_file_ends_the_run(tmp_path, monkeypatch):
    joint = Played(tmp_path)
    monkeypatch.setattr(joint, "compile", lambda *_: (1, f"{joint.source}/x.cpp:1:1: error: no\n"))
    with pytest.raises(Failure, match=r"x\.cpp:1:1: error: no"):
        joint.make_all(["all"])


def test_a_seat_switches_what_is_switched_and_plants_the_rest(tmp_path):
    joint = Played(tmp_path / "joint")
    seat = Seat(tmp_path / "seat", joint)
    good, _, python = [fault for faults in joint.faults.values() for fault in faults.values()] + [
        Mutant("python", "x.py", "1", "2")
    ]
    seat.source.mkdir(parents=True)
    (seat.source / "x.py").write_text("x = 1\n")
    with seat.planted(good):
        assert seat.env == {VARIABLE: str(GOOD)}
    assert seat.env == {}
    with seat.planted(python):
        assert seat.env == {} and (seat.source / "x.py").read_text() == "x = 2\n"
    assert (seat.source / "x.py").read_text() == "x = 1\n"


def test_a_fault_that_is_planted_in_a_switched_file_is_there_alone(tmp_path):
    joint = Played(tmp_path)
    path = joint.source / "room/good.cpp"
    before = path.read_text()
    with joint.planted(Mutant("other", "room/good.cpp", "int good", "long good")):
        assert path.read_text() == "long good() { return 1; }\n"
    assert path.read_text() == before
