"""README.md of a CTranslate2 export, with usage instructions."""

from __future__ import annotations

from ...graphs.ir.graph import Graph
from ..data.symbols import SYMBOLS
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
        *(words.target[one] for one in special_tokens.never),
    )
    kind = "Generator" if decoder_only else "Translator"
    opened = [f'engine = ctranslate2.{kind}(".", device="cpu")']
    imports, notes = "", []
    two, symbols = "source.model" in words.tokenizers, SYMBOLS in words.tokenizers
    if words.tokenizers:
        imports = "import sentencepiece\n"
        reads, writes = ("source.model", "target.model") if two else ("tokenizer.model",) * 2
        opened.append(f'reads = sentencepiece.SentencePieceProcessor(model_file="{reads}")')
        if two and not symbols:
            opened.append(f'writes = sentencepiece.SentencePieceProcessor(model_file="{writes}")')
        tokens = 'reads.encode("A dog runs.", out_type=str)'
    else:
        tokens = '["12", "7", "30"]'
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
        written = "result.hypotheses[0]"
        shown = f"{'writes' if two else 'reads'}.decode({written})" if words.tokenizers else written
        shown = f'" ".join({written})' if symbols else shown
        use = [
            f"result = engine.translate_batch([{tokens}], beam_size=5, length_penalty=1.0)[0]",
            f"print({shown})",
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
