"""Limits: how much a server takes on, and how sentences are put together."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Limits(BaseModel):
    """What a request may ask for, and what waits; all of it can be set from outside."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    texts: int = Field(default=128, ge=1)
    """Texts of one request."""
    characters: int = Field(default=5000, ge=1)
    """Characters of one text."""
    tokens: int = Field(default=512, ge=1)
    """Tokens of one text, and of what its translation must hold."""
    phrases: int = Field(default=16, ge=0)
    """Phrases that a request avoids, and that a text includes."""
    beam: int = Field(default=16, ge=1)
    """Hypotheses kept for each sentence."""
    output: int = Field(default=1024, ge=1)
    """Tokens of one output."""
    body: int = Field(default=2**20, ge=1)
    """Bytes of the body of one request."""
    connections: int = Field(default=1000, ge=1)
    """Connections at a time, idle ones too; a further one is answered 503 and closed."""
    queue: int = Field(default=1000, ge=1)
    """Sentences that wait; what does not find room is sent away."""
    patience: float = Field(default=60.0, gt=0)
    """Seconds that a request may take; afterwards its work is dropped."""
    batch: int = Field(default=32, ge=1)
    """Sentences that are decoded together."""
    wait: float = Field(default=0.005, ge=0)
    """Seconds that a sentence waits for others when the model is free."""
