"""What our facts are called in OpenTelemetry: the only file that knows the `gen_ai.*` names.

The conventions for generative AI (open-telemetry/semantic-conventions-genai) are in development and still
change their spelling; when they do, this file does. What they have no name for is `retinue.*`.
"""

from __future__ import annotations

from retinue.types import StopReason

# -- operations: what a span is, and the first word of its name ----------------------------------------------
INVOKE_WORKFLOW = "invoke_workflow"
INVOKE_AGENT = "invoke_agent"
EXECUTE_TOOL = "execute_tool"
CHAT = "chat"
WAIT_FOR_PERSON = "wait_for_person"
WAIT_FOR_LIMIT = "wait_for_limit"

# -- attributes of the conventions ---------------------------------------------------------------------------
OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
CONVERSATION = "gen_ai.conversation.id"
WORKFLOW_NAME = "gen_ai.workflow.name"
AGENT_NAME = "gen_ai.agent.name"
AGENT_DESCRIPTION = "gen_ai.agent.description"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105 - a name
TOOL_NAME = "gen_ai.tool.name"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_TYPE = "gen_ai.tool.type"
ERROR_TYPE = "error.type"
# Not in the conventions, but what several backends read as the price of a call.
COST = "gen_ai.usage.cost"

# -- attributes of the conventions that hold content: only where a person wants it ---------------------------
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"

# -- our own -------------------------------------------------------------------------------------------------
RUN_ID = "retinue.run.id"
RUN_DEPTH = "retinue.run.depth"
RUN_TURN = "retinue.run.turn"
OUTCOME = "retinue.outcome"
ENDED_BY = "retinue.ended_by"
EFFORT = "retinue.effort"
STEP = "retinue.step"
PURPOSE = "retinue.step.purpose"
RETRIES = "retinue.step.retries"
EFFECT = "retinue.tool.effect"
NOT_RUN = "retinue.tool.not_run"
DECISION = "retinue.approval.decision"
DECIDED_BY = "retinue.approval.by"
WAITED = "retinue.waited.seconds"
WORKED = "retinue.worked.seconds"
OWN_COST = "retinue.cost.usd"
TREE_INPUT_TOKENS = "retinue.tree.input_tokens"
TREE_OUTPUT_TOKENS = "retinue.tree.output_tokens"
TREE_COST = "retinue.tree.cost.usd"
RETRIED = "retinue.retried"
PRUNED = "retinue.history_pruned"

# -- metrics -------------------------------------------------------------------------------------------------
DURATION_OF_CALL = "gen_ai.client.operation.duration"
TOKENS_OF_CALL = "gen_ai.client.token.usage"
DURATION_OF_WORKFLOW = "gen_ai.invoke_workflow.duration"
DURATION_OF_AGENT = "gen_ai.invoke_agent.duration"
CALLS_OF_MODEL = "gen_ai.invoke_agent.inference_calls"
CALLS_OF_TOOLS = "gen_ai.invoke_agent.tool_calls"
DURATION_OF_TOOL = "gen_ai.execute_tool.duration"
ERRORS = "retinue.errors"
MONEY = "retinue.cost"
WAITING = "retinue.waiting.duration"

_SECONDS = tuple(0.01 * 2**power for power in range(14))
_LONG_SECONDS = tuple(0.1 * 2**power for power in range(17))
_TOKENS = tuple(float(4**power) for power in range(14))
_CALLS = tuple(float(2**power) for power in range(11))
BOUNDS: dict[str, tuple[float, ...]] = {
    DURATION_OF_CALL: _SECONDS,
    TOKENS_OF_CALL: _TOKENS,
    DURATION_OF_WORKFLOW: _LONG_SECONDS,
    DURATION_OF_AGENT: _LONG_SECONDS,
    CALLS_OF_MODEL: _CALLS,
    CALLS_OF_TOOLS: _CALLS,
    DURATION_OF_TOOL: _SECONDS,
    WAITING: _LONG_SECONDS,
}
"""Every histogram, and where its buckets end. What is not in here is a sum."""
UNITS: dict[str, str] = {
    DURATION_OF_CALL: "s",
    TOKENS_OF_CALL: "{token}",
    DURATION_OF_WORKFLOW: "s",
    DURATION_OF_AGENT: "s",
    CALLS_OF_MODEL: "{inference_call}",
    CALLS_OF_TOOLS: "{tool_call}",
    DURATION_OF_TOOL: "s",
    WAITING: "s",
    ERRORS: "{error}",
    MONEY: "{USD}",
}

# -- values --------------------------------------------------------------------------------------------------
_PROVIDERS = {
    "gemini": "gcp.gemini",
    "google": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "xai": "x_ai",
    "grok": "x_ai",
    "moonshot": "moonshot_ai",
    "moonshotai": "moonshot_ai",
    "bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
    "responses": "openai",
}
FINISHED: dict[StopReason, str] = {
    "end": "stop",
    "tool_calls": "tool_call",
    "length": "length",
    "refusal": "content_filter",
}


def provider_and_model(name: str) -> tuple[str, str]:
    """What `provider:model` is called in the conventions; a provider they do not know keeps our name."""
    provider, colon, model = name.partition(":")
    if not colon:
        return name or "unknown", name
    return _PROVIDERS.get(provider, provider), model
