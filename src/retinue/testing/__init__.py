"""For testing agents: a fake provider server, a scripted model, recorded trees, checks of what a run did, and
evaluations. Users need them too.

`FakeProvider` is a real server that speaks the providers' wire formats strictly; `ScriptedModel` is a model
without any network. `story_of` tells what a run did; `evaluate` tries an agent on many cases. See the modules
`provider`, `scripted`, `story` and `evaluation`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from retinue.testing.eval_cases import EvalCase, EvalRun, EvalVerdict, Expect
    from retinue.testing.eval_result import EvalResult, EvalTry
    from retinue.testing.evaluation import EvalCheck, evaluate
    from retinue.testing.provider import FakeProvider, ReplyRule, by_turn
    from retinue.testing.recording import record, replay_file
    from retinue.testing.script import Script, SeenRequest, call
    from retinue.testing.scripted import ScriptedModel, Step, turn
    from retinue.testing.story import CheckedStory, story_of
    from retinue.testing.tree_told import CallTold, QuestionTold, RunTold

__all__ = [
    "CallTold",
    "CheckedStory",
    "EvalCase",
    "EvalCheck",
    "EvalResult",
    "EvalRun",
    "EvalTry",
    "EvalVerdict",
    "Expect",
    "FakeProvider",
    "QuestionTold",
    "ReplyRule",
    "RunTold",
    "Script",
    "ScriptedModel",
    "SeenRequest",
    "Step",
    "by_turn",
    "call",
    "evaluate",
    "record",
    "replay_file",
    "story_of",
    "turn",
]

_HOME = {
    "FakeProvider": "provider",
    "ReplyRule": "provider",
    "by_turn": "provider",
    "Script": "script",
    "SeenRequest": "script",
    "call": "script",
    "ScriptedModel": "scripted",
    "Step": "scripted",
    "turn": "scripted",
    "CallTold": "tree_told",
    "CheckedStory": "story",
    "EvalCase": "eval_cases",
    "EvalCheck": "evaluation",
    "EvalResult": "eval_result",
    "EvalRun": "eval_cases",
    "EvalTry": "eval_result",
    "EvalVerdict": "eval_cases",
    "Expect": "eval_cases",
    "evaluate": "evaluation",
    "QuestionTold": "tree_told",
    "RunTold": "tree_told",
    "story_of": "story",
    "record": "recording",
    "replay_file": "recording",
}


_RENAMED = {"Rule": "ReplyRule"}
"""Old spellings, for one release."""


def __getattr__(name: str) -> Any:
    """Loads each fake when it is first asked for: the server needs a web framework, the model nothing."""
    if name in _RENAMED:
        import warnings

        warnings.warn(f"{__name__}.{name} is {_RENAMED[name]} now", DeprecationWarning, stacklevel=2)
        name = _RENAMED[name]
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
