"""Scripts of the research folder, with small replacements for large models."""

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

SCRIPTS = Path(__file__).parents[2] / "research" / "scripts"


def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_instruction_is_encoded_as_normalised_hidden_states_of_all_layers() -> None:
    encode = script("encode_instructions").encode
    said: list[Any] = []

    class Tokenizer:
        def apply_chat_template(self, conversation: Any, **options: Any) -> list[int]:
            said.append((conversation, options))
            return [5, 6, 7, 0][: options["max_length"]]

    class Model:
        device = torch.device("cpu")

        def __call__(self, ids: Tensor, output_hidden_states: bool) -> Any:
            states = torch.arange(24.0).view(1, 4, 6).square()
            return SimpleNamespace(hidden_states=[states * 0, states, states + 3 * ids[..., None]])

    found = encode("press the button", Model(), Tokenizer(), 4)
    assert found.shape == (4, 12), "two layers concatenated, without the embeddings"
    each = found.view(4, 2, 6)
    assert torch.allclose(each.mean(-1), torch.zeros(4, 2), atol=1e-5)
    assert torch.allclose(each.std(-1), torch.ones(4, 2), atol=1e-4)
    conversation, options = said[0]
    assert [turn["role"] for turn in conversation] == ["system", "user"]
    assert conversation[1]["content"] == [{"type": "text", "text": "press the button"}]
    assert options["padding"] == "max_length"


def test_rates_leave_out_the_steps_with_compilation(tmp_path: Path) -> None:
    full_size = script("full_size_run")
    rows = [{"iteration": 25, "samples_per_s": 3.0}, {"iteration": 50, "samples_per_s": 24.0}]
    rows += [{"iteration": 75, "samples_per_s": 26.0, "loss/action": 1.5}, {"held_out/action": 2.0}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = full_size.rates(tmp_path / "metrics.jsonl", 10, {"step_ms": 380.0})
    assert found["steps"] == 50
    assert found["steps_per_s"] == 2.5
    assert found["of_the_network_alone"] == 0.95
    assert (found["loss"], found["held_out"]) == ({"loss/action": 1.5}, {"held_out/action": 2.0})
    assert "failed" in full_size.rates(tmp_path / "none.jsonl", 10, {})


def test_confidence_is_counted_for_first_looks_and_for_all_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    found = script("robosuite_confidence").counts([[0.01, 0.5, 0.5], [0.2, 0.04]])
    assert found == {"episodes": 2, "first_below": 1, "looks": 5, "below": 2, "median": 0.2}


def test_rows_are_counted_by_the_phase_in_which_episodes_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    rows = script("robosuite_rows")
    ended = {name: float(name != "success") for name in rows.PHASES}
    kept = {"ours/iiwa/150/door/1": ended, "ours/iiwa/150/door/4": dict.fromkeys(rows.PHASES, 1.0)}
    kept["ours/iiwa/150/door/7"] = {**dict.fromkeys(rows.PHASES, 0.0), "reached": 1.0}
    found = rows.summary(kept)["ours/iiwa/150/door"]
    assert (found["successes"], found["episodes"]) == (1, 3)
    assert found["without"] == {"success": 1, "grasped": 1}
    assert "| ours, kp 150 | – | – | – | – | – | 1 of 3 [6, 79] | – | 1 of 3 [6, 79] |" in rows.table(kept)
