"""The page of the gallery: what it says without a browser, and what its sliders do in one."""

import re

import pytest

from drawing import draw_gallery
from lib.schedules.gallery import gallery


def test_it_says_in_words_what_it_shows() -> None:
    page = draw_gallery(gallery(4, 8, chunks=(1, 2)))
    assert page.words.startswith("<Pipelines of 4 ranks and 8 microbatches; messages are posted and take no time. ")
    assert "1F1B ends at 33 with 4" in page.words
    assert "messages are awaited and take 0.4: both sides stand still meanwhile" in repr(
        draw_gallery(gallery(2, 2, chunks=(1,), message=0.4, messages="awaited"))
    )


def test_what_is_no_gallery() -> None:
    with pytest.raises(TypeError, match=r"draw_gallery takes what gallery\(ranks=4, batches=8\) gives; got tuple"):
        draw_gallery(())  # pyright: ignore[reportArgumentType]


def test_each_rank_makes_it_higher() -> None:
    pages = [draw_gallery(gallery(ranks, 4, chunks=(1, 2)))._repr_mimebundle_()["text/html"] for ranks in (4, 8)]
    low, high = (int(number) for page in pages for number in re.findall(r"height:(\d+)px", page))
    assert high - low == 4 * 30  # pixels of a rank in gallery.js
