"""The classes of an exported file that transformers calls, as text with `$` fields."""

from __future__ import annotations

from string import Template

CONFIGURATION = Template('''# SPDX-License-Identifier: Apache-2.0
"""Configuration of $doc, whose sizes are those of `modeling_$stem.py`."""

from transformers import PretrainedConfig


class $config(PretrainedConfig):
    """Special ids and names of classes; the sizes of the model are fixed in its code."""

    model_type = "$model_type"
''')

_HEAD = """from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel
$imports
from .configuration_$stem import $config
from weft_generated import $root
from $$ROOT.blocks.kernels.decode_state import Capacity
from $$ROOT.extensions.interop.export.automodel.cache import FIRST, GenerationCache
from $$ROOT.extensions.interop.export.automodel.cache import mask_of, padding_before, rolled
"""

_CLASS = '''

class $model($bases):
    """$doc."""

    config_class = $config
    base_model_prefix = "model"
    main_input_name = "$main"
    _tied_weights_keys = $ties

    def __init__(self, config: $config) -> None:
        super().__init__(config)
        self.model = $root()
        self.post_init()
$tie
    def _init_weights(self, module: nn.Module) -> None:
        """Draw the weights of a module, if they are not loaded."""
        if hasattr(module, "initialize"):
            module.initialize(None)
'''

TIE = """
    def _tie_weights(self) -> None:
        \"\"\"Tie weights that were loaded; transformers 5 does this by `_tied_weights_keys`.\"\"\"
        self.model.tie()
"""
"""Method of models with tied weights."""


def _template(imports: str, bases: str, *bodies: str) -> Template:
    head = _HEAD.replace("$imports", imports)
    return Template(head + "".join(bodies[:-1]) + _CLASS.replace("$bases", bases) + bodies[-1])


_CAUSAL = '''
    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        past_key_values: GenerationCache | None = None,
        attention_mask: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs,
    ) -> dict:
        """Return the arguments of `forward` for the next positions."""
        past = 0 if past_key_values is None else past_key_values.get_seq_length()
        return {
            "input_ids": input_ids[:, past:],
            "attention_mask": attention_mask,
            "past_key_values": past_key_values,
            "use_cache": use_cache,
        }

    def forward(
        self,
$signature        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        past_key_values: GenerationCache | None = None,
        use_cache: bool | None = None,
        **kwargs,
    ) -> CausalLMOutputWithPast:
        """Return the logits of the next token after each position, [B, T, V].

        Args:
            input_ids: ids [B, T]; with a cache, those of the next positions.
            attention_mask: [B, L], 0 at padding before or after a sequence.
            labels: ids [B, T] for the loss, which shifts them; -100 where there is none.
            past_key_values: the cache that an earlier call returned.
            use_cache: whether to return a cache.
        """
        loss = None
        if use_cache or past_key_values is not None:
            if past_key_values is None:
                past_key_values = GenerationCache(self._begin, self._step)
            logits = past_key_values.extend(input_ids, attention_mask)
        else:
            mask = mask_of(attention_mask, input_ids)
            padding = padding_before(mask)
            outputs = self.model($mask$ids=rolled(input_ids, padding))
            logits = rolled(outputs["logits"], -padding)
        if labels is not None:
            size = logits.size(-1)
            loss = self.loss_function(logits, labels, vocab_size=size, **kwargs)$auxiliary
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=past_key_values)

    def _begin(self, rows: Tensor) -> dict:
        return self.model.begin(self._capacity(rows))
'''

_CACHE = '''
    def _capacity(self, rows: Tensor) -> Capacity:
        return Capacity(len(rows), 1, $limit, self.dtype, rows.device, first=FIRST)

    def _step(self, ids: Tensor, state: dict, position: int) -> Tensor:
        return self.model.step($step, state=state, position=position)["logits"]

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        """Return False: `forward` makes the cache."""
        return False
'''
"""What models that generate do with `GenerationCache`."""

_ENCODER_CLASSES = '''

@dataclass
class $encoded(ModelOutput):
    """What decoding reads, one row for each of the batch."""

$memory_fields

class $encoder(nn.Module):
    """The part of the model that does not depend on the output."""

    main_input_name = "$main"

    def __init__(self, model: $root) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
$signature        **kwargs,
    ) -> $encoded:
        """Return what decoding reads."""
        values = self.model.encode($encode)
        return $encoded($memory_returned)
'''

_SEQ2SEQ = '''
    def get_encoder(self, *args, **kwargs) -> $encoder:
        """Return the part of the model that does not depend on the output."""
        return $encoder(self.model)

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        past_key_values: GenerationCache | None = None,
        encoder_outputs: $encoded | None = None,
        decoder_attention_mask: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs,
    ) -> dict:
        """Return the arguments of `forward` for the next positions."""
        past = 0 if past_key_values is None else past_key_values.get_seq_length()
        return {
            "decoder_input_ids": input_ids[:, past:],
            "decoder_attention_mask": decoder_attention_mask,
            "encoder_outputs": encoder_outputs,
            "past_key_values": past_key_values,
            "use_cache": use_cache,
        }

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Return the labels [B, T] shifted to the right, with the begin id before them."""
        ids = F.pad(labels[:, :-1], (1, 0), value=self.config.decoder_start_token_id)
        return ids.masked_fill(ids == -100, self.config.pad_token_id)

    def forward(
        self,
$signature        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: $encoded | None = None,
        labels: Tensor | None = None,
        past_key_values: GenerationCache | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: int | Tensor | None = None,
        **kwargs,
    ) -> Seq2SeqLMOutput:
        """Return the logits of the next token after each position of the output, [B, T, V].

        Args:
            $main: the source; its mask is 0 at padding.
            decoder_input_ids: ids [B, T] of the output, after the begin id; with a cache, those of
                the next positions.
            decoder_attention_mask: [B, L], 0 at padding before or after an output.
            encoder_outputs: what the encoder returned, instead of the source.
            labels: ids [B, T] for the loss; -100 where there is none.
            past_key_values: the cache that an earlier call returned.
            use_cache: whether to return a cache.
            num_items_in_batch: number of labels by which their sum is divided; default: those here.
        """
        loss = None
        if decoder_input_ids is None and labels is not None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        if use_cache or past_key_values is not None or encoder_outputs is not None:
            if past_key_values is None:
                if encoder_outputs is None:
                    encoder_outputs = self.get_encoder()($passed)
                begin = functools.partial(self._begin, encoder_outputs)
                past_key_values = GenerationCache(begin, self._step)
            logits = past_key_values.extend(decoder_input_ids, decoder_attention_mask)
        else:
            outputs = self.model($call)
            logits = outputs["logits"]
        if labels is not None:
            reduction = "mean" if num_items_in_batch is None else "sum"
            loss = F.cross_entropy(
                logits.flatten(0, 1).float(), labels.flatten(), reduction=reduction
            )
            loss = loss if num_items_in_batch is None else loss / num_items_in_batch$auxiliary
        return Seq2SeqLMOutput(
            loss=loss, logits=logits, past_key_values=past_key_values if use_cache else None
        )

    def _begin(self, encoder_outputs: $encoded, rows: Tensor) -> dict:
        return self.model.begin(self._capacity(rows), $memory_rows)
'''

_FORWARD = '''
    def forward(
        self,
$signature        labels: Tensor | None = None,
        **kwargs,
    ) -> $output:
        """Return the logits, and the loss of labels; -100 stands for no label."""
        outputs = self.model($call)
        logits, loss = outputs["logits"], None
        if labels is not None:
            loss = self.loss_function(%s, **kwargs)$auxiliary
        return $output(loss=loss, logits=logits)
'''

_OUTPUT = '''

@dataclass
class $encoded(ModelOutput):
    """The outputs of the model."""

$fields'''

_MODEL = '''
    def forward(
        self,
$signature        **kwargs,
    ) -> $encoded:
        """Return the outputs by name."""
        outputs = self.model($call)
        return $encoded($returned)
'''

HEADS = {
    "CausalLM": _template(
        "from transformers import GenerationMixin\n"
        "from transformers.modeling_outputs import CausalLMOutputWithPast",
        "PreTrainedModel, GenerationMixin",
        _CAUSAL + _CACHE,
    ),
    "Seq2SeqLM": _template(
        "import functools\nfrom dataclasses import dataclass\n"
        "from transformers import GenerationMixin\n"
        "from transformers.modeling_outputs import ModelOutput, Seq2SeqLMOutput",
        "PreTrainedModel, GenerationMixin",
        _ENCODER_CLASSES,
        _SEQ2SEQ + _CACHE,
    ),
    "MaskedLM": _template(
        "from transformers.modeling_outputs import MaskedLMOutput",
        "PreTrainedModel",
        _FORWARD % "logits, labels, vocab_size=logits.size(-1)",
    ),
    "SequenceClassification": _template(
        "from transformers.modeling_outputs import SequenceClassifierOutput",
        "PreTrainedModel",
        _FORWARD % "labels, logits, self.config",
    ),
    "TokenClassification": _template(
        "from transformers.modeling_outputs import TokenClassifierOutput",
        "PreTrainedModel",
        _FORWARD % "logits, labels, self.config",
    ),
    "": _template(
        "from dataclasses import dataclass\nfrom transformers.modeling_outputs import ModelOutput",
        "PreTrainedModel",
        _OUTPUT,
        _MODEL,
    ),
}
"""Head to the text of its classes."""
