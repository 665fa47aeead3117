"""An agent of your own with a tool of your own. Runs as it is: a scripted model plays the agent."""

from __future__ import annotations

from retinue import AgentSpec, Report, Retinue, tool
from retinue.testing import ScriptedModel, call

PRICES = {"apple": 0.40, "pear": 0.55}


@tool
def price(fruit: str) -> float:
    """What one piece of a fruit costs, in euros."""
    return PRICES[fruit]


grocer = AgentSpec(
    name="grocer",
    description="Use for questions about prices of fruit.",
    prompt="You are the grocer. Look prices up with `price`, never guess one.",
    tools=("price",),
)

# What a real model would say: first it calls the tool, twice at once, then it answers.
script = ScriptedModel(
    {
        "You are the grocer": [
            [call("price", fruit="apple"), call("price", fruit="pear")],
            "A pear: 0.55 euros.",
        ]
    }
)


def main() -> Report:
    retinue = Retinue(model=script, agents=[grocer], tools=[price], db="memory:")
    report = retinue.run_sync("grocer", "What is dearer, an apple or a pear?")
    print(f"{report.text} ({report.status}, {report.tool_calls} tool calls)")
    return report


if __name__ == "__main__":
    main()
