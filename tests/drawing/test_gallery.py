"""The page of the gallery: what it says without a browser, and what its sliders do in one."""

import re

from drawing import draw_gallery
from lib.schedules.gallery import gallery


def test_each_rank_makes_it_higher() -> None:
    pages = [draw_gallery(gallery(ranks, 4, chunks=(1, 2)))._repr_mimebundle_()["text/html"] for ranks in (4, 8)]
    low, high = (int(number) for page in pages for number in re.findall(r"height:(\d+)px", page))
    assert high - low == 4 * 30  # pixels of a rank in gallery.js
