"""What the scheduler tells the worker in a step."""

from __future__ import annotations

from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata

from .handshake import Handshake, Workers


@dataclass(frozen=True)
class Load:
    """A prompt whose blocks are read: local_blocks[i] is filled from remote_blocks[i]."""

    request_id: str
    remote_request_id: str
    sources: Workers
    local_blocks: list[int]
    remote_blocks: list[int]


@dataclass(frozen=True)
class Unwanted:
    """Blocks at a prefiller that nobody will read."""

    remote_request_id: str
    sources: Workers


@dataclass
class StepMetadata(KVConnectorMetadata):
    """
    hold      request -> blocks of a prompt whose last token is computed in this step
    sending   requests that have finished: their blocks are freed when their holds have ended
    release   requests whose holds nobody will read, as they were aborted
    load      prompts to read
    cancel    requests that were aborted while they are read
    unwanted  blocks of prefillers to give back without reading them
    renew     prefiller -> its holds to keep for longer
    """

    hold: dict[str, list[int]] = field(default_factory=dict)
    sending: list[str] = field(default_factory=list)
    release: list[str] = field(default_factory=list)
    load: list[Load] = field(default_factory=list)
    cancel: list[str] = field(default_factory=list)
    unwanted: list[Unwanted] = field(default_factory=list)
    renew: dict[Handshake, list[str]] = field(default_factory=dict)

    def is_empty(self) -> bool:
        return not (self.hold or self.sending or self.release or self.load or self.cancel or self.unwanted or self.renew)
