"""Which questions make the knowledge agent run first."""

from __future__ import annotations

import timeit

import pytest

from retinue.tools.knowledge.trigger import needs_knowledge

from .trigger_prompts import SHOULD, SHOULD_NOT

WORLD = [
    "What is this year's prize for literature?",
    "Tell me about Ada Lovelace",
    "Who invented the telescope?",
    "What is the capital of Australia?",
    "When did the Berlin Wall fall?",
    "latest version of PostgreSQL",
    "What are recent advances in fusion energy?",
    "How tall is Mount Everest?",
    "Explain the theory of relativity",
    "Tell me about Ada Lovelace",
    "Please tell me who wrote Dune",
    "current president of France",
    "Which countries border Chad?",
    "Why is the sky blue?",
    "Is Pluto a planet?",
    "population of Japan",
    "What's the boiling point of ethanol?",
    "news about the Mars missions",
    "Compare Rust and Go for network services",
    "Find out when the next solar eclipse is",
    "Who won the 2026 World Cup?",
    "so, what is dark matter?",
    "Could you look up the speed of sound in water?",
    "How does photosynthesis work?",
    "What happened in Lisbon yesterday?",
    "Write a short note on the latest results in lattice QCD",
    "List the moons of Jupiter",
    "I wonder how many people live in Nairobi",
    "WHO FOUNDED THE RED CROSS",
]
HERE = [
    "What is this?",
    "So what are these",
    "Tell me a joke",
    "",
    "   \n",
    "hello",
    "thanks",
    "continue",
    "What can you do?",
    "What should I do next?",
    "What did we decide about the schema?",
    "Fix the failing test in tests/test_api.py",
    "What does this function do?",
    "Where is the config file loaded?",
    "Refactor the parser module",
    "How do I run the tests in this repo?",
    "Why does main.py crash?",
    "What is in README.md?",
    "Rename the variable foo to bar",
    "Write unit tests for the limiter",
    "Which function calls parse_args()?",
    "Summarise the attached document",
    "Add a feature that exports the table as CSV files",
    "Who wrote this code?",
    "What changed in the last commit of this repository?",
    "Explain the current codebase",
    "Sort these numbers: 3 1 2",
    "Is this file used anywhere?",
    "Translate 'good morning' into French",
    "Where in src/ is the retry policy?",
    "Make the button blue",
    "Delete the latest log files",
    "what = 1\n```python\nprint(what)\n```",
]


@pytest.mark.parametrize("question", [*WORLD, *(prompt for prompts in SHOULD.values() for prompt in prompts)])
def test_a_question_about_the_world_needs_knowledge(question: str) -> None:
    assert needs_knowledge(question)


@pytest.mark.parametrize(
    "question", [*HERE, *(prompt for prompts in SHOULD_NOT.values() for prompt in prompts)]
)
def test_work_on_what_is_here_needs_none(question: str) -> None:
    assert not needs_knowledge(question)


@pytest.mark.parametrize("question", [*WORLD[:3], *HERE[-3:]])
def test_a_usual_question_costs_microseconds(question: str) -> None:
    best = min(timeit.repeat(lambda: needs_knowledge(question), number=100, repeat=5)) / 100
    assert best < 500e-6


@pytest.mark.parametrize("unit", ["x ", "how many ", "fix a b c d ", "a/", "who " * 3, "a.", "((", "'-"])
def test_a_hostile_question_costs_no_more_than_a_few_milliseconds(unit: str) -> None:
    question = unit * (50_000 // len(unit))
    assert min(timeit.repeat(lambda: needs_knowledge(question), number=1, repeat=5)) < 20e-3
