"""Tiny retrieval models of random weights, in the file forms of the real ones: BGE-M3, bge-reranker, Qwen3-Reranker."""

import json
from pathlib import Path
from typing import Any

# XLM-RoBERTa's own ids: positions are counted from the pad id on, so it must be 1.
SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]
# What a causal reranker is asked, as Qwen3-Reranker's template does: instruction, query and document, then the answer's place.
PAIR_TEMPLATE = (
    "{% set system = messages | selectattr('role', 'eq', 'system') | map(attribute='content') | first %}"
    "<s>{{ system | default('Judge.') }}|"
    "{{ messages | selectattr('role', 'eq', 'query') | map(attribute='content') | first }}|"
    "{{ messages | selectattr('role', 'eq', 'document') | map(attribute='content') | first }}</s>"
)
CHAT_TEMPLATE = "{% for m in messages if m.role in ('user', 'assistant') %}<s>{{ m.content }}</s>{% endfor %}"


def make_tokenizer(
    folder: Path, *, pairs: bool = True, template: str | None = None, window: int | None = None, words: bool = True
) -> None:
    """Bytes are tokens, and so are `yes` and `no` if `words`.

    pairs: a text is put between <s> and </s>, and two texts as XLM-RoBERTa puts them; else nothing is added.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    merges = [("y", "e"), ("ye", "s"), ("n", "o")] if words else []
    alphabet = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(merge) for merge in merges)]
    vocabulary = {token: index for index, token in enumerate([*SPECIALS, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    if pairs:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
        )
    tokenizer.add_special_tokens(SPECIALS)
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<s>"}
    limit = {} if window is None else {"model_max_length": window}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names, **limit)
    if template is not None:
        fast.chat_template = template
    fast.save_pretrained(folder)


def _roberta(window: int, **more: object) -> Any:
    from transformers import XLMRobertaConfig

    return XLMRobertaConfig(
        vocab_size=263,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=window + 2,
        type_vocab_size=1,
        initializer_range=0.4,
        **more,
    )


def _save(model: Any, folder: Path, pickled: bool) -> None:
    import torch

    model.save_pretrained(folder)
    if pickled:
        (folder / "model.safetensors").unlink()
        torch.save(model.state_dict(), folder / "pytorch_model.bin")


def make_encoder(
    folder: Path, *, window: int = 256, pickled: bool = False, prompts: dict[str, str] | None = None, seed: int = 3
) -> Path:
    """An XLM-RoBERTa embedding model as BGE-M3 is shipped: CLS pooling, normalised. `prompts`: its own."""
    import torch
    from transformers import XLMRobertaModel

    torch.manual_seed(seed)
    _save(XLMRobertaModel(_roberta(window)), folder, pickled)
    make_tokenizer(folder, window=window)
    kinds = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (path, kind) in enumerate(kinds)
    ]
    (folder / "1_Pooling").mkdir()
    for name, content in {
        "modules.json": modules,
        "sentence_bert_config.json": {"max_seq_length": window, "do_lower_case": False},
        "1_Pooling/config.json": {
            "word_embedding_dimension": 32,
            "pooling_mode_cls_token": True,
            "pooling_mode_mean_tokens": False,
        },
        "config_sentence_transformers.json": {"prompts": prompts or {}, "default_prompt_name": None},
    }.items():
        (folder / name).write_text(json.dumps(content, indent=2))
    return folder


def make_cross_encoder(folder: Path, *, labels: int = 1, window: int = 256) -> Path:
    """An XLM-RoBERTa sequence classifier as bge-reranker-v2-m3 is shipped: no modules.json."""
    import torch
    from transformers import XLMRobertaForSequenceClassification

    torch.manual_seed(4)
    _save(XLMRobertaForSequenceClassification(_roberta(window, num_labels=labels)), folder, False)
    make_tokenizer(folder, window=window)
    return folder


def make_causal_reranker(folder: Path, *, template: str | None = PAIR_TEMPLATE, words: bool = True, window: int = 256) -> Path:
    """A Qwen3 causal model as Qwen3-Reranker is shipped."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(5)
    config = Qwen3Config(
        vocab_size=263,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=window,
        initializer_range=0.4,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=2,
        pad_token_id=1,
    )
    _save(Qwen3ForCausalLM(config), folder, False)
    make_tokenizer(folder, pairs=False, template=template, window=window, words=words)
    return folder
