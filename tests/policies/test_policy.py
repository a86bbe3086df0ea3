"""The policy: stateless, batched, with checked inputs."""

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


def test_predictions_do_not_depend_on_the_batch(policy: TrainedPolicy, three: Moments) -> None:
    observations, given = three
    together = policy.predict_action_chunk(observations, given, dice(0, 1, 2))
    for i, chunk in enumerate(together):
        alone = policy.predict_action_chunk([observations[i]], [given[i]], dice(i))[0]
        assert np.allclose(chunk.actions, alone.actions, atol=1e-4, rtol=1e-4)
        assert np.allclose(chunk.predicted_latents, alone.predicted_latents, atol=1e-4)  # type: ignore[arg-type]


def test_the_actions_are_the_retrieved_chunk_plus_the_residual(policy: TrainedPolicy, three: Moments) -> None:
    for chunk, given in zip(policy.predict_action_chunk(*three, dice(0, 1, 2)), three[1], strict=True):
        assert chunk.actions.shape == (8, 2)
        assert np.allclose(chunk.actions - chunk.residual, given.actions[0], atol=1e-3)
        assert np.abs(chunk.residual).max() > 1


def test_the_state_and_image_at_the_end_of_the_chunk_are_predicted(
    policy: TrainedPolicy, three: Moments
) -> None:
    chunk = policy.predict_action_chunk(*three, dice(0, 1, 2))[0]
    assert chunk.predicted_state is not None
    assert chunk.predicted_latents is not None
    assert chunk.predicted_state.shape == (2 + 4,)
    assert chunk.predicted_latents.shape == (1, 16, 2, 2)
    assert policy.decode_frames(chunk.predicted_latents).shape == (1, 16, 16, 3)


def test_every_chunk_uses_new_noise_which_the_seed_determines(policy: TrainedPolicy, three: Moments) -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = (policy.predict_action_chunk(*three, generator)[0].actions for _ in range(2))
    again = policy.predict_action_chunk(*three, torch.Generator().manual_seed(0))[0].actions
    assert not np.allclose(first, second)
    assert np.array_equal(first, again)


def test_at_temperature_zero_predictions_are_deterministic(policy: TrainedPolicy, three: Moments) -> None:
    cold = policy.with_sampling(temperature=0.0, n_steps=3)
    a, b = (cold.predict_action_chunk(*three, dice(*seeds))[0].actions for seeds in ((0, 1, 2), (3, 4, 5)))
    assert np.array_equal(a, b)
    assert policy.config.sampling.temperature == 1.0, "the policy itself is unchanged"
    assert cold.fingerprint == policy.fingerprint


def test_without_matches_the_residual_is_added_to_holding_still(
    policy: TrainedPolicy, three: Moments
) -> None:
    observations, given = three
    empty = nothing_retrieved(observations[0], policy.config)
    chunk, neighbour = policy.predict_action_chunk(observations[:2], [empty, given[1]], dice(0, 1))
    assert np.isfinite(chunk.actions).all()
    assert np.allclose(chunk.actions - chunk.residual, empty.now, atol=1e-3), (
        "the residual is added to the current position"
    )
    alone = policy.predict_action_chunk([observations[1]], [given[1]], dice(1))[0]
    assert np.allclose(neighbour.actions, alone.actions, atol=1e-3)
    assert policy.predict_action_chunk([], []) == []


def test_the_residual_depends_on_the_retrieved_chunk(policy: TrainedPolicy, three: Moments) -> None:
    observations, given = three
    other = replace(given[0], actions=given[0].actions + 30)
    a, b = (policy.predict_action_chunk(observations[:1], [g], dice(0))[0] for g in (given[0], other))
    assert not np.allclose(a.residual, b.residual)


@pytest.mark.parametrize("what", ["proprio", "object_now", "actions"])
def test_non_finite_inputs_are_an_error_of_one_line(what: str, policy: TrainedPolicy, three: Moments) -> None:
    observations, given = list(three[0]), list(three[1])
    if what == "proprio":
        observations[1] = replace(observations[1], proprio=np.array([np.nan, 0], np.float32))
    else:
        given[1] = replace(given[1], **{what: np.full_like(getattr(given[1], what), np.inf)})
    with pytest.raises(InputError, match=r"not finite .*: nothing is done") as caught:
        policy.predict_action_chunk(observations, given)
    assert "\n" not in str(caught.value)


def test_missing_or_misshapen_images_are_errors(policy: TrainedPolicy, three: Moments) -> None:
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


def test_a_policy_without_autoencoder_or_statistics_is_an_error() -> None:
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


def test_the_actions_depend_on_the_instruction(policy: TrainedPolicy, three: Moments) -> None:
    observations, given = three
    a, b = (
        policy.predict_action_chunk([replace(observations[0], task=task)], given[:1], dice(0))[0].actions
        for task in ("push the block", "leave it alone")
    )
    assert not np.array_equal(a, b)
