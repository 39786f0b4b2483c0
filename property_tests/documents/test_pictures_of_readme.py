"""The pictures that README shows are those that would be drawn today."""

from pathlib import Path

import numpy as np
import pictures
import pytest
from matplotlib.image import imread

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 0.004  # of 1; pictures that are the same differ by 0, or by where letters stand


def difference(a, b):
    """Of two pictures, per pixel and colour; another Matplotlib places letters a little apart."""
    one, other = (imread(path)[..., :3] for path in (a, b))
    if one.shape != other.shape:
        return 1.0
    return float(np.abs(one - other).mean())


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_is_in_step(name, tmp_path):
    drawn = tmp_path / Path(name).name
    pictures.PICTURES[name](drawn)
    assert difference(drawn, pictures.FOLDER / name) < LIMIT, "./dev readme draws it anew"


def test_another_plan_would_be_noticed(tmp_path, monkeypatch):
    lengths = pictures.rs.PackedLayout.from_lengths
    monkeypatch.setattr(
        pictures.rs.PackedLayout, "from_lengths", lambda _: lengths([304, 144, 40, 216])
    )
    pictures.draw_plan(tmp_path / "plan.png")
    assert difference(tmp_path / "plan.png", pictures.FOLDER / "pictures/plan.png") > LIMIT


def test_another_measurement_would_be_noticed(tmp_path):
    """Without the runs on four GPUs."""
    lines = pictures.SCALING.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line.split(",")[5] != "4"]
    (tmp_path / "less.csv").write_text("\n".join(kept))
    pictures.draw_scaling(tmp_path / "scaling.png", tmp_path / "less.csv")
    drawn = pictures.FOLDER / "results/scaling.png"
    assert difference(tmp_path / "scaling.png", drawn) > LIMIT


def test_every_picture_stands_in_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    drawn = {str(path.relative_to(pictures.FOLDER)) for path in pictures.FOLDER.glob("*/*.png")}
    assert drawn == set(pictures.PICTURES)
    assert all(f"data/{name}" in readme for name in drawn)
    assert pictures.BALANCE in " ".join(readme.split())
