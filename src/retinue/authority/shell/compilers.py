"""What compilers and builders run beside their own work, where a table of options is not enough to say it.

Called by `programs`, for words that a star stands for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

Words = Sequence[str]
Free = Sequence[bool]

_C_RUNS = re.compile(
    r"--?(?:fplugin|fpass-plugin|iplugindir|wrapper|specs|prefix|ld-path|load|cc1(?:as)?|gcc-toolchain"
    r"|gcc-install-dir|ccc-gcc-name|config(?:-\w+)*|plugin|mllvm|Xclang|dtlto-\w+|js-library|run)(?:[=:,].*)?"
    r"|-B.*|-fuse-ld=.*/.*|-W[alp],.*@.*",
    re.S,
)


def of_c(words: Words, free: Free) -> str:
    """Plugins, wrappers and other programs in the place of its own; for the linker too, behind `-Wl,`."""
    for word, open_ in zip(words, free, strict=True):
        parts = word.split(",")[1:] if re.match(r"-W[alp],", word) else ()
        if open_ and any(_C_RUNS.fullmatch(each) for each in (word, *parts)):
            return word
    return ""


_RUST_RUNS = re.compile(
    r"(?:-C|--codegen=)?(?:linker|(?:pre-)?link-args?|codegen-backend|llvm-args|ar)=.*|-Z.*|.*\.json"
    r"|--extern(?:=.*)?|--sysroot(?:=.*)?",
    re.S,
)


def rustc(words: Words, free: Free) -> str:
    """Another linker, what it is told, and targets of a file, which name one."""
    return _first(words, free, _RUST_RUNS)


_CARGO_TARGET = re.compile(r"(?:--target=)?.*\.json", re.S)


def cargo(words: Words, free: Free) -> str:
    """A target that is a file names a linker."""
    return _first(words, free, _CARGO_TARGET)


_SWITCH = r"(?:ON|OFF|TRUE|FALSE|YES|NO|\d+|Debug|Release|RelWithDebInfo|MinSizeRel)"
_DEFINES = re.compile(
    rf"(?:\w+(?::BOOL)?={_SWITCH}|CMAKE_(?:BUILD_TYPE|INSTALL_PREFIX|C_STANDARD|CXX_STANDARD)(?::\w+)?=[\w./-]+)",
    re.I,
)


def cmake(words: Words, free: Free) -> str:
    """Scripts, and variables that name programs; what stands behind `--` is for the builder."""
    behind = False
    for at, (word, open_) in enumerate(zip(words, free, strict=True)):
        defines = word[2:] if word.startswith("-D") else word if at and words[at - 1] == "-D" else ""
        tame = not defines or _DEFINES.fullmatch(defines)
        runs = re.match(r"-[PCE]|--(?:toolchain|preset|run)|-[GT]\W*/", word)
        if open_ and (not tame or runs or (behind and ("=" in word or re.match(r"-\w*[fCIE]", word)))):
            return word
        behind = behind or word == "--"
    return ""


_EDITOR_TAME = re.compile(r"-[RnNbdMmv]+|\+\d+|--clean|--version|--help|-nw|-Q|--no-\w[\w-]*|--")


def editor(words: Words, free: Free) -> str:
    """Almost every option of an editor brings commands along; `+` does, but for a line."""
    for word, open_ in zip(words[1:], free[1:], strict=True):
        if open_ and word.startswith(("-", "+")) and word != "-" and not _EDITOR_TAME.fullmatch(word):
            return word
    return ""


def _first(words: Words, free: Free, runs: re.Pattern[str]) -> str:
    return next((word for word, open_ in zip(words, free, strict=True) if open_ and runs.fullmatch(word)), "")
