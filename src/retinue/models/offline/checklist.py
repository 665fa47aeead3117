"""What the offline model looks for when it reviews code: one pattern each, on code or on comments. Data only.

Each has a severity, the focus it belongs to, and what to do about it. They find what a pattern can find and
no more; the report says so. Patterns see one line or a few, so that no text can make them slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["high", "medium", "low"]
Focus = Literal["bugs", "style", "performance", "security"]
PYTHON = frozenset({"py", "pyi"})
SCRIPT = frozenset({"js", "mjs", "cjs", "ts", "tsx", "jsx", "vue", "svelte"})
ANY: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class ChecklistItem:
    """A pattern that is searched for in each line, or matched from each line on over `span` lines.

    `where`: the text as it is, the code without strings and comments, or the comments alone.
    """

    what: str
    mend: str
    severity: Severity
    focus: Focus
    pattern: str
    languages: frozenset[str] = ANY
    where: Literal["raw", "code", "comment"] = "code"
    unless: str = ""
    span: int = 1


CHECKS: tuple[ChecklistItem, ...] = (
    ChecklistItem(
        what="a bare `except:` catches everything, also KeyboardInterrupt and SystemExit",
        mend="name the exceptions that are expected",
        severity="medium",
        focus="bugs",
        pattern=r"^[ \t]*except\s*:",
        languages=PYTHON,
    ),
    ChecklistItem(
        what="an error is swallowed without a trace",
        mend="handle it, log it, or catch only the error that may be ignored",
        severity="medium",
        focus="bugs",
        pattern=(
            r"[ \t]*except(?: +(?:Base)?Exception(?: +as +\w+)?)? *: *(?:\n *)?"
            r"(?:pass|\.\.\.|continue)[ \t]*(?:\n|$)"
        ),
        languages=PYTHON,
        span=2,
    ),
    ChecklistItem(
        what="an empty `catch` swallows every error",
        mend="handle the error or rethrow it",
        severity="medium",
        focus="bugs",
        pattern=r"[^\n]*\bcatch\s*(?:\([^)\n]{0,60}\))?\s*\{\s*\}",
        languages=SCRIPT | {"java", "kt", "cs", "php"},
        span=2,
    ),
    ChecklistItem(
        what="`eval` or `exec` runs text as code",
        mend="parse the text instead (`ast.literal_eval`, `json.loads`), or look the name up in a table",
        severity="high",
        focus="security",
        pattern=r"(?<![\w.])(?:eval|exec)\s*\(",
        languages=PYTHON | SCRIPT | {"php", "rb"},
        unless=r"def\s+(?:eval|exec)",
    ),
    ChecklistItem(
        what="a command is run through a shell",
        mend="pass a list of arguments and leave `shell=True` out",
        severity="high",
        focus="security",
        pattern=r"\bshell\s*=\s*True\b|(?<![\w.])os\.(?:system|popen)\s*\(",
        languages=PYTHON,
    ),
    ChecklistItem(
        what="a query is put together from strings",
        mend="use placeholders and pass the values separately",
        severity="high",
        focus="security",
        pattern=(
            r"(?i)(?:f[\"'][^\"'\n]{0,40}\b(?:select\s[^\"'\n]{1,80}\sfrom|insert\s+into|update\s+\w+\s+set|delete\s+from)"
            r"\b[^\"'\n]{0,200}\{|[\"'][^\"'\n]{0,20}\b(?:select\s[^\"'\n]{1,80}\sfrom|insert\s+into|update\s+\w+\s+set|"
            r"delete\s+from)\b[^\"'\n]{0,200}[\"']\s*(?:%(?!\s*s)|\+|\.format\())"
        ),
        where="raw",
    ),
    ChecklistItem(
        what="looks like a secret in the source",
        mend="read it from the environment, and change it: it is in the history now",
        severity="high",
        focus="security",
        pattern=(
            r"(?i)\b(?:password|passwd|secret|api_?key|auth_?token|access_?token|private_?key)\w{0,20}[\"']?\s*[:=]\s*"
            r"[\"'][^\"'\s]{8,200}[\"']|\bAKIA[0-9A-Z]{16}\b|\bghp_[A-Za-z0-9]{30,}"
            r"|-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----"
        ),
        where="raw",
        unless=r"(?i)environ|getenv|example|placeholder|changeme|your[-_]|xxx|\*\*\*|<[^>]+>|\$\{|\{\{|process\.env|config\[",
    ),
    ChecklistItem(
        what="loads data in a way that can run code",
        mend="use `yaml.safe_load`, or JSON instead of pickle",
        severity="high",
        focus="security",
        pattern=r"\byaml\.load\s*\((?![^)\n]*Safe)|\b(?:pickle|marshal|shelve|dill)\.(?:loads?|open)\s*\(",
        languages=PYTHON,
    ),
    ChecklistItem(
        what="certificates are not checked",
        mend="leave the check on; give the CA file if it is an own one",
        severity="high",
        focus="security",
        pattern=r"\bverify\s*=\s*False\b|\b_create_unverified_context\b|rejectUnauthorized\s*:\s*false|\bssl=False\b",
    ),
    ChecklistItem(
        what="a weak hash or weak randomness",
        mend="use sha256 for digests and `secrets` for anything that must not be guessed",
        severity="low",
        focus="security",
        pattern=r"\bhashlib\.(?:md5|sha1)\s*\((?![^)\n]*usedforsecurity)|\brandom\.\w+\([^)\n]*\)[^\n]{0,40}(?:token|password|secret)",
        languages=PYTHON,
    ),
    ChecklistItem(
        what="HTML is set from a value",
        mend="set `textContent`, or sanitise the value first",
        severity="medium",
        focus="security",
        pattern=r"\.innerHTML\s*\+?=(?!=)|\bdangerouslySetInnerHTML\b|\bdocument\.write\s*\(",
        languages=SCRIPT,
    ),
    ChecklistItem(
        what="a default value that is shared between calls",
        mend="use None as the default and make the value inside",
        severity="medium",
        focus="bugs",
        pattern=(
            r"[ \t]*(?:async +)?def +\w+ *\([^)]{0,600}="
            r"\s*(?:\[[^\]\n]{0,80}\]|\{[^}\n]{0,80}\}|(?:list|dict|set)\(\s*\))\s*[,)]"
        ),
        languages=frozenset({"py"}),
        span=12,
    ),
    ChecklistItem(
        what="compares with None by `==`",
        mend="use `is None` or `is not None`",
        severity="low",
        focus="style",
        pattern=r"[=!]=\s*None\b|\bNone\s*[=!]=",
        languages=PYTHON,
    ),
    ChecklistItem(
        what="compares with True or False by `==`",
        mend="use the value itself",
        severity="low",
        focus="style",
        pattern=r"[=!]=\s*(?:True|False)\b",
        languages=PYTHON,
    ),
    ChecklistItem(
        what="`==` converts types before it compares",
        mend="use `===`",
        severity="low",
        focus="bugs",
        pattern=r"(?<![=!<>])==(?!=)(?!\s*null\b)",
        languages=SCRIPT,
    ),
    ChecklistItem(
        what="a request without a timeout can wait for ever",
        mend="pass `timeout=`",
        severity="medium",
        focus="bugs",
        pattern=r"\brequests\.(?:get|post|put|patch|delete|head)\s*\((?:(?!timeout)[^()\n]|\([^()\n]*\)){0,300}\)",
        languages=PYTHON,
    ),
    ChecklistItem(
        what="counts by `range(len(…))`",
        mend="iterate over the thing itself, with `enumerate` where the index is needed",
        severity="low",
        focus="performance",
        pattern=r"\bfor\s+\w+\s+in\s+range\s*\(\s*len\s*\(",
        languages=PYTHON,
    ),
    ChecklistItem(
        what="an assertion that is always true: it checks a tuple",
        mend="remove the brackets around condition and message",
        severity="high",
        focus="bugs",
        pattern=r"^[ \t]*assert\s*\([^()\n]{1,120},\s*[\"'][^\n]*\)\s*$",
        languages=PYTHON,
    ),
    ChecklistItem(
        what="a file is opened and may never be closed",
        mend="open it in a `with` block",
        severity="low",
        focus="bugs",
        pattern=r"^[ \t]*(?:\w+\s*=\s*)?(?:json\.load\(\s*)?open\s*\([^\n]*\)(?:\.\w+\([^\n]*\))?\)?\s*$",
        languages=PYTHON,
    ),
    ChecklistItem(
        what="a name hides a builtin",
        mend="choose another name",
        severity="low",
        focus="style",
        pattern=r"^[ \t]*(?:list|dict|set|str|int|map|sum|min|max|len|open|print)\s*=(?!=)\s*\S",
        languages=frozenset({"py"}),
        unless=r",\s*$",
    ),
    ChecklistItem(
        what="everything is imported by `*`",
        mend="import the names that are used",
        severity="low",
        focus="style",
        pattern=r"^[ \t]*from\s+\S+\s+import\s+\*",
        languages=PYTHON,
    ),
    ChecklistItem(
        what="left over from debugging",
        mend="remove it, or use the logger",
        severity="low",
        focus="style",
        pattern=r"(?<![\w.])(?:breakpoint\(\)|pdb\.set_trace\(\))",
        languages=PYTHON,
    ),
    ChecklistItem(
        what="left over from debugging",
        mend="remove it, or use a logger",
        severity="low",
        focus="style",
        pattern=r"(?<![\w.])(?:debugger\s*;|console\.log\s*\()",
        languages=SCRIPT,
    ),
    ChecklistItem(
        what="an open end, marked by its author",
        mend="do it, or turn it into an issue",
        severity="low",
        focus="style",
        pattern=r"\b(?:TODO|FIXME|XXX|HACK)\b",
        where="comment",
    ),
    ChecklistItem(
        what="an `unwrap` that panics when there is no value",
        mend="handle the error with `?` or `match`",
        severity="low",
        focus="bugs",
        pattern=r"\.unwrap\(\)",
        languages=frozenset({"rs"}),
    ),
    ChecklistItem(
        what="an error is thrown away",
        mend="check it, or say in a comment why it may be ignored",
        severity="medium",
        focus="bugs",
        pattern=r"\b_\s*(?:,\s*_\s*)?:?=\s*\w+(?:\.\w+)*\(",
        languages=frozenset({"go"}),
    ),
    ChecklistItem(
        what="copies without a bound",
        mend="use a form that takes the size of the target",
        severity="high",
        focus="security",
        pattern=r"(?<!\w)(?:strcpy|strcat|sprintf|gets|vsprintf)\s*\(",
        languages=frozenset({"c", "cc", "cpp", "h", "hpp"}),
    ),
)
