"""The rules of `math-expert`: plain arithmetic and linear equations, and Wolfram where it is offered.

Arithmetic is evaluated from its syntax tree, with bounds on size; nothing is ever executed as code.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from retinue.models.offline.facts import subject_of
from retinue.models.offline.results import clip, complaint, found_in, urls_in
from retinue.models.offline.scene import Move, Say, Scene, SceneItem
from retinue.web.framing import unframed

Number = int | float | Fraction


def _factorial(n: object) -> int:
    if not isinstance(n, int) or not 0 <= n <= 500:
        raise ValueError("too large")
    return math.factorial(n)


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: operator.mod,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sqrt": math.sqrt,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "log": math.log,
    "ln": math.log,
    "exp": math.exp,
    "abs": abs,
    "factorial": _factorial,
    "gcd": math.gcd,
}
_NAMES = {"pi": math.pi, "e": math.e}
_EXPRESSION = re.compile(r"(?:sqrt|sin|cos|tan|log|ln|exp|abs|factorial|gcd|pi|[\d.,()+\-*/^%×÷·−\s])+")
# A question for a definition or a theorem, which an encyclopedia may answer.
_IDEA = re.compile(
    r"(?i)\s*(?:what|who)(?:'s| is| are| was| were)\s[^\d=^*/]+$|\s*(?:define|explain)\s[^\d=^*/]+$"
)
_EQUATION = re.compile(r"([\d.()+\-*/\sx]*x[\d.()+\-*/\sx]*)=([\d.()+\-*/\sx]+)")


def decide(scene: Scene) -> Move:
    problem = scene.fields.get("problem", "") or scene.task
    if not scene.done:
        ask = scene.ask([scene.wish("wolfram_query", query=clip(problem, 200))])
        if ask is not None:
            return ask
    if not scene.results("wolfram_query") and solve(problem) is None and _IDEA.match(problem):
        ask = scene.ask([scene.wish("wiki_summary", title=subject_of(problem))])
        if ask is not None:
            return ask
    return _report(scene, problem)


def _report(scene: Scene, problem: str) -> Say:
    own = solve(problem)
    told = scene.results("wolfram_query", "wiki_summary")
    lines = [f"**Problem:** {clip(problem, 300)}"]
    if own is not None:
        approach, steps, answer = own
        lines += [f"**Approach:** {approach}", "**Steps:**", *(f"{n}. {s}" for n, s in enumerate(steps, 1))]
        lines += [f"**Answer:** {answer}"]
    elif told:
        lines += [
            "**Approach:** asked a source; no steps of its own.",
            f"**Answer:** {clip(_said(told[0].text), 600)}",
        ]
    else:
        lines += [
            "**Answer:** not solved. The offline model computes arithmetic and linear equations in x alone."
        ]
    sources = (
        [f"{one.name}: {clip(_said(one.text), 160)}" for one in told]
        if own is not None
        else [one.name for one in told]
    )
    urls = [url for one in told for url in urls_in(one.text)][:2]
    by_hand = ["exact arithmetic"] if own is not None else []
    lines.append("**Source:** " + ("; ".join([*by_hand, *sources, *urls]) or "none"))
    failed = scene.failures()
    if failed:
        lines.append(f"**Failed:** {failed[0].name}: {complaint(failed[0].text, 160)}")
    answer = own[2] if own is not None else clip(_said(told[0].text), 200) if told else ""
    items = (SceneItem(title="answer", text=answer),) if answer else ()
    return Say(text="\n".join(lines), items=items, unable=not answer)


def _said(result: str) -> str:
    """What a source answered, without its frame, its number and its address."""
    return next((entry.text for entry in found_in(result) if entry.text), unframed(result))


def solve(problem: str) -> tuple[str, list[str], str] | None:
    """Approach, steps and answer of a linear equation or an expression in the text, or None."""
    text = problem.replace("×", "*").replace("÷", "/").replace("·", "*").replace("−", "-").replace("^", "**")
    text = re.sub(r"(?i)\bplus\b", "+", text)
    text = re.sub(r"(?i)\bminus\b", "-", text)
    text = re.sub(r"(?i)\b(?:times|multiplied by)\b", "*", text)
    text = re.sub(r"(?i)\bdivided by\b", "/", text)
    text = re.sub(r"(?i)([\d.]+)\s*(?:%|percent)\s+of\s+", r"\1/100*", text)
    equation = _EQUATION.search(re.sub(r"(?<=\d)\s*x|(?<=\))\s*x", "*x", text))
    if equation:
        return None if _is_part(equation) else _linear(equation[1], equation[2])
    candidates = sorted(
        (match[0].strip(" .,") for match in _EXPRESSION.finditer(text)), key=len, reverse=True
    )
    for candidate in candidates[:3]:
        clean = re.sub(r"(?<=\d),(?=\d{3}\b)", "", candidate)
        if not re.search(r"\d", clean) or not re.search(r"[-+*/%(]", clean.lstrip("-")):
            continue
        value = evaluate(clean)
        if value is not None:
            shown = " ".join(clean.replace("**", "^").split())
            return "evaluate the expression exactly", [f"{shown} = {show(value)}"], show(value)
    return None


def _is_part(equation: re.Match[str]) -> bool:
    """Whether more belongs to it than was matched: what stands before `sin(x)`, another letter, a sign."""
    text = equation.string
    touches = not equation[0][0].isspace() and text[: equation.start()][-1:].isalnum()
    before, after = text[: equation.start()].rstrip(), text[equation.end() :].lstrip()
    first = equation[0].lstrip()[0]
    continued = first in "+*/" or (first == "-" and re.search(r"(?:\b\w|\))$", before) is not None)
    return touches or continued or before.endswith(tuple("+-*/=(")) or after.startswith(tuple("+-*/=("))


def _linear(left: str, right: str) -> tuple[str, list[str], str] | None:
    def difference(x: int) -> Number | None:
        a, b = (evaluate(side.replace("x", f"({x})")) for side in (left, right))
        return None if a is None or b is None else a - b

    at = [difference(x) for x in (0, 1, 2)]
    if any(value is None or isinstance(value, float) for value in at):
        return None
    zero, one, two = (Fraction(value or 0) for value in at)
    slope = one - zero
    if two - one != slope:
        return None
    if slope == 0:
        answer = "every x" if zero == 0 else "no x solves it"
        return "both sides are compared", [f"{left.strip()} = {right.strip()} does not depend on x"], answer
    x = -zero / slope
    steps = [
        f"bring all to one side: {show(slope)}·x + ({show(zero)}) = 0",
        f"x = {show(-zero)} / {show(slope)}",
    ]
    return "the equation is linear in x", steps, f"x = {show(x)}"


def evaluate(text: str) -> Number | None:
    """The value of an arithmetic expression, or None if it is none or too large."""
    if len(text) > 300:
        return None
    try:
        value = _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError, KeyError):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _value(node: ast.expr) -> Number:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return Fraction(str(node.value)) if isinstance(node.value, float) else int(node.value)
    if isinstance(node, ast.Name):
        return _NAMES[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        inner = _value(node.operand)
        return -inner if isinstance(node.op, ast.USub) else inner
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _FUNCTIONS[node.func.id](*(_value(argument) for argument in node.args))
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Div):
            whole = not isinstance(left, float) and not isinstance(right, float)
            return Fraction(left) / Fraction(right) if whole else left / right
        if isinstance(node.op, ast.Pow):
            if abs(right) > 1000 or (not isinstance(left, float) and abs(left) > 10**6 and abs(right) > 50):
                raise ValueError("too large")
            return (
                left**right
                if not isinstance(right, Fraction) or right.denominator == 1
                else float(left) ** float(right)
            )
        return _BINARY[type(node.op)](left, right)
    raise ValueError("not arithmetic")


def show(value: Number) -> str:
    """Exact first, then the decimal value."""
    if isinstance(value, Fraction):
        if value.denominator == 1:
            return str(value.numerator)
        decimal = f"{float(value):.10g}"
        return decimal if Fraction(decimal) == value else f"{value} ≈ {decimal}"
    return str(value) if isinstance(value, int) else f"{value:.12g}"
