"""What clients of databases run and write beside what they ask a database: dot commands, `\\!`, files.

Called by `programs`, for words that a star stands for. What only tells of a database is let through.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_SQLITE_TAME = re.compile(
    r"-{1,2}(?:bail|batch|box|column|csv|echo|header|help|html|json|line|list|markdown|noheader|nofollow"
    r"|nullvalue|quote|readonly|safe|separator|stats|table|tabs|version)"
)
_SQLITE_TELLS = re.compile(
    r"\s*\.(?:databases|dbinfo|dump|fullschema|headers?|help|indexes|indices|mode|nullvalue|print|schema"
    r"|separator|show|stats|tables|timeout|timer|width)(?:\s[^\n|]*)?"
)
_SQLITE_WRITES = re.compile(r"writefile|load_extension|edit\s*\(|fts3_tokenizer|vacuum", re.I)


def sqlite(words: Sequence[str], free: Sequence[bool]) -> str:
    """Dot commands but those that tell of a database; functions that reach files; and most options."""
    for word, open_ in zip(words[1:], free[1:], strict=True):
        option = word.startswith("-") and not _SQLITE_TAME.fullmatch(word)
        command = re.search(r"(?:^|\n)\s*\.\w", word) and not _SQLITE_TELLS.fullmatch(word)
        if open_ and (option or command or _SQLITE_WRITES.search(word)):
            return word
    return ""


_CLIENT_RUNS = re.compile(r"\\|\bprogram\b|\b(?:out|dump)file\b|^\s*(?:system|tee|pager|source|edit)\b", re.I)
_CLIENT_TELLS = re.compile(r"\\(?:d[a-zA-Z]*|l|z)\+?(?: [\w.*]+)?")


def client(words: Sequence[str], free: Sequence[bool]) -> str:
    """Commands of the client, which run programs and write files, and those of the server that do."""
    free_words = (word for word, open_ in zip(words, free, strict=True) if open_)
    return next(
        (word for word in free_words if _CLIENT_RUNS.search(word) and not _CLIENT_TELLS.fullmatch(word)), ""
    )
