"""Options that run a program or write a file, by program. A table, and no state.

Called by `programs`. A person who allowed `git log*` did not think of them: a star does not mean them. The
table holds what is known and common.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from retinue.authority.shell.known import GAP
from retinue.authority.shell.plain import names


@dataclass(frozen=True, slots=True)
class _Options:
    """Options that run a program or write a file. `long` may be shortened, `short` may stand among others."""

    long: frozenset[str] = frozenset()
    short: str = ""
    named: frozenset[str] = frozenset()
    """Options with one dash or two that are never shortened."""

    def has(self, word: str) -> bool:
        bare = word.lstrip(GAP)
        if not (bare.startswith("-") or (bare != word and "=" in bare)) or bare in ("-", "--"):
            return False
        name = word.lstrip("-").partition("=")[0]
        if GAP in name:
            return self._could_have(name)
        if name in self.named:
            return True
        if word.startswith("--"):
            return any(each.startswith(name) for each in self.long)
        return any(letter in word[1:] for letter in self.short)

    def _could_have(self, name: str) -> bool:
        """Whether a name with gaps could be one of them; a gap alone could be anything, and says nothing."""
        parts = name.split(GAP)
        if not any(parts):
            return False
        could = re.compile(".*".join(map(re.escape, parts)), re.S)
        whole = any(could.fullmatch(each) for each in self.named)
        return whole or any(
            could.fullmatch(each[:size]) for each in self.long for size in range(1, len(each) + 1)
        )


def _options(long: str = "", short: str = "", named: str = "") -> _Options:
    return _Options(long=names(long), short=short, named=names(named))


OPTIONS: dict[str, _Options] = {
    "ack": _options("pager output"),
    "ag": _options("pager"),
    "bat": _options("pager"),
    "black": _options("code config", "c"),
    "cargo": _options("artifact-dir config lockfile-path logfile manifest-path out-dir target-dir", "CZ"),
    "curl": _options(
        "alt-svc config cookie-jar data data-ascii data-binary data-raw data-urlencode dump-header engine"
        " etag-save form form-string hsts json libcurl mail-from output output-dir postquote prequote quote"
        " remote-name remote-name-all request ssl-sessions stderr trace trace-ascii unix-socket upload-file"
        " url-query variable",
        "cdDFKoOQTX",
    ),
    "date": _options("set", "s"),
    "diff": _options("paginate", "l"),
    "eslint": _options(
        "cache-file cache-location config fix fix-dry-run format init output-file parser plugin"
        " resolve-plugins-relative-to rulesdir",
        "cfo",
    ),
    "fd": _options("exec exec-batch", "xX"),
    "fdfind": _options("exec exec-batch", "xX"),
    "file": _options("compile uncompress uncompress-noreport", "CzZ"),
    "find": _options(named="exec execdir ok okdir delete fprint fprint0 fprintf fls"),
    "flake8": _options("append-config config output-file tee"),
    "git": _options(
        "config config-env contents edit edit-description exec exec-path ext-diff extcmd filters"
        " open-files-in-pager output output-directory receive-pack show-signature textconv tool upload-pack"
    ),
    "go": _options(
        named="asmflags blockprofile c C compiler coverprofile cpuprofile exec fix fuzz gccgoflags gcflags"
        " ldflags memprofile modfile mutexprofile o outputdir overlay pkgdir test.blockprofile"
        " test.coverprofile test.cpuprofile test.memprofile test.mutexprofile test.outputdir test.trace"
        " toolexec trace vettool w"
    ),
    "jest": _options(
        "cacheDirectory config coverageDirectory globalSetup outputFile rootDir runner setupFiles testRunner"
        " transform updateSnapshot",
        "cu",
    ),
    "kubectl": _options(
        "cache-dir exec-arg exec-command kubeconfig log-dir log-file profile-output server", "s"
    ),
    "less": _options("log-file LOG-FILE lesskey-src lesskey-file", "oOkK"),
    "make": _options("directory eval file makefile include-dir", "CEfI"),
    "man": _options("pager html preprocessor config-file gxditview troff-device browser", "CHPTX"),
    "mypy": _options(
        "any-exprs-report cache-dir cobertura-xml-report config-file custom-typeshed-dir html-report"
        " install-types junit-xml linecount-report linecoverage-report lineprecision-report"
        " memory-xml-report python-executable shadow-file txt-report xml-report xslt-html-report"
        " xslt-txt-report"
    ),
    "npm": _options(
        "cache editor git globalconfig init-module logs-dir node-options prefix script-shell shell userconfig"
        " viewer",
        "C",
    ),
    "prettier": _options("config ignore-path plugin plugin-search-dir write cache-location", "w"),
    "pylint": _options("init-hook load-plugins output rcfile"),
    "pytest": _options(
        "basetemp config-file confcutdir cov-config debug override-ini pastebin pdbcls rootdir rsyncdir tx",
        "cop",
    ),
    "rg": _options("pre hostname-bin search-zip", "z"),
    "rsync": _options("rsh rsync-path log-file write-batch partial-dir temp-dir", "e"),
    "ruff": _options("add-noqa cache-dir config fix fix-only output-file unsafe-fixes", "o"),
    "scp": _options(short="FJoS"),
    "sort": _options("compress-program output", "o"),
    "ssh": _options(short="EFJoSwLRD"),
    "tar": _options(
        "checkpoint-action info-script new-volume-script rmt-command rsh-command to-command"
        " use-compress-program",
        "FI",
    ),
    "tree": _options(short="oR"),
    "wget": _options("append-output config execute output-document output-file use-askpass", "aeOoP"),
    "yq": _options("inplace security-enable-system-operator split-exp split-exp-file", "is"),
    "zip": _options("unzip-command", "T"),
}
