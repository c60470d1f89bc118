"""Models of Hugging Face, whole or with LoRA adapters; needs the extra ``fupareto[hf]``, imported when used."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from fupareto.errors import UserError


def causal_lm(source: Any, lora: int = 0, targets: Sequence[str] | None = None) -> nn.Module:
    """Return a causal language model, with LoRA adapters on a frozen base if ``lora`` is above 0.

    Only the adapters are then in the vector that clients train and exchange; the hash of the base is in the summary of
    every run.

    Args:
        source: Name of a model on the hub, the path of a folder written by ``save_pretrained``, or a configuration of
            ``transformers``, from which a new model is built. Only safetensors files are loaded.
        lora: Rank of the adapters; 0 for none.
        targets: Names of the modules that get adapters; None: those that peft knows for the architecture.
    """
    transformers = _needed("transformers")
    if isinstance(source, str | Path):
        try:
            model = transformers.AutoModelForCausalLM.from_pretrained(
                str(source), use_safetensors=True, trust_remote_code=False
            )
        except (OSError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise UserError(
                f"the model '{source}' could not be loaded: {reason} Name a folder written by save_pretrained, or a "
                "model of the hub if there is a network"
            ) from error
    else:
        model = transformers.AutoModelForCausalLM.from_config(source)
    return adapted(model, lora, targets) if lora else model


def adapted(model: Any, rank: int, targets: Sequence[str] | None = None) -> nn.Module:
    """Return a model with LoRA adapters of a rank on its frozen weights."""
    peft, transformers = _needed("peft"), _needed("transformers")
    turned = any(isinstance(part, transformers.pytorch_utils.Conv1D) for part in model.modules())
    config = peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=rank,
        lora_alpha=2 * rank,
        lora_dropout=0.0,
        fan_in_fan_out=turned,
        target_modules=None if targets is None else list(targets),
    )
    try:
        found: nn.Module = peft.get_peft_model(model, config)
        return found
    except ValueError as error:
        raise UserError(f"the model cannot have LoRA adapters: {error}") from error


def _needed(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != name:
            raise
        raise UserError(
            f"models of Hugging Face need {name}, which is not installed: pip install 'fupareto[hf]', or in a clone of "
            "the repository pip install '.[hf]'"
        ) from error
