"""Options that run a program or write a file, by program. A table, and no state.

Called by `programs`. A person who allowed `git log*` did not think of them: a star does not mean them. The
table holds what is known and common; of programs that are not known, `option_names` says what names say.
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
    glued: tuple[str, ...] = ()
    """How options begin whose value follows without a sign between: `-J-javaagent:x`."""

    def has(self, word: str) -> bool:
        bare = word.lstrip(GAP)
        if not (bare.startswith("-") or (bare != word and "=" in bare)) or bare in ("-", "--"):
            return False
        if self.glued and word.startswith(self.glued):
            return True
        name = re.split("[=:]", word.lstrip("-"), maxsplit=1)[0]
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


def _options(long: str = "", short: str = "", named: str = "", glued: str = "") -> _Options:
    return _Options(long=names(long), short=short, named=names(named), glued=tuple(glued.split()))


OPTIONS: dict[str, _Options] = {
    "ack": _options("pager output"),
    "ag": _options("pager"),
    "ansible": _options("connection extra-vars inventory module-path ssh-common-args ssh-extra-args", "ceiM"),
    "ant": _options(named="f file buildfile lib logger listener inputhandler propertyfile", glued="-D"),
    "ar": _options("plugin"),
    "asciidoctor": _options("require template-dir", "rTIE"),
    "autopep8": _options("global-config in-place", "i"),
    "babel": _options("config-file plugins presets root-mode", ""),
    "base64": _options("output", "o"),
    "bat": _options("generate-config-file pager"),
    "bazel": _options("bazelrc host_jvm_args override_repository run_under workspace_status_command"),
    "biome": _options("apply apply-unsafe config-path fix unsafe write"),
    "bison": _options("skeleton", "S"),
    "black": _options("code config", "c"),
    "bun": _options("config preload require", "cr"),
    "cargo": _options(
        "artifact-dir config fix lockfile-path logfile manifest-path out-dir", "CZ", named="target-dir"
    ),
    "clang-tidy": _options(named="config-file export-fixes fix fix-errors fix-notes load vfsoverlay"),
    "codespell": _options("config write-changes", "w"),
    "coverage": _options("debug rcfile"),
    "cpio": _options("file rsh-command", "FIO"),
    "cppcheck": _options("addon addon-python clang rule-file"),
    "ctags": _options("options options-maybe libexec-dir data-dir", glued="--_"),
    "ctest": _options("build-makeprogram script script-new-process", named="S SP D"),
    "curl": _options(
        "abstract-unix-socket"
        " alt-svc config cookie-jar data data-ascii data-binary data-raw data-urlencode dump-header engine"
        " etag-save form form-string hsts json libcurl mail-from output output-dir postquote prequote quote"
        " remote-name remote-name-all request ssl-sessions stderr trace trace-ascii unix-socket upload-file"
        " url-query variable",
        "cdDFKoOQTX",
    ),
    "date": _options("set", "s"),
    "deno": _options("allow-all allow-ffi allow-run allow-sys config import-map preload require", "Ac"),
    "diff": _options("paginate", "l"),
    "diff3": _options("diff-program"),
    "dmesg": _options("clear console-level console-off console-on read-clear", "cCDEn"),
    "dotnet": _options(named="logger l distributedlogger dl p property s settings"),
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
    "flex": _options("skel", "S"),
    "fzf": _options("bind preview with-shell"),
    "gdb": _options(
        named="cd command data-directory ex eval-command iex init-command init-eval-command ix p pid x"
    ),
    "ghc": _options(named="F e frontend fplugin", glued="-pgm -opt -fplugin"),
    "git": _options(
        "apply build-fake-ancestor config config-env contents edit edit-description exec exec-path ext-diff"
        " extcmd filters lost-found"
        " open-files-in-pager output output-directory prefix receive-pack show-signature strategy template"
        " textconv tool upload-pack"
    ),
    "go": _options(
        named="asmflags blockprofile c C compiler coverprofile cpuprofile exec fix fuzz gccgoflags gcflags"
        " ldflags memprofile modfile mutexprofile o outputdir overlay pkgdir test.blockprofile"
        " test.coverprofile test.cpuprofile test.memprofile test.mutexprofile test.outputdir test.trace"
        " toolexec trace vettool w"
    ),
    "gofmt": _options(named="cpuprofile w"),
    "golangci-lint": _options("config cpu-profile-path fix mem-profile-path trace-path", "c"),
    "gpg": _options(
        "agent-program dirmngr-program exec-path keyboxd-program load-extension options photo-viewer"
    ),
    "gradle": _options(
        "build-file gradle-user-home include-build init-script project-dir settings-file", "bcDgIpP"
    ),
    "grunt": _options("base gruntfile tasks"),
    "gulp": _options("cwd gulpfile require", "f"),
    "helm": _options(named="kube-apiserver kubeconfig output-dir post-renderer registry-config"),
    "hg": _options("config cwd pager repository", "R"),
    "iconv": _options("output", "o"),
    "isort": _options("config-root settings-file settings-path sp"),
    "javac": _options(
        named="processor processorpath processor-path processor-module-path", glued="-J -Xplugin"
    ),
    "jest": _options(
        "cacheDirectory config coverageDirectory globalSetup outputFile rootDir runner setupFiles testRunner"
        " transform updateSnapshot",
        "cu",
    ),
    "journalctl": _options(
        "cursor-file flush relinquish-var rotate setup-keys sync update-catalog vacuum-files vacuum-size"
        " vacuum-time"
    ),
    "just": _options("chooser command dotenv-path justfile set shell shell-arg working-directory", "dfc"),
    "kotlinc": _options(named="J P script", glued="-J -Xplugin -Xcompiler-plugin"),
    "ktlint": _options("baseline format output ruleset", "FR"),
    "kubectl": _options(
        "cache-dir exec-arg exec-command kubeconfig log-dir log-file profile-output server", "s"
    ),
    "latex": _options(named="enable-write18 mktex output-driver progname shell-escape translate-file"),
    "less": _options("log-file LOG-FILE lesskey-content lesskey-file lesskey-src", "oOkK"),
    "lldb": _options(
        "local-lldbinit one-line one-line-before-file one-line-on-crash source source-before-file"
        " source-on-crash",
        "koOsSKp",
    ),
    "mail": _options(short="SX"),
    "make": _options("directory eval file makefile include-dir", "CEfI"),
    "man": _options("pager html preprocessor config-file gxditview troff-device browser", "CHPTX"),
    "markdownlint": _options("config fix output rules", "cfor"),
    "meson": _options("cross-file native-file wrap-mode"),
    "mkdocs": _options("config-file", "f"),
    "mocha": _options("config file opts package reporter require ui", "fRru"),
    "mutt": _options(short="eF"),
    "mvn": _options(
        "file global-settings global-toolchains settings toolchains", named="f gs gt s t", glued="-D"
    ),
    "mypy": _options(
        "any-exprs-report cache-dir cobertura-xml-report config-file custom-typeshed-dir html-report"
        " install-types junit-xml linecount-report linecoverage-report lineprecision-report"
        " memory-xml-report python-executable shadow-file txt-report xml-report xslt-html-report"
        " xslt-txt-report"
    ),
    "mysql": _options("init-command pager tee"),
    "nano": _options("rcfile speller", "sf"),
    "ninja": _options(short="Cf"),
    "nm": _options("plugin"),
    "nodemon": _options("config exec", "x"),
    "nox": _options("noxfile", "f"),
    "npm": _options(
        "cache call editor git globalconfig init-module logs-dir node-options prefix script-shell shell"
        " userconfig viewer",
        "Cc",
    ),
    "nvcc": _options(
        named="allow-unsupported-compiler ccbin compiler-bindir dryrun ldir optf options-file run Xlinker"
    ),
    "nyc": _options("cwd nycrc-path require", "r"),
    "objdump": _options("plugin"),
    "ocamlc": _options(named="cc pp ppx ccopt plugin"),
    "openssl": _options(
        named="CAcreateserial CAserial config engine keylogfile keyout out provider provider-path sess_out"
        " writerand"
    ),
    "oxlint": _options("config fix fix-dangerously fix-suggestions", "c"),
    "pandoc": _options("data-dir defaults filter lua-filter pdf-engine pdf-engine-opt", "FLd"),
    "pip": _options(
        "cache-dir cert client-cert editor index-url extra-index-url find-links keyring-provider local-log"
        " log log-file proxy python report src target",
        "it",
    ),
    "playwright": _options("config", "c"),
    "poetry": _options("directory project", "CP"),
    "postcss": _options("config parser stringifier syntax use", "u"),
    "pre-commit": _options("config", "c"),
    "prettier": _options("config ignore-path plugin plugin-search-dir write cache-location", "w"),
    "psql": _options("file log-file output", "fLo"),
    "ptx": _options("traditional", "G"),
    "pylint": _options("init-hook load-plugins output rcfile"),
    "pyright": _options(named="createstub p project pythonpath venvpath"),
    "pytest": _options(
        "basetemp config-file confcutdir cov-config debug override-ini pastebin pdbcls px rootdir rsyncdir"
        " tx",
        "cop",
    ),
    "rake": _options("execute execute-continue execute-print libdir rakefile rakelib require", "efIpErRC"),
    "rg": _options("pre hostname-bin search-zip", "z"),
    "rollup": _options("config configPlugin plugin", "cp"),
    "rsync": _options(
        "rsh rsync-path log-file only-write-batch write-batch partial-dir remote-option temp-dir", "eM"
    ),
    "rubocop": _options(
        "auto-correct auto-correct-all auto-gen-config autocorrect autocorrect-all cache-root config"
        " fix-layout init out plugin regenerate-todo require",
        "aAcorx",
    ),
    "ruff": _options("add-noqa cache-dir config fix fix-only output-file unsafe-fixes", "o"),
    "scons": _options("directory file makefile sconstruct site-dir", "CDfY"),
    "scp": _options(short="DFJoS"),
    "sdiff": _options("diff-program output", "o"),
    "sftp": _options(short="DFJoS"),
    "shfmt": _options("write", "w"),
    "shuf": _options("output", "o"),
    "sort": _options("compress-program output", "o"),
    "sphinx-build": _options("conf-dir define", "cD"),
    "split": _options("filter"),
    "ssh": _options(short="DEFIJLoRSw"),
    "ssh-add": _options(short="sS"),
    "ssh-keygen": _options(short="Dw"),
    "standard": _options("fix parser plugin"),
    "stylelint": _options("cache-location config custom-formatter custom-syntax fix output-file", "o"),
    "svn": _options("config-dir config-option diff-cmd diff3-cmd editor-cmd merge-cmd"),
    "swiftc": _options(
        named="Xfrontend Xcc Xclang-linker Xllvm tools-directory ld-path use-ld", glued="-load-plugin"
    ),
    "sysctl": _options("load system write", "pw"),
    "systemctl": _options("host machine", "HM"),
    "tar": _options(
        "checkpoint-action files-from index-file info-script new-volume-script remove-files rmt-command"
        " rsh-command to-command use-compress-program volno-file",
        "FIT",
    ),
    "task": _options("dir taskfile", "dt"),
    "tcpdump": _options("postrotate-command", "wz"),
    "terraform": _options(named="chdir plugin-dir"),
    "tox": _options("conf installpkg override result-json root workdir", "cx"),
    "tree": _options(short="oR"),
    "ts-node": _options("compiler cwd dir eval print project require script-mode", "CeprP"),
    "tsc": _options(
        named="b build declarationDir generateCpuProfile generateTrace init outDir outFile tsBuildInfoFile w"
    ),
    "tshark": _options(short="wX"),
    "ugrep": _options("filter pager save-config view", "Q"),
    "uv": _options(named="cache-dir config-file directory env-file project python with with-editable"),
    "vite": _options("config configLoader", "c"),
    "vitest": _options("config dir root setupFiles globalSetup", "cr"),
    "webpack": _options("config", "c"),
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
    "ansible-playbook": "ansible",
    "avr-gdb": "gdb",
    "gpg2": "gpg",
    "gradlew": "gradle",
    "mailx": "mail",
    "mvnw": "mvn",
    "neomutt": "mutt",
    "ocamlopt": "ocamlc",
    "s-nail": "mail",
    "scalac": "kotlinc",
    "tofu": "terraform",
    **dict.fromkeys(names("lualatex luatex pdflatex pdftex tex xelatex xetex latexmk"), "latex"),
}
"""Programs that go by another name."""
_ALSO_WITH_G = names("base64 date diff diff3 find make sdiff shuf sort split tar")
"""Those of GNU have a `g` before their names beside others."""


_FAMILIES = (
    (re.compile(r"pip[\d.]+"), "pip"),
    (re.compile(r"(?:[\w.]+-)*(?:gcc|g\+\+|cc|c\+\+|c89|c99|cpp|gfortran|gdc|gccgo)(?:-[\d.]+)?"), "cc"),
    (re.compile(r"(?:[\w.]+-)*(?:clang|clang\+\+|clang-cl|flang|flang-new|icp?x)(?:-[\d.]+)?"), "cc"),
    (re.compile(r"emcc|em\+\+|tcc|(?:[\w.]+-)*ld(?:64)?(?:\.\w+)?|ld64\.lld|ld?ld|gold|mold"), "cc"),
    (re.compile(r"[er]?g?view|[er]?g?vim(?:diff|x|\.\w+)?|nvim|ex|vi|emacs(?:client)?(?:-[\w.]+)?"), "vim"),
)
"""Programs that go by many names: versions, targets, ways to be called."""


def usual(name: str) -> str:
    """The name by which tables know a program."""
    for pattern, family in _FAMILIES:
        if pattern.fullmatch(name):
            return family
    if name[:1] == "g" and name[1:] in _ALSO_WITH_G:
        name = name[1:]
    return _ALSO.get(name, name)


def options_of(name: str) -> _Options | None:
    return OPTIONS.get(usual(name))
