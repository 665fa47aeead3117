"""A research team: a lead and three clerks. A scripted model plays them; leave out `model=` for yours."""

import asyncio

from pydantic import BaseModel, Field

from retinue import AgentSpec, Answer, Limits, Retinue, ToolGiven, tool
from retinue.events import ApprovalRequested, RunFinished, ToolCalled
from retinue.testing import ScriptedModel, Step, call


class Trip(BaseModel):
    city: str
    month: int = Field(default=5, ge=1, le=12)


class Figure(BaseModel):
    value: float


class Advice(BaseModel):
    city: str
    reasons: list[str]


def population(city: str) -> int:
    """How many people live in a city."""
    return {"Paris": 2_100_000, "Lyon": 520_000}[city]


async def distance(city: str) -> int:
    """How far away a city is, in kilometres."""
    return {"Paris": 880, "Lyon": 420}[city]


async def weather(trip: Trip) -> str:
    """The usual weather in a city in a month."""
    return "warm" if 5 <= trip.month <= 9 else "cool"


@tool(effect="spend")
def book(trip: Trip) -> str:
    """Book the train to a city."""
    return f"booked: {trip.city}"


def clerk(name: str, work: ToolGiven) -> AgentSpec:
    prompt = f"You are the {name}. Answer with what your tool says."
    return AgentSpec(name=name, description=f"The {name}.", prompt=prompt, tools=[work], output_schema=Figure)


TEAM = [clerk("counter", population), clerk("surveyor", distance), clerk("forecaster", weather)]
PROMPT = "You are the lead. Ask your team, book the better city, then advise."
LEAD = AgentSpec(name="lead", description="Plans.", prompt=PROMPT, tools=[*TEAM, book], limits=Limits(cost=1))
SCRIPT = ScriptedModel(
    {
        "You are the lead": [
            [call(each.name, prompt="Lyon in May?") for each in TEAM],
            call("book", trip={"city": "Lyon"}),
            '{"city": "Lyon", "reasons": ["near", "warm"]}',
            Step(gate=asyncio.Event()),  # the second question is never answered
        ],
        "You are the counter": [call("population", city="Lyon"), '{"value": 520000}'],
        "You are the surveyor": [call("distance", city="Lyon"), '{"value": 420}'],
        "You are the forecaster": [
            call("weather", trip={"city": "Lyon"}),
            '{"value": 20}',
        ],
    }
)


async def approve(asked: ApprovalRequested) -> Answer:
    print(" › ".join(asked.path), "wants to use", asked.tool, asked.arguments)
    return Answer(decision="approve")


async def main() -> None:
    async with Retinue(model=SCRIPT, agents=[LEAD], approve=approve, db="memory:") as retinue:
        async for event in retinue.stream("lead", "Paris or Lyon in May?", output=Advice):
            if isinstance(event, ToolCalled):
                print("  " * event.depth + event.name, event.arguments)
            elif isinstance(event, RunFinished) and event.depth == 0:
                print(event.report.status, event.report.data_as(Advice), event.report.usage.cost)
        second = await retinue.start("lead", "And in December?")
        await retinue.cancel(second, "it is too cold")
        print((await retinue.wait(second)).status)


asyncio.run(main())
