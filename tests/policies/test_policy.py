"""The policy: stateless, batched, and careful about what it is given."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from recap.errors import InputError
from recap.policies.config import ImageConfig
from recap.policies.policy import Statistics, TrainedPolicy
from recap.policies.wam import WorldActionModel
from recap.types import Conditioning, Observation
from toy_policy import in_world, moments, nothing_retrieved, toy_config, toy_policy, toy_stamp, toy_statistics

Moments = tuple[list[Observation], list[Conditioning]]


@pytest.fixture(scope="module")
def policy() -> TrainedPolicy:
    return toy_policy()


@pytest.fixture(scope="module")
def three(policy: TrainedPolicy) -> Moments:
    return moments(policy, 3)


def dice(*seeds: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def test_a_batch_is_the_same_as_each_alone(policy: TrainedPolicy, three: Moments) -> None:
    observations, given = three
    together = policy.predict_action_chunk(observations, given, dice(0, 1, 2))
    for i, chunk in enumerate(together):
        alone = policy.predict_action_chunk([observations[i]], [given[i]], dice(i))[0]
        assert np.allclose(chunk.actions, alone.actions, atol=1e-4, rtol=1e-4)
        assert np.allclose(chunk.predicted_latents, alone.predicted_latents, atol=1e-4)  # type: ignore[arg-type]


def test_a_chunk_is_the_retrieved_one_and_a_residual(policy: TrainedPolicy, three: Moments) -> None:
    for chunk, given in zip(policy.predict_action_chunk(*three, dice(0, 1, 2)), three[1], strict=True):
        assert chunk.actions.shape == (8, 2)
        assert np.allclose(chunk.actions - chunk.residual, given.actions[0], atol=1e-3)
        assert np.abs(chunk.residual).max() > 1


def test_it_foretells_the_state_and_the_picture_at_the_chunk_s_end(
    policy: TrainedPolicy, three: Moments
) -> None:
    chunk = policy.predict_action_chunk(*three, dice(0, 1, 2))[0]
    assert chunk.predicted_state is not None
    assert chunk.predicted_latents is not None
    assert chunk.predicted_state.shape == (2 + 4,)
    assert chunk.predicted_latents.shape == (1, 16, 2, 2)
    assert policy.decode_frames(chunk.predicted_latents).shape == (1, 16, 16, 3)


def test_every_chunk_has_fresh_noise_and_a_seed_fixes_it(policy: TrainedPolicy, three: Moments) -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = (policy.predict_action_chunk(*three, generator)[0].actions for _ in range(2))
    again = policy.predict_action_chunk(*three, torch.Generator().manual_seed(0))[0].actions
    assert not np.allclose(first, second)
    assert np.array_equal(first, again)


def test_without_temperature_there_is_one_answer(policy: TrainedPolicy, three: Moments) -> None:
    cold = policy.with_sampling(temperature=0.0, n_steps=3)
    a, b = (cold.predict_action_chunk(*three, dice(*seeds))[0].actions for seeds in ((0, 1, 2), (3, 4, 5)))
    assert np.array_equal(a, b)
    assert policy.config.sampling.temperature == 1.0, "the policy itself is as it was"
    assert cold.fingerprint == policy.fingerprint


def test_nothing_retrieved_is_a_moment_like_any_other(policy: TrainedPolicy, three: Moments) -> None:
    observations, given = three
    empty = nothing_retrieved(observations[0], policy.config)
    chunk, neighbour = policy.predict_action_chunk(observations[:2], [empty, given[1]], dice(0, 1))
    assert np.isfinite(chunk.actions).all()
    assert np.allclose(chunk.actions - chunk.residual, empty.now, atol=1e-3), "it is added to holding still"
    alone = policy.predict_action_chunk([observations[1]], [given[1]], dice(1))[0]
    assert np.allclose(neighbour.actions, alone.actions, atol=1e-3)
    assert policy.predict_action_chunk([], []) == []


def test_the_retrieved_chunk_matters(policy: TrainedPolicy, three: Moments) -> None:
    observations, given = three
    other = replace(given[0], actions=given[0].actions + 30)
    a, b = (policy.predict_action_chunk(observations[:1], [g], dice(0))[0] for g in (given[0], other))
    assert not np.allclose(a.residual, b.residual)


@pytest.mark.parametrize("what", ["proprio", "object_now", "actions"])
def test_a_number_that_is_not_finite_is_refused_in_one_line(
    what: str, policy: TrainedPolicy, three: Moments
) -> None:
    observations, given = list(three[0]), list(three[1])
    if what == "proprio":
        observations[1] = replace(observations[1], proprio=np.array([np.nan, 0], np.float32))
    else:
        given[1] = replace(given[1], **{what: np.full_like(getattr(given[1], what), np.inf)})
    with pytest.raises(InputError, match=r"not finite .*: nothing is done") as caught:
        policy.predict_action_chunk(observations, given)
    assert "\n" not in str(caught.value)


def test_images_that_do_not_fit_are_refused_in_one_line(policy: TrainedPolicy, three: Moments) -> None:
    observations, given = three
    for changes, words in (
        ({"images": {}}, "looks through camera 'top', and the observation has none"),
        (
            {"images": {"side": observations[0].images["top"]}},
            r"camera 'top', and the observation has .'side'.",
        ),
        (
            {"images": {"top": np.zeros((48, 64, 3), np.uint8)}},
            "is 64×48 px",
        ),
    ):
        with pytest.raises(InputError, match=words):
            policy.predict_action_chunk([replace(observations[0], **changes)], given[:1])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="come without latents: an agent encodes them"):
        policy.predict_action_chunk(observations[:1], [replace(given[0], latents=None)])


def test_a_policy_that_cannot_be_used_is_not_made() -> None:
    config = toy_config()
    model = WorldActionModel(config)
    with pytest.raises(InputError, match="sees images and has no autoencoder"):
        TrainedPolicy(model, toy_statistics(config), toy_stamp())
    state = WorldActionModel(toy_config(inputs="S"))
    whole = toy_statistics(state.config)
    less = {name: value for name, value in whole.std.items() if name != "proprio"}
    with pytest.raises(InputError, match="statistics lack slot 'proprio'"):
        TrainedPolicy(state, Statistics(whole.mean, less), toy_stamp())
    with pytest.raises(InputError, match="unknown view"):
        ImageConfig(view="fisheye")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"inputs": "S"},
        {"inputs": "I"},
        {"residual": False},
        {"retrieval": False, "residual": False},
        {"future_image": False, "future_state": False},
        {"inputs": "S", **in_world()},
    ],
)
def test_every_ablation_predicts(changes: dict[str, object]) -> None:
    policy = toy_policy(toy_config(**changes))
    chunk = policy.predict_action_chunk(*moments(policy, 1), dice(0))[0]
    assert np.isfinite(chunk.actions).all()
    assert (chunk.predicted_state is None) == (not policy.config.future_state)


def test_the_instruction_is_read(policy: TrainedPolicy, three: Moments) -> None:
    observations, given = three
    a, b = (
        policy.predict_action_chunk([replace(observations[0], task=task)], given[:1], dice(0))[0].actions
        for task in ("push the block", "leave it alone")
    )
    assert not np.array_equal(a, b)
