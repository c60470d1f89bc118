"""Models of Hugging Face, built from configurations and loaded from a folder; adapters on a frozen base."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fupareto
from fupareto import hf, models
from fupareto.errors import UserError

transformers = pytest.importorskip("transformers")
pytest.importorskip("peft")


def config() -> object:
    return transformers.GPT2Config(
        vocab_size=16, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip


def texts(n: int, seed: int) -> dict[str, torch.Tensor]:
    ids = (torch.randint(16, (n, 1), generator=torch.Generator().manual_seed(seed)) + 3 * torch.arange(8)) % 16
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}


def test_adapters_are_trained_and_saved_on_a_frozen_base(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = hf.causal_lm(config(), lora=4)
    clients = {i: (texts(12, k), texts(6, k + 10)) for k, i in enumerate("abc")}
    federation = fupareto.simulate(model, clients, task="tokens")
    assert all("lora_" in name for name in federation.layout.names)
    trained = fupareto.train(federation, model, fupareto.FedAvg(rounds=2, lr=0.05, optimizer="adam", batch_size=6))
    result = fupareto.unlearn(federation, trained, ["b"], "renew", out=tmp_path / "run")
    summary = result.summary()
    assert summary["stages"]["initial"]["measures"]["retained"]["perplexity"] > 1
    assert summary["base"] == federation.layout.base() == result.place.config["base"]
    model.load_state_dict(result.model(), strict=True)
    model.save_pretrained(tmp_path / "adapter")  # type: ignore[operator]
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()


def test_a_fresh_adapter_does_nothing_yet() -> None:
    torch.manual_seed(0)
    model = hf.causal_lm(config(), lora=2)
    federation = fupareto.simulate(model, {i: (texts(4, 0), texts(4, 1)) for i in "ab"}, task="tokens")
    fresh = federation.layout.named(federation.fresh(1))
    assert all(bool((t == 0).all()) == ("lora_B" in name) for name, t in fresh.items())


def test_a_folder_is_loaded_by_name(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config())
    model.save_pretrained(tmp_path / "tiny")
    loaded = models.build(f"hf:{tmp_path / 'tiny'}", (8,), 16, seed=0, check=False, lora=2)
    x = texts(2, 0)["input_ids"]
    torch.testing.assert_close(loaded(x).logits, model.eval()(x).logits)
    with pytest.raises(UserError, match="could not be loaded"):
        hf.causal_lm(tmp_path / "nothing")
    with pytest.raises(UserError, match="lora = 2 is an option of models of Hugging Face"):
        models.build("mlp", (8,), 16, seed=0, lora=2)


def test_nothing_is_imported_before_it_is_used() -> None:
    code = "import sys, fupareto.api, fupareto.hf, fupareto.models\n"
    code += "print(*[m for m in ('transformers', 'peft') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
