"""Every other provider, through pydantic-ai's model layer (the `providers` extra).

Turns our requests into pydantic-ai's messages and its stream into our events; `connect` wraps the result
in the usual retries. An answer with parts that only its provider understands is kept whole in
`AssistantMessage.extra`. Not for providers whose wire format is spoken here: this way costs several
milliseconds a turn.
"""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncGenerator, Mapping
from typing import Any, cast

from pydantic_ai import direct, exceptions, messages, models, settings, tools
from pydantic_ai.output import OutputObjectDefinition

from retinue.errors import ConfigError, ModelError, ModelErrorKind
from retinue.models.base import SECONDS
from retinue.models.extras import resolved_headers, unsent, with_usual, without_values
from retinue.models.failures import LONGEST_MESSAGE
from retinue.models.ids import unique_ids
from retinue.models.keys import KeyPool
from retinue.models.pictures import apart
from retinue.models.prices import Cost, Tokens
from retinue.types import (
    AssistantMessage,
    Effort,
    Message,
    ModelEvent,
    ModelRequest,
    ModelSettings,
    Reply,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)

_CALLED = {"stop": "stop_sequences", "effort": "thinking"}
"""What pydantic-ai calls our settings, where it calls them otherwise."""
_STOPS: dict[str, StopReason] = {"length": "length", "content_filter": "refusal"}
_KINDS: tuple[tuple[type[Exception], ModelErrorKind], ...] = (
    (exceptions.ModelContextWindowExceededError, "too_long"),
    (exceptions.ModelAuthenticationError, "auth"),
    (exceptions.ModelNotFoundError, "not_found"),
    (exceptions.ModelRateLimitError, "rate_limit"),
    (exceptions.ModelQuotaExceededError, "rate_limit"),
    (exceptions.ModelTimeoutError, "timeout"),
    (exceptions.ModelRequestTimeout, "timeout"),
    (exceptions.ModelConnectionError, "connection"),
    (exceptions.ModelUnavailableError, "overloaded"),
    (exceptions.ModelServerError, "overloaded"),
    (exceptions.ContentFilterError, "refused"),
    (exceptions.ModelRequestRejectedError, "invalid"),
)


class PydanticModel:
    """A model of pydantic-ai as a model of ours."""

    def __init__(
        self,
        model: models.Model,
        *,
        name: str | None = None,
        cost: Cost | None = None,
        settings: ModelSettings | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._model = model
        self._name = name or f"pydantic-ai:{model.system}:{model.model_name}"
        self._cost = cost or Cost()
        self._settings = settings or ModelSettings()
        self._environ = os.environ if environ is None else environ

    @classmethod
    def named(
        cls, name: str, *, cost: Cost, settings: ModelSettings, environ: Mapping[str, str]
    ) -> PydanticModel:
        """By the name pydantic-ai knows it under, `provider:model`."""
        try:
            made = models.infer_model(name)
            return cls(made, name=f"pydantic-ai:{name}", cost=cost, settings=settings, environ=environ)
        except ImportError as error:
            raise ConfigError(f"'{name}' needs another package: {error}") from None
        except exceptions.UserError as error:
            raise ConfigError(f"'{name}' cannot be used: {' '.join(str(error).split())}") from None

    @property
    def name(self) -> str:
        return self._name

    def lacks(self, settings: ModelSettings) -> dict[str, str]:
        """What pydantic-ai says it does not send to this model."""
        names = {_CALLED.get(name, name): name for name in settings.over(self._settings).given}
        has_not = {*self._model.unsupported_settings, *unsent(settings, self._settings)}
        if not _thinks(self._model):
            has_not.add("thinking")
        return {name: self._name for told, name in names.items() if told in has_not}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self._cost.prepare()
        request = with_usual(request, self._settings)
        headers = resolved_headers(request.settings, self._environ)
        try:
            async with direct.model_request_stream(
                self._model,
                to_messages(request),
                model_settings=_settings(request, headers),
                model_request_parameters=_parameters(request),
            ) as stream:
                async for event in stream:
                    delta = _delta(event)
                    if delta is not None:
                        yield delta
                answer = stream.get()
        except exceptions.AgentRunError as error:
            raise without_values(_failed(error), headers) from None
        except exceptions.UserError as error:
            raise ModelError(str(error), kind="invalid") from None
        yield await self._reply(answer, request.effort if _thinks(self._model) else "")

    async def _reply(self, answer: messages.ModelResponse, effort: Effort) -> Reply:
        text = "".join(p.content for p in answer.parts if isinstance(p, messages.TextPart))
        calls = tuple(
            ToolCall(
                id=p.tool_call_id,
                name=p.tool_name,
                arguments=p.args if isinstance(p.args, str) else p.args_as_json_str(),
            )
            for p in answer.parts
            if isinstance(p, messages.ToolCallPart)
        )
        used = answer.usage
        tokens = Tokens(
            input=used.input_tokens,
            output=used.output_tokens,
            cached=used.cache_read_tokens,
            written=used.cache_write_tokens,
        )
        stop = _STOPS.get(answer.finish_reason or "", "tool_calls" if calls else "end")
        return Reply(
            message=AssistantMessage(text=text, calls=unique_ids(calls), extra=_extra(answer)),
            usage=Usage(
                input_tokens=tokens.input,
                output_tokens=tokens.output,
                cached_tokens=tokens.cached,
                cost=await self._cost.of(tokens),
            ),
            stop=stop,
            model=self._name,
            thinking="".join(p.content for p in answer.parts if isinstance(p, messages.ThinkingPart)),
            effort=effort,
        )


def _thinks(model: models.Model) -> bool:
    """Whether pydantic-ai tells this model how hard to think: it leaves that away for any other."""
    profile = model.profile
    return bool(profile.get("supports_thinking") or profile.get("thinking_always_enabled"))


def _settings(request: ModelRequest, headers: Mapping[str, str]) -> settings.ModelSettings:
    made = settings.ModelSettings(timeout=request.timeout or SECONDS)
    if request.temperature is not None:
        made["temperature"] = request.temperature
    if request.max_tokens is not None and request.max_tokens <= 32_000:
        made["max_tokens"] = request.max_tokens
    if request.tools and request.tool_choice in ("none", "required"):
        made["tool_choice"] = cast("Any", request.tool_choice)
    elif request.tools and request.tool_choice != "auto":
        made["tool_choice"] = [request.tool_choice]
    if request.effort:
        made["thinking"] = request.effort
    asked = request.settings
    if asked.top_p is not None:
        made["top_p"] = asked.top_p
    if asked.stop:
        made["stop_sequences"] = list(asked.stop)
    if asked.seed is not None:
        made["seed"] = asked.seed
    if asked.parallel_tool_calls is not None:
        made["parallel_tool_calls"] = asked.parallel_tool_calls
    if asked.service_tier:
        made["service_tier"] = asked.service_tier
    if headers:
        made["extra_headers"] = dict(headers)
    if asked.extra_body:
        made["extra_body"] = asked.extra_body
    return made


def _parameters(request: ModelRequest) -> models.ModelRequestParameters:
    made = models.ModelRequestParameters(
        function_tools=[
            tools.ToolDefinition(name=t.name, description=t.description, parameters_json_schema=t.schema)
            for t in request.tools
        ]
    )
    if request.schema is not None:
        made.output_mode = "native"
        made.output_object = OutputObjectDefinition(json_schema=request.schema, name="answer")
    return made


def to_messages(request: ModelRequest) -> list[messages.ModelMessage]:
    """Our conversation as pydantic-ai's: what comes between two answers is one request."""
    out: list[messages.ModelMessage] = []
    parts: list[messages.ModelRequestPart] = []
    if request.system:
        parts.append(messages.SystemPromptPart(content=request.system))
    for message in apart(request.messages):
        if isinstance(message, AssistantMessage):
            if parts:
                out.append(messages.ModelRequest(parts=parts))
                parts = []
            out.append(_answer(message))
        else:
            parts.append(_part(message))
    if parts:
        out.append(messages.ModelRequest(parts=parts))
    return out


def _part(message: Message) -> messages.ModelRequestPart:
    if isinstance(message, ToolMessage):
        return messages.ToolReturnPart(
            tool_name=message.name,
            content=message.text,
            tool_call_id=message.call_id,
            outcome="failed" if message.is_error else "success",
        )
    said = cast("UserMessage", message)
    if not said.images:
        return messages.UserPromptPart(content=said.text)
    pictures = [
        messages.ImageUrl(url=image.url)
        if image.url
        else messages.BinaryContent(data=base64.b64decode(image.data), media_type=image.media_type)
        for image in said.images
    ]
    return messages.UserPromptPart(content=[said.text, *pictures])


def _answer(message: AssistantMessage) -> messages.ModelResponse:
    kept = (message.extra or {}).get("pydantic_ai")
    if kept is not None:
        whole = cast("messages.ModelResponse", messages.ModelMessagesTypeAdapter.validate_python([kept])[0])
        made = [part for part in whole.parts if isinstance(part, messages.ToolCallPart)]
        for part, call in zip(made, message.calls, strict=False):
            part.tool_call_id = call.id  # its result will carry the id that the run knows it by
        return whole
    parts: list[messages.ModelResponsePart] = []
    if message.text:
        parts.append(messages.TextPart(content=message.text))
    for call in message.calls:
        parts.append(messages.ToolCallPart(tool_name=call.name, args=call.arguments, tool_call_id=call.id))
    return messages.ModelResponse(parts=parts)


def _extra(answer: messages.ModelResponse) -> dict[str, Any] | None:
    """The whole answer, if it has more than text and plain calls."""
    plain = all(
        isinstance(part, messages.TextPart | messages.ToolCallPart)
        and not part.provider_details
        and (not isinstance(part, messages.ToolCallPart) or part.tool_call_id)
        for part in answer.parts
    )
    if plain:
        return None
    return {"pydantic_ai": messages.ModelMessagesTypeAdapter.dump_python([answer], mode="json")[0]}


def _delta(event: messages.ModelResponseStreamEvent) -> ModelEvent | None:
    if isinstance(event, messages.PartStartEvent):
        part = event.part
        if isinstance(part, messages.TextPart) and part.content:
            return TextDelta(part.content)
        if isinstance(part, messages.ThinkingPart) and part.content:
            return ThinkingDelta(part.content)
    elif isinstance(event, messages.PartDeltaEvent):
        delta = event.delta
        if isinstance(delta, messages.TextPartDelta) and delta.content_delta:
            return TextDelta(delta.content_delta)
        if isinstance(delta, messages.ThinkingPartDelta) and delta.content_delta:
            return ThinkingDelta(delta.content_delta)
        if isinstance(delta, messages.ToolCallPartDelta):
            return ThinkingDelta("")
    return None


def _failed(error: exceptions.AgentRunError) -> ModelError:
    kind: ModelErrorKind = "protocol"
    for known, meaning in reversed(_KINDS):  # the most specific come first
        if isinstance(error, known):
            kind = meaning
    status = error.status_code if isinstance(error, exceptions.ModelHTTPError) else None
    wait = error.retry_after if isinstance(error, exceptions.ModelAPIError) else None
    text = KeyPool(()).mask(" ".join(str(error).split()))[:LONGEST_MESSAGE]
    return ModelError(text, kind=kind, status=status, retry_after=wait)
