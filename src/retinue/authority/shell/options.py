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
    "ar": _options("plugin"),
    "base64": _options("output", "o"),
    "bat": _options("generate-config-file pager"),
    "black": _options("code config", "c"),
    "autopep8": _options("global-config in-place", "i"),
    "biome": _options("apply apply-unsafe config-path fix unsafe write"),
    "cargo": _options("artifact-dir config fix lockfile-path logfile manifest-path out-dir target-dir", "CZ"),
    "clang-tidy": _options(named="config-file export-fixes fix fix-errors fix-notes load vfsoverlay"),
    "codespell": _options("config write-changes", "w"),
    "coverage": _options("debug rcfile"),
    "cpio": _options("file rsh-command", "FIO"),
    "curl": _options(
        "abstract-unix-socket"
        " alt-svc config cookie-jar data data-ascii data-binary data-raw data-urlencode dump-header engine"
        " etag-save form form-string hsts json libcurl mail-from output output-dir postquote prequote quote"
        " remote-name remote-name-all request ssl-sessions stderr trace trace-ascii unix-socket upload-file"
        " url-query variable",
        "cdDFKoOQTX",
    ),
    "date": _options("set", "s"),
    "diff": _options("paginate", "l"),
    "diff3": _options("diff-program"),
    "dmesg": _options("clear console-level console-off console-on read-clear", "cCDEn"),
    "eslint": _options(
        "cache-file cache-location config fix fix-dry-run format init output-file parser plugin"
        " inspect-config prune-suppressions resolve-plugins-relative-to rulesdir suppress-all suppress-rule"
        " suppressions-location",
        "cfo",
    ),
    "fd": _options("exec exec-batch", "xX"),
    "fdfind": _options("exec exec-batch", "xX"),
    "file": _options("compile uncompress uncompress-noreport", "CzZ"),
    "find": _options(named="exec execdir ok okdir delete fprint fprint0 fprintf fls"),
    "flake8": _options("append-config config output-file tee"),
    "git": _options(
        "apply build-fake-ancestor config config-env contents edit edit-description exec exec-path ext-diff"
        " extcmd filters lost-found"
        " open-files-in-pager output output-directory receive-pack show-signature textconv tool upload-pack"
    ),
    "go": _options(
        named="asmflags blockprofile c C compiler coverprofile cpuprofile exec fix fuzz gccgoflags gcflags"
        " ldflags memprofile modfile mutexprofile o outputdir overlay pkgdir test.blockprofile"
        " test.coverprofile test.cpuprofile test.memprofile test.mutexprofile test.outputdir test.trace"
        " toolexec trace vettool w"
    ),
    "gofmt": _options(named="cpuprofile w"),
    "golangci-lint": _options("config cpu-profile-path fix mem-profile-path trace-path", "c"),
    "helm": _options(named="kube-apiserver kubeconfig output-dir post-renderer registry-config"),
    "iconv": _options("output", "o"),
    "isort": _options("config-root settings-file settings-path sp"),
    "jest": _options(
        "cacheDirectory config coverageDirectory globalSetup outputFile rootDir runner setupFiles testRunner"
        " transform updateSnapshot",
        "cu",
    ),
    "journalctl": _options(
        "cursor-file flush relinquish-var rotate setup-keys sync update-catalog vacuum-files vacuum-size"
        " vacuum-time"
    ),
    "kubectl": _options(
        "cache-dir exec-arg exec-command kubeconfig log-dir log-file profile-output server", "s"
    ),
    "less": _options("log-file LOG-FILE lesskey-content lesskey-file lesskey-src", "oOkK"),
    "ktlint": _options("baseline format output ruleset", "FR"),
    "make": _options("directory eval file makefile include-dir", "CEfI"),
    "man": _options("pager html preprocessor config-file gxditview troff-device browser", "CHPTX"),
    "markdownlint": _options("config fix output rules", "cfor"),
    "mypy": _options(
        "any-exprs-report cache-dir cobertura-xml-report config-file custom-typeshed-dir html-report"
        " install-types junit-xml linecount-report linecoverage-report lineprecision-report"
        " memory-xml-report python-executable shadow-file txt-report xml-report xslt-html-report"
        " xslt-txt-report"
    ),
    "mysql": _options("init-command pager tee"),
    "nm": _options("plugin"),
    "npm": _options(
        "cache call editor git globalconfig init-module logs-dir node-options prefix script-shell shell"
        " userconfig viewer",
        "C",
    ),
    "objdump": _options("plugin"),
    "openssl": _options(
        named="CAcreateserial CAserial config engine keylogfile keyout out provider provider-path sess_out"
        " writerand"
    ),
    "oxlint": _options("config fix fix-dangerously fix-suggestions", "c"),
    "pip": _options(
        "cache-dir cert client-cert editor index-url extra-index-url find-links keyring-provider local-log"
        " log log-file proxy python report src target",
        "it",
    ),
    "prettier": _options("config ignore-path plugin plugin-search-dir write cache-location", "w"),
    "psql": _options("file log-file output", "fLo"),
    "ptx": _options("traditional", "G"),
    "pylint": _options("init-hook load-plugins output rcfile"),
    "pyright": _options(named="createstub p project pythonpath venvpath"),
    "pytest": _options(
        "basetemp config-file confcutdir cov-config debug override-ini pastebin pdbcls rootdir rsyncdir tx",
        "cop",
    ),
    "rg": _options("pre hostname-bin search-zip", "z"),
    "rsync": _options(
        "rsh rsync-path log-file only-write-batch write-batch partial-dir remote-option temp-dir", "eM"
    ),
    "ruff": _options("add-noqa cache-dir config fix fix-only output-file unsafe-fixes", "o"),
    "rubocop": _options(
        "auto-correct auto-correct-all auto-gen-config autocorrect autocorrect-all cache-root config"
        " fix-layout init out plugin regenerate-todo require",
        "aAcorx",
    ),
    "scp": _options(short="FJoS"),
    "sdiff": _options("diff-program output", "o"),
    "shuf": _options("output", "o"),
    "shfmt": _options("write", "w"),
    "sort": _options("compress-program output", "o"),
    "ssh": _options(short="EFJoSwLRD"),
    "split": _options("filter"),
    "standard": _options("fix parser plugin"),
    "stylelint": _options("cache-location config custom-formatter custom-syntax fix output-file", "o"),
    "sysctl": _options("load system write", "pw"),
    "systemctl": _options("host machine", "HM"),
    "tar": _options(
        "checkpoint-action files-from index-file info-script new-volume-script remove-files rmt-command"
        " rsh-command to-command use-compress-program volno-file",
        "FIT",
    ),
    "tox": _options("conf installpkg override result-json root workdir", "c"),
    "tree": _options(short="oR"),
    "tsc": _options(
        named="b build declarationDir generateCpuProfile generateTrace init outDir outFile tsBuildInfoFile w"
    ),
    "ugrep": _options("filter pager save-config view", "Q"),
    "uv": _options(named="cache-dir config-file directory env-file project python with with-editable"),
    "wget": _options(
        "append-output body-data body-file config execute method output-document output-file post-data"
        " post-file rejected-log save-cookies use-askpass warc-file",
        "aeOoP",
    ),
    "yapf": _options("in-place style", "i"),
    "yq": _options("inplace security-enable-system-operator split-exp split-exp-file", "is"),
    "zip": _options("unzip-command", "T"),
}

_ALSO = {
    "base32": "base64",
    "batcat": "bat",
    "bsdtar": "tar",
    "mariadb": "mysql",
    "pnpm": "npm",
    "ug": "ugrep",
    "yarn": "npm",
    "zless": "less",
}
"""Programs that go by another name."""
_ALSO_WITH_G = names("base64 date diff diff3 find make sdiff shuf sort split tar")
"""Those of GNU have a `g` before their names beside others."""


def options_of(name: str) -> _Options | None:
    if re.fullmatch(r"pip[\d.]+", name):
        name = "pip"
    if name[:1] == "g" and name[1:] in _ALSO_WITH_G:
        name = name[1:]
    return OPTIONS.get(_ALSO.get(name, name))
