"""Fill a file with Reason1's hidden states of instructions, the text input of Cosmos-Predict2.5.

    python encode_instructions.py states.safetensors "press the red button" "open the drawer"
    python encode_instructions.py states.safetensors --dataset data/arm --dataset data/other
    recap train robot.yaml --size 2b --set policy.text=states:states.safetensors …

The text encoder has 7 B parameters: 17 GB in 16 bits, on a GPU if there is one. An instruction takes 512
tokens of 100,352 numbers, 103 MB. A new instruction at deployment is encoded in the same way, before it is
used.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recap.features.pretrained import find_model, load_tokenizer
from recap.policies.sizes import COSMOS_HUB
from recap.policies.text_states import write_states
from recap.pool.opening import open_demonstrations

SYSTEM = "You are a helpful assistant who will provide prompts to an image generator."  # as in its training
N_TOKENS = 512
FILES = ("text_encoder/*", "tokenizer/*")


def all_layers(hidden: Sequence[Tensor]) -> Tensor:
    """(L, layers * d): the states of every layer but the embeddings, normalised for each token."""
    parts = [(one - one.mean(-1, keepdim=True)) / (one.std(-1, keepdim=True) + 1e-8) for one in hidden[1:]]
    return torch.cat(parts, dim=-1)[0]


@torch.inference_mode()
def encode(text: str, model: Any, tokenizer: Any, n_tokens: int = N_TOKENS) -> Tensor:
    """The states of one instruction, padded as in training."""
    said = [{"role": role, "content": [{"type": "text", "text": words}]}
            for role, words in (("system", SYSTEM), ("user", text))]  # fmt: skip
    found = tokenizer.apply_chat_template(
        said,
        tokenize=True,
        add_generation_prompt=False,
        max_length=n_tokens,
        truncation=True,
        padding="max_length",
    )
    ids = torch.tensor([found["input_ids"] if hasattr(found, "keys") else found], device=model.device)
    return all_layers(model(ids, output_hidden_states=True).hidden_states)


def main() -> None:
    """Encode the instructions that the file does not contain yet."""
    parser = argparse.ArgumentParser(description="Hidden states of instructions for a Cosmos backbone.")
    parser.add_argument("file", type=Path)
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--dataset", action="append", default=[], help="all instructions of it; repeatable")
    parser.add_argument(
        "--model", default=COSMOS_HUB, help="a diffusers folder or hub name with text_encoder"
    )
    options = parser.parse_args()
    texts = list(options.texts)
    for place in options.dataset:
        view = open_demonstrations(place)
        texts += [view.episode(episode_id).task for episode_id in view.episode_ids]
    import transformers

    folder = find_model(options.model, "text encoder", FILES)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model: Any = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(
        folder / "text_encoder", dtype=torch.bfloat16
    )
    tokenizer = load_tokenizer(folder / "tokenizer")
    states = {text: encode(text, model.to(device).eval(), tokenizer) for text in dict.fromkeys(texts)}
    write_states(options.file, states, options.model)
    print(f"{options.file}: {len(states)} instructions")


if __name__ == "__main__":
    main()
