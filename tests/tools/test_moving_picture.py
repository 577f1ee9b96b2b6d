"""The picture at the top of README is made of today's golden one."""

from tools.moving_picture import MOVING, PICTURE, moving


def test_it_is_that_of_today() -> None:
    assert MOVING.read_text("utf-8") == moving(PICTURE.read_text("utf-8").strip()) + "\n"
