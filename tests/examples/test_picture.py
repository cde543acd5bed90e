"""The picture of a run: no text in it lies over another one, or over the legend."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from matplotlib.text import Text

from flights import model, picture
from flights.data import Pause, events, load
from flights.report import Result
from flights.run import DELAYS


def result(days: int, pause: str) -> Result:
    """A run's result as the exact model has it, without a run."""
    flights, line_down = load(days), Pause.parse(pause)
    arrivals, unpaused = events(flights, line_down), events(flights)
    spark = {delay: model.watermark(unpaused, delay) for delay in DELAYS}
    return Result(flights, arrivals, unpaused, line_down, model.exact(arrivals), spark, None, [], 1.0, live=False)


@pytest.mark.drawn
@pytest.mark.parametrize(("days", "pause"), [(1, "none"), (2, "EWR:0:1"), (5, "LGA:2:1"), (14, "JFK:8:3")])
def test_no_text_overlaps_another(days: int, pause: str) -> None:
    figure = picture.draw(result(days, pause))
    figure.draw_without_rendering()
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    boxes = {text: Text.get_window_extent(text) for text in texts}  # of a note without its line
    assert len(texts) > 30
    for (one, a), (other, b) in combinations(boxes.items(), 2):
        assert not a.overlaps(b), f"{one.get_text()!r} lies over {other.get_text()!r}"
    for text, box in boxes.items():
        assert figure.bbox.contains(box.x0, box.y0), f"{text.get_text()!r} begins outside of the picture"
        assert figure.bbox.contains(box.x1, box.y1), f"{text.get_text()!r} ends outside of the picture"


@pytest.mark.drawn
def test_the_picture_is_small_enough_for_a_readme(tmp_path: Path) -> None:
    picture.write_picture(result(14, "JFK:8:3"), tmp_path / "frontier.png")
    assert (tmp_path / "frontier.png").stat().st_size < 200_000
