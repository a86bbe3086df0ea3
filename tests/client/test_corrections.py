"""A person's corrections during a run become demonstrations."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from recap.errors import InputError
from recap.features.terms import Time
from recap.pool.content import check_episode
from recap.serving.upload_reading import episode_of
from recap_client.corrections import MIN_FRAMES, N_CONTEXT, CorrectionRecorder, Person, person_of
from recap_client.messages import CORRECTION_FROM

HZ = 10.0


def seen(t: int, size: int = 16) -> dict[str, Any]:
    return {
        "observation/state": np.array([t, 0.0], np.float32),
        "observation/image": np.full((size, size, 3), t, np.uint8),
        "observation/objects/block": np.array([t, 1.0, 2.0]),
        "observation/goal": np.array([5.0, 5.0, 0.0]),
        "prompt": "push",
    }


def recorder(**changes: Any) -> CorrectionRecorder:
    given = {"attributes": {"block": "tee"}, "cameras": {"observation/image": "top"}, **changes}
    return CorrectionRecorder("run", HZ, "triangle", **given)


def drive(watched: CorrectionRecorder, by_policy: int, by_person: int, begin: int = 0) -> None:
    for t in range(begin, begin + by_policy + by_person):
        watched.add(seen(t), np.array([t, t]), by_person=t >= begin + by_policy)


def test_a_correction_has_the_first_frame_context_and_the_persons_frames() -> None:
    watched = recorder()
    drive(watched, 30, 20)
    found = episode_of(watched.finish() or {})
    check_episode(found)
    assert found.id == "run/1"
    assert (found.scene_id, found.task, found.embodiment, found.success) == ("run", "push", "triangle", True)
    frames = [0, *range(30 - N_CONTEXT, 50)]
    assert found.proprio[:, 0].tolist() == frames
    assert found.actions[:, 1].tolist() == frames
    assert found.objects["block"][:, 0].tolist() == frames
    assert [int(image[0, 0, 0]) for image in found.images["top"]] == frames
    assert found.goal is not None
    assert found.goal.tolist() == [5, 5, 0]
    assert found.attributes["block"] == "tee"
    assert found.first_match == 1 + N_CONTEXT
    np.testing.assert_allclose(np.diff(found.timestamps), 1 / HZ)  # timestamps are evenly spaced
    np.testing.assert_allclose(Time().describe(found)[found.first_match :, 0], np.arange(30, 50) / HZ)


@pytest.mark.parametrize("before", [0, 3, N_CONTEXT])
def test_an_early_takeover_repeats_no_frame(before: int) -> None:
    watched = recorder()
    drive(watched, before, 10)
    found = episode_of(watched.finish() or {})
    assert found.proprio[:, 0].tolist() == list(range(before + 10))
    assert found.first_match == before


def test_a_too_short_takeover_is_no_correction_but_counts_as_context() -> None:
    watched = recorder()
    drive(watched, 10, MIN_FRAMES - 1)
    assert watched.finish() is None
    drive(watched, 2, 12, begin=17)
    found = episode_of(watched.finish() or {})
    assert found.id == "run/1"
    assert found.proprio[:, 0].tolist() == [0, *range(19 - N_CONTEXT, 31)]
    assert watched.finish() is None


def test_recorded_frames_are_copies_of_reused_buffers() -> None:
    watched, message = recorder(), seen(0)
    for t in range(MIN_FRAMES):
        message["observation/state"][:] = t
        watched.add(message, np.array([t, t]), by_person=True)
    assert episode_of(watched.finish() or {}).proprio[:, 0].tolist() == list(range(MIN_FRAMES))


class Robot:
    """A robot whose takeover returns actions from a list."""

    def __init__(self, *wanted: Any) -> None:
        self.wanted = list(wanted)

    def takeover(self) -> Any:
        return self.wanted.pop(0) if self.wanted else None


def settled(person: Person) -> Person:
    until = time.monotonic() + 60
    while person.settle() and time.monotonic() < until:
        time.sleep(0.01)
    return person


def test_only_a_robot_with_takeover_records_corrections() -> None:
    assert person_of(object(), {}, HZ, print) is None
    said = {
        "robot": {"name": "so101"},
        "image_keys": {"front": "observation/image", "wrist": "observation/images/wrist"},
        "default_prompt": "pick",
    }
    person = person_of(Robot(), said, HZ, print)
    assert person is not None
    assert person.recorder.name.startswith("corrections/so101/")
    assert person.recorder.task == "pick"
    assert person.recorder.cameras["observation/wrist_image"] == "wrist"
    person.close()


@pytest.mark.parametrize("wanted", [[np.nan, 0.0], [[1.0, 2.0]]])
def test_an_invalid_takeover_action_is_refused(wanted: Any) -> None:
    person = Person(Robot(wanted).takeover, recorder(), print)
    with pytest.raises(InputError, match="takeover"):
        person.action()
    person.close()


def test_a_long_correction_is_uploaded_in_pieces_within_the_size_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("recap_client.corrections.MAX_BYTES", 30 * 3 * 64 * 64)  # about thirty frames
    kept: list[Mapping[str, Any]] = []
    person = Person(Robot().takeover, recorder(), kept.append)
    for t in range(50):
        person.record(seen(t, 64), np.array([t, t]), by_person=True)
    person.close()
    shown = [e["proprio"][round(HZ * e["attributes"][CORRECTION_FROM]) :, 0].tolist() for e in kept]
    assert [t for piece in shown for t in piece] == list(range(50))  # no frame is lost or repeated
    assert person.n_kept == len(kept) > 1
    assert max(e["images"]["top"].nbytes for e in kept) <= 31 * 3 * 64 * 64


def test_a_failed_upload_is_reported_and_later_corrections_are_uploaded() -> None:
    answers: list[Exception | None] = [InputError("the pool is full"), None]

    def keep(_: Mapping[str, Any]) -> None:
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    person = Person(Robot().takeover, recorder(), keep)
    for _ in range(2):
        drive(person.recorder, 0, 10)
        person.hand_back()
        settled(person)
    assert (person.n_kept, person.problem) == (1, "the pool is full")
    person.close()
