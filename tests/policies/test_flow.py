"""Flow matching on exactly known paths."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from recap.errors import InputError
from recap.policies.config import PolicyConfig, SamplingConfig
from recap.policies.flow import draw_levels, noisy, solve, velocity
from toy_policy import toy_config

TARGET = torch.tensor([[3.0, -2.0, 0.5], [10.0, 0.0, -7.0]])


def towards_target(x: Tensor, level: float) -> Tensor:
    """The exact velocity if all data is one point: straight away from it."""
    return (x - TARGET) / level


def drawn(seed: int) -> Tensor:
    return torch.randn(2, 3, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("sampler", ["euler", "unipc"])
@pytest.mark.parametrize("n_steps", [1, 2, 3, 5, 10])
def test_solving_the_exact_velocity_field_reaches_the_data_in_any_number_of_steps(
    sampler: str, n_steps: int
) -> None:
    config = SamplingConfig(sampler, n_steps)  # type: ignore[arg-type]
    assert torch.allclose(solve(towards_target, drawn(0), config), TARGET, atol=1e-3)


def test_the_path_from_data_to_noise_is_linear() -> None:
    noise = drawn(1)
    at = noisy(TARGET, noise, torch.tensor([0.0, 1.0]))
    assert torch.equal(at[0], TARGET[0])
    assert torch.equal(at[1], noise[1])
    step = noisy(TARGET, noise, torch.full((2,), 0.75)) - noisy(TARGET, noise, torch.full((2,), 0.25))
    assert torch.allclose(step, 0.5 * velocity(TARGET, noise), atol=1e-6)


@pytest.mark.parametrize("sampler", ["euler", "unipc"])
def test_each_step_evaluates_the_field_once_at_decreasing_noise_levels(sampler: str) -> None:
    levels: list[float] = []

    def field(x: Tensor, level: float) -> Tensor:
        levels.append(level)
        return towards_target(x, level)

    solve(field, drawn(0), SamplingConfig(sampler, 4))  # type: ignore[arg-type]
    assert len(levels) == 4
    assert levels == sorted(levels, reverse=True)
    assert levels[0] == pytest.approx(1.0, abs=2e-3)


@pytest.mark.parametrize("sampler", ["euler", "unipc"])
def test_equal_noise_gives_equal_samples(sampler: str) -> None:
    config = SamplingConfig(sampler, 3)  # type: ignore[arg-type]

    def field(x: Tensor, level: float) -> Tensor:
        return torch.sin(x) * level

    assert torch.equal(solve(field, drawn(4), config), solve(field, drawn(4), config))
    assert not torch.equal(solve(field, drawn(4), config), solve(field, drawn(5), config))


def test_temperature_scales_the_initial_noise() -> None:
    def begin(temperature: float) -> Tensor:
        return solve(lambda x, level: torch.zeros_like(x), drawn(0), SamplingConfig("euler", 2, temperature))

    assert torch.equal(begin(0.0), torch.zeros(2, 3))
    assert torch.equal(begin(0.5), drawn(0) * 0.5)


def test_invalid_sampling_settings_are_errors() -> None:
    for values, words in (
        (("heun",), "unknown sampler 'heun'"),
        (("euler", 0), "0 denoising steps denoise nothing"),
        (("euler", 2, 3.0), "temperature 3.0 is out of range"),
    ):
        with pytest.raises(InputError, match=words):
            SamplingConfig(*values)  # type: ignore[arg-type]


def levels_of(config: PolicyConfig, n: int = 20_000) -> Tensor:
    return draw_levels(n, config, torch.Generator().manual_seed(0), torch.device("cpu"))


def test_noise_levels_are_uniform_or_logit_normal_with_an_optional_shift() -> None:
    stock = toy_config()
    uniform, normal = levels_of(stock), levels_of(replace(stock, noise="logit_normal"))
    assert torch.equal(uniform, torch.rand(20_000, generator=torch.Generator().manual_seed(0)))
    assert uniform.std() == pytest.approx(12**-0.5, abs=0.01)
    assert normal.median() == pytest.approx(0.5, abs=0.01)
    assert torch.logit(normal).std() == pytest.approx(1.0, abs=0.02)
    shifted = levels_of(replace(stock, noise="logit_normal", noise_shift=5.0))
    assert torch.allclose(shifted, 5 * normal / (1 + 4 * normal))
    assert shifted.median() == pytest.approx(5 / 6, abs=0.01)
    assert 0 < shifted.min() < shifted.max() < 1


@pytest.mark.parametrize("change", [{"noise": "normal"}, {"noise_shift": 0.0}, {"noise_shift": float("nan")}])
def test_invalid_noise_settings_are_errors(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="noise"):
        replace(toy_config(), **change)
