"""Replays that torch.profiler records: their ranges are named as torch's executor names its own."""

from pathlib import Path

import pytest

from lib.analysis.recordings.recording import departures
from lib.replay import ReplayError, replay
from lib.schedules.formats.timelines.kineto import read_profile
from lib.schedules.formats.timelines.recorded import order_of_recording, recording_of
from lib.schedules.pipelines.generators import one_f_one_b
from tests.replay.schedules import trace

pytest.importorskip("torch", reason="a replay needs torch: pip install torch")
pytestmark = pytest.mark.usefixtures("cache_of_torch")


def test_a_replay_beside_its_schedule(tmp_path: Path) -> None:
    pipeline = trace("one_f_one_b")
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "replay_rank7.json").write_text("of an earlier run of more ranks", "utf-8")
    (tmp_path / "made" / "notes_rank7.json").write_text("of somebody else", "utf-8")
    assert replay(pipeline, hidden=32, length=16, timeout=120, profile=str(tmp_path / "made")).ok
    assert (tmp_path / "made" / "notes_rank7.json").exists()
    found = read_profile(sorted((tmp_path / "made").glob("replay_rank*.json")))
    assert departures(recording_of(pipeline), found) == []
    assert order_of_recording(found) == one_f_one_b(4, pipeline.batches)
    assert {span.op for span in found.spans} >= {"forward", "backward", "pass_to", "receive", "update"}
    assert found.notes == ("Clocks: each file's own base time.",)
    sends = {span.word: span.start for span in found.spans if span.op == "pass_to"}
    receives = {span.word: span.end for span in found.spans if span.op == "receive"}
    for batch in range(pipeline.batches):
        assert sends[f"0SEND_F{batch}"] < receives[f"1RECV_F{batch}"]


def test_a_folder_for_profiles_that_cannot_be_is_said_first(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(ReplayError, match=r"profiles are written into a folder; .*file is a file"):
        replay(trace("one_f_one_b"), profile=str(tmp_path / "file"))
    with pytest.raises(ReplayError, match=r"profiles cannot be written into .*: Not a directory"):
        replay(trace("one_f_one_b"), profile=str(tmp_path / "file" / "more"))
