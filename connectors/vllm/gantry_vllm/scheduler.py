"""The scheduler's half of the connector: which blocks are kept, and which are read."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Optional

from .groups import NULL_BLOCK, Blocks, Group, left_to_the_decoder, needed, still_there
from .handshake import KEY, WorkerCache, Workers, compatibility_hash, prompt_digest
from .metadata import Load, StepMetadata, Unwanted
from .offer import Offer, hold_seconds, offer_of, sources_of
from .places import Places
from .renewals import Renewals
from .stats import Recorder

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.request import Request

log = logging.getLogger("vllm.gantry")


class Scheduler:
    """Its methods are called by vLLM's scheduler, and make no call of Gantry.

    A prefiller's request has {"do_remote_decode": true} in its kv_transfer_params. The answer has the parameters that
    the decoder's request takes, in the shape of NixlConnector's.
    """

    def __init__(self, engine_id: str, groups: list[Group], factors: dict[str, Any], hold_ttl: float, places: Places,
                 recorder: Recorder) -> None:
        self._engine_id, self._groups, self._factors = engine_id, groups, factors
        self._hold_ttl, self._places, self._recorder = hold_ttl, places, recorder
        self._left = left_to_the_decoder(groups)
        self._renewals = Renewals()
        self._mine: Workers = ()
        self._manager: "Optional[KVCacheManager]" = None
        self._producing: "dict[str, Request]" = {}  # whose prompts are being computed
        self._held: dict[str, Blocks] = {}
        self._loading: dict[str, Unwanted] = {}
        self._offers: dict[str, tuple[Offer, int]] = {}  # and how many tokens of the prompt are in the prefix cache
        self._digests: dict[str, str] = {}  # of the prompts of requests that wait: vLLM asks for each in many steps
        self._step = StepMetadata()

    def bind(self, manager: "KVCacheManager") -> None:
        self._manager = manager

    def set_handshake(self, workers: list[WorkerCache]) -> None:
        """In the order of their ranks."""
        self._mine = tuple(worker.source for worker in workers)
        self._factors["layout"] = workers[0].layout

    # The decoder

    def added(self, request: "Request") -> None:
        """The prefiller keeps the blocks from now on until they were read, however long the request waits."""
        params = request.kv_transfer_params
        if params and params.get("do_remote_decode") and self._left:
            self._shorten(request)
        if not params or not params.get("do_remote_prefill"):
            return
        try:
            remote_request, sources = sources_of(params, self._places)
        except ValueError:
            return  # said when the request is scheduled
        self._renewals.add(request.request_id, sources, remote_request, hold_seconds(params))

    def matched_tokens(self, request: "Request", computed: int) -> tuple[int, bool]:
        params = request.kv_transfer_params
        if not params or not params.get("do_remote_prefill"):
            return 0, False
        if request.request_id not in self._digests:
            self._digests[request.request_id] = prompt_digest(request, max(1, self._tokens_to_read(request)))
        try:
            offer = offer_of(params, self._places, self._factors, self._groups, self._digests[request.request_id],
                             self._tokens_to_read(request), computed)
        except ValueError as why:
            log.error("the prompt of request %s is computed here: %s", request.request_id, why)
            params["do_remote_prefill"] = False
            self._renewals.remove(request.request_id)
            self._give_back(params)
            self._recorder.computed_instead(max(group.count(request.num_prompt_tokens) - computed // group.block_size
                                                for group in self._groups))
            return 0, False
        self._renewals.add(request.request_id, offer.sources, offer.remote_request_id, hold_seconds(params))
        self._offers[request.request_id] = offer, computed
        missing = self._tokens_to_read(request) - computed
        return (missing, True) if missing > 0 else (0, False)

    def _tokens_to_read(self, request: "Request") -> int:
        """vLLM computes at least the last token of a prompt here."""
        return int(request.num_prompt_tokens) - self._left

    def blocks_allocated(self, request: "Request", blocks: "KVCacheBlocks", external_tokens: int) -> None:
        params = request.kv_transfer_params
        if not params:
            return
        if params.get("do_remote_decode"):
            if self._held.pop(request.request_id, None) is None:
                self._producing[request.request_id] = request
            else:
                self._step.release.append(request.request_id)  # it was preempted, and has other blocks now: they are not offered
        if request.request_id not in self._offers:
            return
        params["do_remote_prefill"] = False  # once for each request, also when it is computed again
        offer, computed = self._offers.pop(request.request_id)
        unwanted = Unwanted(offer.remote_request_id, offer.sources)
        if external_tokens <= 0:
            self._renewals.remove(request.request_id)
            self._step.unwanted.append(unwanted)
            return
        tokens = self._tokens_to_read(request)
        local = needed(self._groups, blocks.get_block_ids(), tokens, computed)
        remote = needed(self._groups, offer.blocks, tokens, computed)
        # A window has no block here where vLLM will not look at it.
        pairs = [(mine, theirs) for mine, theirs in zip(local, remote) if mine != NULL_BLOCK]
        self._step.load.append(Load(request.request_id, offer.remote_request_id, offer.sources, [mine for mine, _ in pairs],
                                    [theirs for _, theirs in pairs]))
        self._loading[request.request_id] = unwanted

    def received(self, requests: set[str]) -> None:
        for request in requests:
            self._loading.pop(request, None)
            self._renewals.remove(request)

    def _give_back(self, params: dict[str, Any]) -> None:
        """Lets the prefiller free the blocks, where the parameters say who it is. Otherwise its hold ends at its time."""
        try:
            self._step.unwanted.append(Unwanted(*sources_of(params, self._places)))
        except ValueError as why:
            log.debug("no prefiller is told that its blocks are not read: %s", why)

    # The prefiller

    def _shorten(self, request: "Request") -> None:
        """Takes off the tokens that are left to the decoder, as NixlConnector does. A prompt that must stay whole is not offered."""
        if request.num_prompt_tokens <= self._left:
            return  # the decoder reads nothing
        if request.prompt_token_ids is None or request.get_skip_reading_prefix_cache():
            assert request.kv_transfer_params is not None
            request.kv_transfer_params["do_remote_decode"] = False
            log.info("the prompt of request %s is not offered: it is of embeddings, or all of its tokens are to be computed",
                     request.request_id)
            return
        for tokens in (request.prompt_token_ids, request._all_token_ids):
            del tokens[-self._left:]
        request.num_prompt_tokens -= self._left
        request.max_tokens = 1

    # Both

    def build(self, output: "SchedulerOutput") -> StepMetadata:
        """What the worker is told in this step."""
        for name, tokens in output.num_scheduled_tokens.items():
            request = self._producing.get(name)
            if request is None or request.num_computed_tokens + tokens < request.num_prompt_tokens:
                continue
            del self._producing[name]
            assert self._manager is not None
            prompt = request.num_prompt_tokens
            blocks = tuple(list(ids[:group.count(prompt)])
                           for group, ids in zip(self._groups, self._manager.get_block_ids(name)))
            self._held[name] = blocks
            self._step.hold[name] = [block for block in needed(self._groups, blocks, prompt) if block != NULL_BLOCK]
        self._step.renew = self._renewals.due()
        step, self._step = self._step, StepMetadata()
        return step

    def finished(self, request: "Request", blocks: Blocks) -> tuple[bool, Optional[dict[str, Any]]]:
        """(whether the blocks are kept until the worker says so, the decoder's kv_transfer_params)"""
        from vllm.v1.request import RequestStatus

        name, params = request.request_id, request.kv_transfer_params or {}
        self._producing.pop(name, None)
        self._offers.pop(name, None)
        self._digests.pop(name, None)
        self._renewals.remove(name)
        if name in self._loading:
            self._step.cancel.append(name)
            return False, None  # vLLM keeps the blocks until the worker says that the read has ended
        if params.get("do_remote_prefill"):
            self._give_back(params)  # aborted before it was scheduled
            return False, None
        held = self._held.pop(name, None)
        if held is None:
            return False, None
        whole = request.status in (RequestStatus.FINISHED_LENGTH_CAPPED, RequestStatus.FINISHED_STOPPED)
        offered = still_there(held, blocks)
        if not whole or offered is None or not self._mine:
            self._step.release.append(name)
            return False, None
        self._step.sending.append(name)
        return True, self._params_of(request, offered)

    def _params_of(self, request: "Request", offered: Blocks) -> dict[str, Any]:
        address = self._mine[0].address
        host, port = (address, "0") if address.startswith("unix:") else address.rsplit(":", 1)
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": [list(blocks) for blocks in offered],
            "remote_engine_id": self._engine_id,
            "remote_request_id": request.request_id,
            "remote_host": host,
            "remote_port": int(port),
            "tp_size": len(self._mine),
            "pp_size": 1,  # others are refused at the start
            "dcp_size": 1,
            "transfer_mode": "pull",  # the decoder asks, also where the prefiller's sidecar moves the bytes
            "remote_num_tokens": request.num_prompt_tokens,
            "remote_blocks_expiry_time": time.time() + self._hold_ttl,
            KEY: {"workers": [worker.params() for worker in self._mine], "hold_ttl": self._hold_ttl,
                  "prompt": prompt_digest(request), "compatibility": self._factors,
                  "hash": compatibility_hash(self._factors)},
        }
