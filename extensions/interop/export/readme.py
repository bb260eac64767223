"""README.md of a CTranslate2 export, with usage instructions."""

from __future__ import annotations

from dataclasses import dataclass

from ....plugin import Graph
from .vocabulary import Words

_TEXT = """# {name}, for CTranslate2

Written by `weft export`. {doc}

```python
import ctranslate2
{imports}
{opened}
{use}
```

{notes}
"""


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a program uses a tokenizer."""

    imports: str
    opens: str
    encodes: str
    decodes: str


_KINDS = {
    "model": _Kind(
        "import sentencepiece\n",
        'sentencepiece.SentencePieceProcessor(model_file="{file}")',
        'reads.encode("A dog runs.", out_type=str)',
        "{side}.decode({tokens})",
    ),
    "tokenizer": _Kind(
        "import tokenizers\n",
        'tokenizers.Tokenizer.from_file("{file}")',
        'reads.encode("A dog runs.").tokens',
        "{side}.decode([{side}.token_to_id(one) for one in {tokens}])",
    ),
    "symbols": _Kind("", "", '"A dog runs .".split()', '" ".join({tokens})'),
}
"""By the kind of its file: a SentencePiece model, a `tokenizer.json`, or a list of symbols."""


def _kind(name: str) -> str:
    """Return the kind of a tokenizer's file: `x.model`, `x.tokenizer.json`, `x.symbols.json`."""
    return name.removesuffix(".json").rpartition(".")[2]


def ct2_readme(graph: Graph, words: Words, *, decoder_only: bool) -> str:
    """Return the text of the README of a CTranslate2 folder.

    Args:
        graph: the exported graph.
        words: its vocabularies.
        decoder_only: whether the model is decoder-only.
    """
    special_tokens = words.special_tokens
    begin, end = words.target[special_tokens.begin], words.target[special_tokens.end]
    banned = (
        begin,
        words.target[special_tokens.pad],
        *(words.target[token] for token in special_tokens.never),
    )
    kind = "Generator" if decoder_only else "Translator"
    opened = [f'engine = ctranslate2.{kind}(".", device="cpu")']
    imports, notes = "", []
    tokens, text = '["12", "7", "30"]', "{tokens}"
    if words.reads is not None and words.writes is not None:
        names = [words.file_of(tokenizer) for tokenizer in (words.reads, words.writes)]
        read, written = (_KINDS[_kind(name)] for name in names)
        sides = {"reads": (names[0], read)}
        if names[1] != names[0] and not decoder_only:
            sides["writes"] = (names[1], written)
        imports = "".join(dict.fromkeys(kind.imports for _, kind in sides.values()))
        opened += [
            f"{side} = {kind.opens.format(file=name)}"
            for side, (name, kind) in sides.items()
            if kind.opens
        ]
        tokens = read.encodes
        text = written.decodes.replace("{side}", list(sides)[-1])
    else:
        notes.append("There is no tokenizer: a token is written as its id.")
        if not decoder_only:
            notes.append(f"If the source needs an end token, add it yourself: `{end}`.")
    if decoder_only:
        use = [
            f"result = engine.generate_batch([{tokens}], max_length=50, sampling_topk=1)[0]",
            "print(result.sequences[0])",
        ]
        notes.append("Choose the first token of the prompt yourself.")
    else:
        use = [
            f"result = engine.translate_batch([{tokens}], beam_size=5, length_penalty=1.0)[0]",
            f"print({text.replace('{tokens}', 'result.hypotheses[0]')})",
        ]
        ends = f" `{end}` is appended to each source automatically." if words.ends_source else ""
        notes.append(f"An output begins with `{begin}` and ends with `{end}`.{ends}")
        notes.append(
            "`length_penalty=A` divides log P by length^A, like `weft translate --penalty length "
            "--alpha A`; CTranslate2 does not have the GNMT penalty, weft's default."
        )
    never = ", ".join(f'["{word}"]' for word in dict.fromkeys(banned) if word != end)
    if never:
        notes.append(
            f"`weft` never outputs these tokens; to ban them here, use "
            f"`suppress_sequences=[{never}]`."
        )
    return _TEXT.format(
        name=graph.name,
        doc=graph.doc,
        imports=imports,
        opened="\n".join(opened),
        use="\n".join(use),
        notes="\n".join(notes),
    )
