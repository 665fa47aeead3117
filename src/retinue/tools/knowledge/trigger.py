"""Whether a question looks as if it needs knowledge from outside, before a main run starts.

Sets of words of seven languages and of Chinese, and a few short patterns: microseconds, no model. Called once
per main run when `knowledge.first` is on. A question needs knowledge if it asks, and if nothing in it points
to what is here: the files and code at work, or those who talk. It errs towards no: a missed question can
still use the tools, a needless look-up costs time and money.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from retinue.tools.knowledge.trigger_words import DEFINITE, LANGUAGES

MOST = 2000


def _all(kinds: Iterable[str]) -> frozenset[str]:
    return frozenset(word for words in kinds for word in words.split())


_TOKEN = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
# Files, calls and blocks of code: looked up here, not outside.
_CODE = re.compile(
    r"```|\w\(\)|\w[/\\][\w.-]+\.\w{1,5}\b|\b(?:src|tests?|docs|lib)[/\\]"
    r"|\w\.(?:py|js|tsx?|go|rs|c|h|cpp|java|rb|php|sh|toml|ya?ml|json|md|txt|csv|xlsx?|ini|sql|html|css|log)\b"
)
# One of these alone says that the question is about what is here, in whatever language it is asked.
_HERE = _all(
    [
        "codebase code-base repo repository refactor lint linter traceback stacktrace readme changelog "
        "docstring src venv makefile dockerfile monorepo worktree dépôt repositorio repositório репозиторий "
        "репозитории"
    ]
)
_THINGS = _all(words.things for words in LANGUAGES.values())
_POINTING = _all(words.pointing for words in LANGUAGES.values())
_DEFINITE = frozenset(DEFINITE.split())
_WORK = _all(words.work for words in LANGUAGES.values())
_PERSONS = _all(words.persons for words in LANGUAGES.values())
_ASKING = _all(words.asking for words in LANGUAGES.values())
_LOOKING = _all(words.looking for words in LANGUAGES.values())
_YEARS = frozenset(str(year) for year in range(2025, 2036))
# The answer may have changed since any model was trained.
_NEW = _all(words.new for words in LANGUAGES.values()) | _YEARS
_SPAN = re.compile(
    r"\b(?:this|last|next) (?:week|month|year|season)\b|\bas of (?:now|20\d\d)\b|\bright now\b"
)
# Talk about the talk itself.
_TALK = re.compile(
    r"^(?:hi|hello|hey|thanks|thank you|ok|okay|yes|no|continue|go on|stop)\b[^?]{0,40}$"
    r"|\bcan you help\b|\b(?:you|we) (?:just|already)\b"
    r"|^(?:so |and )?(?:what|who)(?:'s| is| are| was| were) (?:this|that|these|those|it|they|next)\b[\s?.!]*$"
    r"|\btell me (?:a|another|one more) (?:joke|story|tale|riddle|poem)\b"
)
_FILLERS = _all(
    [
        "please so and but also hey hi hello ok okay now well then kindly could can would you i wonder me "
        "bitte und also hallo nun kannst könntest du mir sagen weißt "
        "s'il te plaît vous et alors bonjour peux-tu pouvez-vous sais-tu dire "
        "por favor y pues hola puedes podrías decirme sabes per piacere e allora ciao puoi potresti dirmi "
        "sai você pode dizer-me sabe пожалуйста а и привет можешь сказать знаешь"
    ]
)
# A question inside a sentence, and a bare wish to have something looked up.
_WITHIN = re.compile(
    r"\b(?:who|what|which|when|where|why|how (?:many|much|far|old|tall|long|big|high|deep|fast)) "
    r"(?:\w+ ){0,2}(?:is|are|was|were|did|does|has|had|will|invented|discovered|wrote|won|founded)\b"
    r"|\b(?:look up|find out|how (?:many|much|far|old|tall))\b"
)
_NO_ARTICLES = re.compile(r"[а-яё]")
# Chinese and Japanese have no blanks between words: their closed classes are looked for as such.
_HAN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_HAN_ASKING = re.compile(
    r"什么|甚麼|什麼|谁|誰|哪|何时|何時|为什么|為什麼|怎么|怎麼|如何|多少|几[个年次岁]|是否|吗|嗎|介绍|解释|"
    r"何|いつ|どこ|どの|だれ|なぜ|どう|いくつ|いくら|教えて|[?？]"
)
_HAN_HERE = re.compile(
    r"文件|代码|代碼|分支|函数|函數|项目|專案|目录|目錄|脚本|测试|測試|提交|仓库|倉庫|报错|報錯|错误|配置|变量|"
    r"数据库|表格|文档|图片|日志|模块|接口|这[个段份些里]|這[個段份些]|我们|我們|我的|你|您|附件|上面|以下|刚才|"
    r"ファイル|コード|ブランチ|関数|プロジェクト|フォルダ|テスト|コミット|リポジトリ|エラー|設定|変数|この|私|あなた"
)
_HAN_WORK = re.compile(
    r"^(?:请|請|帮我|幫我)*(?:修复|修改|重构|重命名|运行|编写|写|添加|删除|创建|更新|翻译|总结|排序|优化|检查|改写)"
)


def needs_knowledge(question: str) -> bool:
    """True for questions about the world; not for work on files, code or the conversation itself."""
    text = question[:MOST].strip().lower().replace("’", "'")
    words = _TOKEN.findall(text)
    if not words or _CODE.search(text) or not _HERE.isdisjoint(words):
        return False
    if len(_HAN.findall(text)) * 3 > len(text):
        return bool(_HAN_ASKING.search(text)) and not _HAN_HERE.search(text) and not _HAN_WORK.search(text)
    words = [part for word in words for part in _parts(word)]
    start = next((place for place, word in enumerate(words) if word not in _FILLERS), len(words))
    rest = words[start:]
    if not rest or _is_here(words, rest[0]) or _is_talk(text, rest):
        return False
    if not _NEW.isdisjoint(words) or _SPAN.search(text):
        return True
    if rest[0] in _WORK:
        return False
    return rest[0] in _ASKING or rest[0] in _LOOKING or bool(_WITHIN.search(text)) or _asks(text, rest)


def _parts(word: str) -> tuple[str, ...]:
    """`l'histoire` and `vas-tu` are two words, `what's` and `est-ce` are one."""
    if ("'" not in word and "-" not in word) or word in _ASKING or word in _FILLERS or word in _NEW:
        return (word,)
    head, _, person = word.rpartition("-")
    if person in _PERSONS:
        return (head, person)
    head, mark, tail = word.partition("'")
    return (head + mark, tail) if mark and len(head) <= 2 and tail else (word,)


def _asks(text: str, words: list[str]) -> bool:
    """A question whose question word stands later: «En quelle année …?», «In welchem Jahr …?»"""
    return text.rstrip(" \"'»”").endswith(("?", "？", "؟")) and not _ASKING.isdisjoint(words[:4])


def _is_talk(text: str, rest: list[str]) -> bool:
    """Whether it is about those who talk: they stand in what is asked, behind all politeness."""
    told = 2 if rest[0] in ("tell", "find") else 0  # «tell me …»
    return bool(_TALK.search(text)) or not _PERSONS.isdisjoint(rest[told:])


def _is_here(words: list[str], first: str) -> bool:
    things = [place for place, word in enumerate(words) if word in _THINGS]
    if not things:
        return False
    if len({words[place] for place in things}) >= 2 or first in _WORK:
        return True
    if any(_NO_ARTICLES.search(words[place]) for place in things):
        return True  # where there are no articles, a bare name is the one at hand
    return any(
        _POINTING & set(words[max(0, place - 3) : place]) or _DEFINITE & set(words[max(0, place - 2) : place])
        for place in things
    )
