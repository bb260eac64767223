"""BERT, GPT-2, BART, Marian and T5 of Hugging Face give the same logits after import."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from safetensors.torch import load_file, save_file
from torch import Tensor

Padded = Callable[..., tuple[Tensor, Tensor]]
Close = Callable[[Tensor, Tensor], None]

VOCAB = 40
PAD, EOS, START = 0, 1, 2
STACKS = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 30,
    "vocab_size": VOCAB,
    "pad_token_id": PAD,
    "eos_token_id": EOS,
    "decoder_start_token_id": START,
    "forced_eos_token_id": None,
}


@pytest.mark.parametrize("act", ["gelu", "gelu_new", "relu"])
def test_bert_with_padding_and_word_types(
    hf: Any, imported: Callable[..., Any], padded: Padded, close: Close, act: str
) -> None:
    """Logits agree at every unmasked position."""
    config = hf.BertConfig(
        vocab_size=VOCAB,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        hidden_act=act,
        max_position_embeddings=20,
        type_vocab_size=3,
    )
    theirs = hf.BertForMaskedLM(config)
    ours = imported(theirs, "bert")
    tokens, mask = padded(3, 9, VOCAB)
    types = tokens % 3

    with torch.no_grad():
        expected = theirs(tokens, attention_mask=mask.long(), token_type_ids=types).logits
        found = ours(tokens=tokens, token_types=types, mask=mask)["logits"]

    close(found[mask], expected[mask])


BERT = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
}


def roberta(hf: Any) -> Any:
    """Return a tiny RoBERTa, whose positions start after the padding id."""
    return hf.RobertaForMaskedLM(hf.RobertaConfig(**BERT, type_vocab_size=1, pad_token_id=1))


def xlm_r(hf: Any) -> Any:
    """Return a tiny XLM-R, which the table of RoBERTa imports."""
    config = hf.XLMRobertaConfig(**BERT, type_vocab_size=1, pad_token_id=1)
    return hf.XLMRobertaForMaskedLM(config)


def distilbert(hf: Any) -> Any:
    """Return a tiny DistilBERT, which has no token types."""
    sizes = {"vocab_size": VOCAB, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24}
    config = hf.DistilBertConfig(**sizes, max_position_embeddings=20)
    return hf.DistilBertForMaskedLM(config)


def albert(hf: Any) -> Any:
    """Return a tiny ALBERT: embeddings narrower than its one shared layer."""
    config = hf.AlbertConfig(**BERT, embedding_size=6)
    return hf.AlbertForMaskedLM(config)


@pytest.mark.parametrize("make", [roberta, xlm_r, distilbert, albert])
def test_relatives_of_bert_with_padding(
    hf: Any,
    imported: Callable[..., Any],
    padded: Padded,
    close: Close,
    make: Callable[[Any], Any],
) -> None:
    """Logits agree at every unmasked position; the padding id is 1, which no word has."""
    theirs = make(hf)
    ours = imported(theirs)
    tokens, mask = padded(3, 9, VOCAB)
    tokens = tokens.masked_fill(~mask, 1)

    with torch.no_grad():
        expected = theirs(tokens, attention_mask=mask.long()).logits
        found = ours(tokens=tokens, token_types=torch.zeros_like(tokens), mask=mask)["logits"]

    close(found[mask], expected[mask])


def test_the_next_sentence_head_is_ignored(
    hf: Any, imported: Callable[..., Any], padded: Padded, close: Close
) -> None:
    """BertForPreTraining is BERT with its masked-word head and more."""
    config = hf.BertConfig(
        vocab_size=VOCAB,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
    )
    theirs = hf.BertForPreTraining(config)
    ours = imported(theirs)
    tokens, mask = padded(2, 5, VOCAB)

    with torch.no_grad():
        expected = theirs(tokens, attention_mask=mask.long()).prediction_logits
        found = ours(tokens=tokens, token_types=torch.zeros_like(tokens), mask=mask)["logits"]

    close(found[mask], expected[mask])


@pytest.mark.parametrize("inner", [None, 20])
def test_gpt2_with_right_padding(
    hf: Any, imported: Callable[..., Any], padded: Padded, close: Close, inner: int | None
) -> None:
    """Padding on the right changes nothing, because no position reads a later one."""
    config = hf.GPT2Config(
        vocab_size=VOCAB, n_positions=20, n_embd=16, n_layer=2, n_head=2, n_inner=inner
    )
    theirs = hf.GPT2LMHeadModel(config)
    ours = imported(theirs, "gpt2")
    tokens, mask = padded(3, 9, VOCAB)

    with torch.no_grad():
        expected = theirs(tokens, attention_mask=mask.long()).logits
        found = ours(tokens=tokens)["logits"]

    close(found[mask], expected[mask])


OLD_NAMES: dict[str, Any] = {
    "bert": {"prefix": "bert.", "endings": {"LayerNorm.weight": "LayerNorm.gamma"}},
    "gpt2": {"prefix": "transformer.", "endings": {}},
}
"""Differences of old folders: no prefix, other suffixes, masks among the weights."""


@pytest.mark.parametrize("name", OLD_NAMES)
def test_names_of_old_folders_are_known(hf: Any, tmp_path: Path, name: str) -> None:
    """They give the same weights."""
    small = {"vocab_size": VOCAB, "hidden_size": 16, "num_hidden_layers": 2}
    if name == "bert":
        more = {"intermediate_size": 24, "num_attention_heads": 2}
        theirs = hf.BertForMaskedLM(hf.BertConfig(**small, **more))
    else:
        theirs = hf.GPT2LMHeadModel(hf.GPT2Config(**small, num_attention_heads=2, n_positions=20))
    theirs.save_pretrained(tmp_path)
    expected = weft.import_hf(tmp_path).weights
    file, old = tmp_path / "model.safetensors", OLD_NAMES[name]
    tensors = {key.removeprefix(old["prefix"]): tensor for key, tensor in load_file(file).items()}
    for new, ending in old["endings"].items():
        tensors = {key.replace(new, ending): tensor for key, tensor in tensors.items()}
    if name == "gpt2":
        tensors["h.0.attn.bias"] = torch.ones(1, 1, 20, 20).tril()
    save_file({key: tensor.clone() for key, tensor in tensors.items()}, file)

    found = weft.import_hf(tmp_path).weights

    assert expected.keys() == found.keys()
    assert all(torch.equal(found[path], weight) for path, weight in expected.items())


def bart(hf: Any) -> Any:
    """Return a tiny BART."""
    return hf.BartForConditionalGeneration(hf.BartConfig(**STACKS, bos_token_id=START))


def scaled_bart(hf: Any) -> Any:
    """Return a tiny BART with scaled embeddings and another activation."""
    return hf.BartForConditionalGeneration(
        hf.BartConfig(
            **STACKS, bos_token_id=START, scale_embedding=True, activation_function="relu"
        )
    )


def marian(hf: Any) -> Any:
    """Return a tiny OPUS-MT: padding as start token, SiLU, scaled embeddings."""
    config = {**STACKS, "decoder_start_token_id": PAD, "activation_function": "swish"}
    return hf.MarianMTModel(hf.MarianConfig(**config, scale_embedding=True))


def mbart(hf: Any) -> Any:
    """Return a tiny mBART: a norm before each sub-layer and after each stack."""
    return hf.MBartForConditionalGeneration(
        hf.MBartConfig(**STACKS, bos_token_id=START, scale_embedding=True)
    )


def pegasus(hf: Any) -> Any:
    """Return a tiny Pegasus, which begins with padding."""
    config = {**STACKS, "decoder_start_token_id": PAD}
    return hf.PegasusForConditionalGeneration(hf.PegasusConfig(**config, scale_embedding=True))


def m2m_100(hf: Any) -> Any:
    """Return a tiny M2M100, whose positions start after the padding id."""
    return hf.M2M100ForConditionalGeneration(hf.M2M100Config(**STACKS, bos_token_id=START))


def t5(hf: Any, **changes: Any) -> Any:
    """Return a tiny T5 with so few buckets and distances that the test covers all of them."""
    return hf.T5ForConditionalGeneration(
        hf.T5Config(
            vocab_size=VOCAB,
            d_model=16,
            d_kv=6,
            d_ff=24,
            num_layers=2,
            num_decoder_layers=3,
            num_heads=2,
            relative_attention_num_buckets=8,
            relative_attention_max_distance=6,
            decoder_start_token_id=PAD,
            pad_token_id=PAD,
            eos_token_id=EOS,
            **changes,
        )
    )


def t5_gated(hf: Any) -> Any:
    """Return a tiny T5 1.1: gates, and an untied, unscaled output projection."""
    model = t5(hf, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    model.lm_head.weight = torch.nn.Parameter(torch.randn(VOCAB, 16))
    return model


ENCODER_DECODERS = pytest.mark.parametrize(
    "make", [bart, scaled_bart, marian, mbart, pegasus, m2m_100, t5, t5_gated]
)


@ENCODER_DECODERS
def test_an_encoder_decoder_with_padding(
    hf: Any,
    imported: Callable[..., Any],
    padded: Padded,
    close: Close,
    make: Callable[[Any], Any],
) -> None:
    """Logits of every target position, with sources of several lengths."""
    theirs = make(hf)
    ours = imported(theirs)
    source, mask = padded(3, 11, VOCAB)
    target, _ = padded(3, 10, VOCAB)

    with torch.no_grad():
        expected = theirs(source, attention_mask=mask.long(), decoder_input_ids=target).logits
        found = ours(source=source, source_mask=mask, target=target)["logits"]

    close(found, expected)


@pytest.mark.parametrize(
    ("make", "by"),
    [
        (bart, 0.2),
        (scaled_bart, 0.2),
        (marian, 0.5),
        (mbart, 0.7),
        (pegasus, 0.3),
        (m2m_100, 0.7),
        (t5, 0.7),
        (t5_gated, 0.2),
    ],
)
def test_greedy_decoding_takes_the_same_words(
    hf: Any,
    imported: Callable[..., Any],
    padded: Padded,
    tmp_path: Path,
    make: Callable[[Any], Any],
    by: float,
) -> None:
    """A checkpoint that decodes ids equals the full Hugging Face model run again for every word.

    Weights are perturbed so much that the outputs of the sentences differ.
    """
    torch.manual_seed(0)
    theirs = make(hf)
    imported(theirs, by=by)
    source, mask = padded(4, 9, VOCAB)
    start, length = theirs.config.decoder_start_token_id, 12

    sources = [ids[real].tolist() for ids, real in zip(source, mask, strict=True)]
    weft.import_hf(tmp_path / "theirs").save(tmp_path / "ours")
    ours = weft.open(tmp_path / "ours", predict={"beam": 1, "max_length": length})
    found = [best for [best] in ours.decode(sources)]

    for row, hypothesis in enumerate(found):
        words = [start]
        while len(words) <= length and words[-1] != EOS:
            with torch.no_grad():
                logits = theirs(
                    source[row : row + 1],
                    attention_mask=mask[row : row + 1].long(),
                    decoder_input_ids=torch.tensor([words]),
                ).logits[0, -1]
            logits[[start, PAD]] = float("-inf")  # neither is a word
            words.append(int(logits.argmax()))
        assert list(hypothesis.tokens) == [word for word in words[1:] if word != EOS]
    assert len({hypothesis.tokens for hypothesis in found}) > 1
    assert len({word for hypothesis in found for word in hypothesis.tokens}) > 1


@pytest.mark.parametrize("name", ["bart", "t5"])
def test_a_folder_without_a_head_uses_the_tied_one(hf: Any, tmp_path: Path, name: str) -> None:
    """Published BART folders omit the head: it is the word table, and its bias is zero."""
    theirs = {"bart": bart, "t5": t5}[name](hf)
    base = theirs.model if name == "bart" else hf.T5Model(theirs.config)
    base.save_pretrained(tmp_path)

    made = weft.import_hf(tmp_path)

    assert torch.equal(made.weights["source_embedding.weight"], base.shared.weight)
    assert name == "t5" or made.weights["head.bias"].tolist() == [0.0] * VOCAB


def test_shared_tables_of_t5_are_one_tensor(hf: Any, imported: Callable[..., Any]) -> None:
    """There is one table of words, and one table of distances for each stack."""
    ours = imported(t5(hf))

    assert ours.head.weight is ours.source_embedding.weight
    for stack in (ours.encoder, ours.decoder):
        tables = {id(layer.self_attention.f.position.weight) for layer in stack}
        assert len(tables) == 1
