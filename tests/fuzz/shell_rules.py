"""Rules for commands: whatever the text, they judge it, agree with themselves, and suggest no rule that means more."""

from __future__ import annotations

from retinue.approvals import Rules
from retinue.authority import shell
from retinue.authority.rules import Asked, suggest_rule
from retinue.settings import ApprovalSettings

SEEDS = (
    b"git status -s && git status 'a b' \"c\" | git status\n",
    b"if git status; then (git status; time git status -b); fi 2>/dev/null # x",
    b"git status $(x) `x` ${x:-y} $[a[0]] <<E\nx\nE\n>f",
    b"sudo -u me bash -c 'eval \"git push\"' | xargs -I{} env X=1 git -C x push",
)
STATUS = Rules.of(ApprovalSettings(allow=("bash(git status*)",)))
NOT_STATUS = Rules.of(ApprovalSettings(allow=("bash",), deny=("bash(git status*)",)))
BEHIND = ("\n{}", "; {}", " | {}", " && {}", " $({})", " >{}", " {}")


def check(data: bytes) -> None:
    command = data.decode("utf-8", "surrogateescape")
    if judged(STATUS, command) == "allow":
        assert judged(NOT_STATUS, command) == "deny", "what a rule allows, the same rule denies"
        assert judged(STATUS, f"{command}\nmark") == "ask", "nothing goes behind it"
        assert judged(STATUS, f"mark\n{command}") == "ask", "nothing goes before it"
    assert shell.forbids(command, "git push*") in ("no", "maybe", "yes")
    suggestion_means_one_command(command)


def suggestion_means_one_command(command: str) -> None:
    asked = Asked(tool="bash", effect="execute", risk="high", agent="a", arguments={"command": command})
    rule = suggest_rule(asked)
    if rule is None:
        return
    rules = Rules.of(ApprovalSettings(allow=(rule,)))
    assert judged(rules, command) == "allow", "a suggested rule allows what it was suggested for"
    other = _another(command)
    for behind in BEHIND[:1] if "#" in command else BEHIND:  # what stands in a comment runs nothing
        added = behind.format(other)
        assert judged(rules, command + added) == "ask", f"a suggested rule allows {added!r} as well"
    assert judged(rules, f"{other} {command}") == "ask"
    assert judged(rules, f"X=1 {command}") == "ask"


def _another(command: str) -> str:
    """A program that the command does not name: a rule means its own command as often as it stands there."""
    other = "mark"
    while other in command:
        other += "er"
    return other


def judged(rules: Rules, command: str) -> str:
    arguments = {"command": command}
    return rules.judge(
        Asked(tool="bash", effect="execute", risk="high", agent="a", arguments=arguments)
    ).action
