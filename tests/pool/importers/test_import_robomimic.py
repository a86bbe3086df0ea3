"""robomimic files, and malformed or malicious HDF5."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import h5py  # type: ignore[import-untyped]
import numpy as np
import pytest
from source_files import image, path_of, quaternions, write_robomimic

from recap.errors import DatasetError, InputError, RecapError
from recap.geometry3 import quaternion_to_rotation6
from recap.pool.importers import open_source
from recap.pool.importers.checks import check_dataset


def test_the_usual_keys_are_read_without_a_mapping(tmp_path: Path) -> None:
    source = open_source(write_robomimic(tmp_path / "lift.hdf5"))
    assert (source.format, len(source)) == ("robomimic", 2)
    episode = source[1]
    assert (episode.id, episode.fps, episode.embodiment, len(episode)) == ("lift/demo_1", 20, "Panda", 9)
    pose = [path_of(9, 1), quaternions(9, 1)[:, [1, 2, 3, 0]], path_of(9, 61, 2)]
    np.testing.assert_array_equal(episode.proprio, np.concatenate(pose, axis=1).astype(np.float32))
    np.testing.assert_array_equal(episode.actions, path_of(9, 21, 7).astype(np.float32))
    np.testing.assert_array_equal(episode.timestamps, np.arange(9) / 20)
    assert episode.objects["environment"].shape == (9, 10)
    assert list(episode.images) == ["agentview"]
    np.testing.assert_array_equal(episode.images["agentview"][3], image(3))
    assert episode.attributes["env_name"] == "Lift"
    assert not [f for f in check_dataset(source) if f.severity == "error"]


def test_demonstrations_are_sorted_by_their_number(tmp_path: Path) -> None:
    source = open_source(write_robomimic(tmp_path / "many.h5", tuple(range(3, 15))))
    assert source.describe().lengths == tuple(range(3, 15))
    assert [len(episode) for episode in source] == list(range(3, 15))


def test_a_mapping_selects_columns_and_converts_quaternions(tmp_path: Path) -> None:
    path = write_robomimic(tmp_path / "lift.hdf5")
    mapping = {
        "proprio": "obs/robot0_eef_pos[0:2] + obs/robot0_eef_quat@xyzw+obs/robot0_gripper_qpos[1]",
        "action": "next:obs/robot0_eef_pos",
        "object:cube": "obs/object[0:3]",
        "image:front": "obs/agentview_image",
        "task": '"lift the cube, gently"',
        "goal": "states[1:3]",
        "embodiment": "robot arm",
    }
    source = open_source(path, mapping=mapping)
    episode = source[0]
    assert episode.proprio.shape == (12, 2 + 6 + 1)
    expected = quaternion_to_rotation6(quaternions(12)).astype(np.float32)
    np.testing.assert_allclose(episode.proprio[:, 2:8], expected, atol=1e-6)
    position = path_of(12).astype(np.float32)
    np.testing.assert_array_equal(episode.actions, np.concatenate([position[1:], position[-1:]]))
    assert list(episode.objects) == ["cube"]
    assert list(episode.images) == ["front"]
    assert episode.goal is not None
    assert episode.goal.shape == (2,)
    assert (episode.task, episode.embodiment) == ("lift the cube, gently", "robot arm")
    fields = {field.name: field for field in source.describe().fields}
    assert fields["object:cube"].origin == "obs/object[0:3]"
    assert fields["image:front"].shape == (12, 32, 48, 3)


@pytest.mark.parametrize("state", ["agent_pos", "state"])
def test_a_single_state_key_is_recognised(tmp_path: Path, state: str) -> None:
    with h5py.File(tmp_path / "push.hdf5", "w") as file:
        file["data/demo_0/actions"] = path_of(8, 1, 2)
        file[f"data/demo_0/obs/{state}"] = path_of(8, 2, 2)
        file["data/demo_0/obs/image"] = np.stack([image(i).transpose(2, 0, 1) for i in range(8)])
        file["data/demo_0"].attrs["language_instruction"] = "push the T"
    episode = open_source(tmp_path / "push.hdf5", fps=10)[0]
    np.testing.assert_array_equal(episode.proprio, path_of(8, 2, 2).astype(np.float32))
    np.testing.assert_array_equal(episode.images["image"][5], image(5))  # channels first are moved last
    assert episode.task == "push the T"


def test_lazy_frames_can_be_pickled_and_sliced(tmp_path: Path) -> None:
    frames = open_source(write_robomimic(tmp_path / "lift.hdf5"))[0].images["agentview"]
    again = pickle.loads(pickle.dumps(frames))
    assert len(again) == 12
    np.testing.assert_array_equal(again[-1], image(11))
    assert [frame[31, 47, 0] for frame in frames] == [8 * i for i in range(12)]
    assert len(frames[2:5]) == 3


def test_a_missing_frame_rate_asks_for_fps(tmp_path: Path) -> None:
    path = write_robomimic(tmp_path / "lift.hdf5", control_freq=None)
    with pytest.raises(InputError, match="--fps 20"):
        open_source(path)
    assert open_source(path, fps=15)[0].fps == 15
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="frame rate"):
            open_source(path, fps=bad)


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({"propio": "actions"}, "unknown field 'propio': did you mean 'proprio'"),
        ({"object:": "actions"}, "unknown field"),
        ({"proprio": "obs/robot0_eef_poss"}, "did you mean 'obs/robot0_eef_pos'"),
        ({"proprio": "../../demo_1/actions"}, "unknown key"),
        ({"proprio": "/etc/passwd"}, "unknown key"),
        ({"proprio": "actions[3:99]"}, "columns 0 to 6"),
        ({"proprio": "actions[3:3]"}, "out of range"),
        ({"proprio": "actions[0:3]@wxyz"}, "needs 4 columns"),
        ({"proprio": ""}, "unknown key"),
        ({"proprio": "obs/agentview_image"}, "no numbers"),
        ({"image:top": "actions"}, "did you mean|choose one of"),
        ({"image:../top": "obs/agentview_image"}, "camera .* is no plain name"),
        ({"object:a/b": "actions"}, "object .* is no plain name"),
        ({"object:a\nb": "actions"}, "object .* is no plain name"),
        ({"task": "x" * 5000}, "no line of text"),
        ({"task": "a\x1b[31m"}, "no line of text"),
    ],
)
def test_a_wrong_mapping_is_a_one_line_error(tmp_path: Path, mapping: dict[str, str], words: str) -> None:
    path = write_robomimic(tmp_path / "lift.hdf5", (4,))
    with pytest.raises(InputError, match=words) as caught:
        open_source(path, mapping=mapping)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_an_unrecognised_state_is_an_error_that_lists_the_keys(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "odd.hdf5", "w") as file:
        file["data/demo_0/actions"] = path_of(8, 1, 2)
        file["data/demo_0/obs/tool"] = path_of(8, 2, 2)
    with pytest.raises(InputError, match=r"--map proprio=KEY, of actions, obs/tool"):
        open_source(tmp_path / "odd.hdf5", fps=10)
    assert len(open_source(tmp_path / "odd.hdf5", fps=10, mapping={"proprio": "obs/tool"})[0]) == 8


def refused(path: Path, words: str, **options: object) -> None:
    with pytest.raises(DatasetError, match=words) as caught:
        list(open_source(path, fps=10, **options))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)


def test_huge_declared_shapes_and_chunks_are_refused_before_reading(tmp_path: Path) -> None:
    path = tmp_path / "huge.hdf5"
    with h5py.File(path, "w") as file:
        demo = file.create_group("data/demo_0")
        demo.create_dataset("actions", shape=(10, 2), dtype="f4")
        demo.create_dataset("obs/state", shape=(10, 2**40), dtype="f4", chunks=(1, 1024))
        demo.create_dataset(
            "obs/chunky", shape=(10, 2), dtype="f4", maxshape=(None, None), chunks=(2**14, 2**14)
        )
        demo.create_dataset("obs/image", shape=(10, 2**16, 2**16, 3), dtype="u1", chunks=(1, 16, 16, 3))
    refused(path, "claims to be")
    refused(path, "chunk", mapping={"proprio": "obs/chunky"})
    refused(path, "bytes a frame", mapping={"proprio": "actions"})


def test_links_out_of_the_file_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.hdf5"
    with h5py.File(secret, "w") as file:
        file["state"] = path_of(6, 0, 2)
    path = tmp_path / "links.hdf5"
    with h5py.File(path, "w") as file:
        demo = file.create_group("data/demo_0")
        demo["actions"] = path_of(6, 0, 2)
        demo["obs/soft"] = h5py.SoftLink("/data/demo_0/actions")
        demo["obs/state"] = h5py.ExternalLink("secret.hdf5", "/state")
        raw = [(str(tmp_path / "raw.bin"), 0, 6 * 8)]
        demo["obs"].create_dataset("raw", shape=(6,), dtype="f8", external=raw)
        layout = h5py.VirtualLayout(shape=(6, 2), dtype="f8")
        layout[:] = h5py.VirtualSource(str(secret), "state", shape=(6, 2))
        demo["obs"].create_virtual_dataset("virtual", layout)
    with pytest.raises(InputError, match="link, not followed"):
        open_source(path, fps=10, mapping={"proprio": "obs/state"})
    refused(path, "another file", mapping={"proprio": "obs/raw"})
    refused(path, "another file", mapping={"proprio": "obs/virtual"})


def test_a_key_missing_from_a_later_demonstration_is_named(tmp_path: Path) -> None:
    path = write_robomimic(tmp_path / "lift.hdf5")
    with h5py.File(path, "r+") as file:
        del file["data/demo_1/obs/robot0_eef_pos"]
    refused(path, "robot0_eef_pos' is missing")


def test_text_and_complex_values_are_not_numbers(tmp_path: Path) -> None:
    path = write_robomimic(tmp_path / "lift.hdf5")
    with h5py.File(path, "r+") as file:
        del file["data/demo_1/actions"]
        file["data/demo_1/actions"] = np.array([b"a", b"b"])
        file["data/demo_0/obs/complex"] = np.zeros((12, 2), complex)
    refused(path, "holds no numbers")
    with pytest.raises(InputError, match="no numbers"):
        open_source(path, mapping={"proprio": "obs/complex"})


def test_a_zero_quaternion_is_an_error(tmp_path: Path) -> None:
    path = write_robomimic(tmp_path / "lift.hdf5")
    with h5py.File(path, "r+") as file:
        file["data/demo_0/obs/robot0_eef_quat"][3] = 0
    refused(path, "quaternion of zeros", mapping={"proprio": "obs/robot0_eef_quat@xyzw"})


def test_odd_key_names_and_cyclic_groups_are_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "odd.hdf5", "w") as file:
        file["data/demo_0/actions"] = path_of(6, 0, 2)
        file["data/demo_0/obs/a\nb"] = path_of(6, 0, 2)
    refused(tmp_path / "odd.hdf5", "odd name")
    with h5py.File(tmp_path / "loop.hdf5", "w") as file:
        file["data/demo_0/actions"] = path_of(6, 0, 2)
        file["data/demo_0/again"] = file["data/demo_0"]  # a hard link to its own parent
    refused(tmp_path / "loop.hdf5", "nested too deeply")


def test_attributes_that_are_not_json_are_ignored(tmp_path: Path) -> None:
    path = write_robomimic(tmp_path / "lift.hdf5")
    for text in ("{", "[1]", '{"env_kwargs": 3}', "[" * 100_000):
        with h5py.File(path, "r+") as file:
            file["data"].attrs["env_args"] = text if len(text) < 60_000 else text[:60_000]
        assert open_source(path, fps=5)[0].embodiment == "unknown"
    with h5py.File(path, "r+") as file:
        file["data"].attrs["env_args"] = json.dumps({"env_kwargs": {"control_freq": -3}})
    with pytest.raises(DatasetError, match="-3 is no frame rate"):
        open_source(path)


def test_a_truncated_file_is_a_one_line_error(tmp_path: Path) -> None:
    whole = write_robomimic(tmp_path / "lift.hdf5", (5,)).read_bytes()
    path = tmp_path / "cut.hdf5"
    for length in (0, 1, 8, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        refused(path, "cannot be read")


def test_flipped_bytes_raise_only_recap_errors(tmp_path: Path) -> None:
    whole = bytearray(write_robomimic(tmp_path / "lift.hdf5", (5,), text=np.bytes_).read_bytes())
    with h5py.File(tmp_path / "lift.hdf5") as file:
        image_at = file["data/demo_0/obs/agentview_image"].id.get_offset()
        image_size = file["data/demo_0/obs/agentview_image"].size
    # Flip only bytes outside the pixels: any pixel value is valid, and pixels are most of the file.
    targets = [i for i in range(len(whole)) if not image_at <= i < image_at + image_size]
    rng = np.random.default_rng(0)
    path = tmp_path / "flipped.hdf5"
    outcomes = {"read": 0, "refused": 0}
    for _ in range(150):
        damaged = bytearray(whole)
        for at in rng.choice(targets, size=rng.integers(1, 6)):
            damaged[at] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        try:
            source = open_source(path, fps=10)
            check_dataset(source)
            source.describe()
            outcomes["read"] += 1
        except RecapError as error:
            assert "\n" not in str(error)  # noqa: PT017
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 10


def test_a_damaged_string_heap_does_not_crash_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The HDF5 library crashes or loops on some of these, so strings are read in a child process."""
    monkeypatch.setattr("recap.pool.importers.strings._TIMEOUT_S", 2.0)
    whole = write_robomimic(tmp_path / "lift.hdf5", (5,)).read_bytes()
    heap = whole.index(b"GCOL")
    length = int.from_bytes(whole[heap + 24 : heap + 32], "little")
    rest = heap + 32 + (length + 7) // 8 * 8  # the heap's entry for the unused space after its one string
    path = tmp_path / "heap.hdf5"
    for at in (rest + 9, heap + 8):
        damaged = bytearray(whole)
        damaged[at] = 0
        path.write_bytes(damaged)
        try:
            assert open_source(path, fps=10)[0].embodiment in ("unknown", "Panda")
        except DatasetError as error:
            assert "the HDF5 library fails on the text of 'env_args'" in str(error)  # noqa: PT017


def test_a_string_reader_that_hangs_is_stopped_after_a_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = tmp_path / "child.py"
    child.write_text("import time\ntime.sleep(60)\n")
    monkeypatch.setattr("recap.pool.importers.strings._CHILD", child)
    monkeypatch.setattr("recap.pool.importers.strings._TIMEOUT_S", 0.1)
    refused(write_robomimic(tmp_path / "lift.hdf5"), "fails on the text")
