"""Allow rules that people write: what a star means, and the options that it does not."""

from __future__ import annotations

import pytest

from shell_rules import judge, published

# By rule: what runs unasked, and what runs or writes something else than the rule says.
MEANT = {
    "pytest*": (
        ["pytest", "pytest -q tests/test_a.py::test_b -k 'a or b' --lf -n 4", "pytest --tb=short --cov-report=term", "pytest -x -vv src/"],
        ["pytest -p x", "pytest -qp x", "pytest -c F", "pytest --rootdir=x", "pytest --confcutdir x", "pytest -o a=b", "pytest --junitxml=F",
         "pytest --json-report-file=F", "pytest --cov-report xml:F", "pytest --cov-report=html:x", "pytest --tx popen//python=x", "pytest @F",
         "pytest /tmp/test_x.py", "pytest ../x", "pytest ~/x", "pytest a/../../x::test", "pytest --basetemp=x", "pytest --inline-snapshot=fix",
         "pytest --benchmark-json F", "pytest --snapshot-update", "pytest --log-file=F"],
    ),
    "python -m pytest*": (["python -m pytest -q tests"], ["python -m pytest -p x", "python -m pytest /tmp/x.py", "python -m pytest -c F"]),
    "uv run pytest*": (["uv run pytest -q"], ["uv run pytest -p x", "uv run pytest --rootdir=x"]),
    "uv run python -m pytest*": (
        ["uv run python -m pytest -q tests"],
        ["uv run python -m pytest -p x", "uv run python -m pytest /tmp/x.py", "uv run python -m pytest --junitxml=F"],
    ),
    "uv run --frozen python -X dev -m pytest*": (
        ["uv run --frozen python -X dev -m pytest -q"], ["uv run --frozen python -X dev -m pytest -p x"],
    ),
    "poetry run timeout 60 pytest*": (["poetry run timeout 60 pytest -q"], ["poetry run timeout 60 pytest -p x"]),
    "timeout 60 uv run python -m pytest*": (["timeout 60 uv run python -m pytest -q"], ["timeout 60 uv run python -m pytest -p x"]),
    "python -m coverage run -m pytest*": (["python -m coverage run -m pytest -q"], ["python -m coverage run -m pytest -p x"]),
    "python -m *": (["python -m pytest -q"], ["python -m pytest -p x"]),
    "uv run *": (
        ["uv run pytest -q", "uv run python -m pytest -q"],
        ["uv run pytest -p x", "uv run python -m pytest -p x", "uv run npx eslint --fix src"],
    ),
    ".venv/bin/pytest*": ([".venv/bin/pytest -q"], [".venv/bin/pytest -p x"]),
    ".venv/bin/python -m pytest*": ([".venv/bin/python -m pytest -q"], [".venv/bin/python -m pytest -p x"]),
    "/usr/bin/git log*": (["/usr/bin/git log -3"], ["/usr/bin/git log --output=F"]),
    "npx eslint*": (["npx eslint src"], ["npx eslint --fix src", "npx eslint --rulesdir x src", "npx eslint -c F src"]),
    "npm test*": (
        ["npm test", "npm test -- --watch=false", "npm test --workspace=a"],
        ["npm test --script-shell=x", "npm test --prefi x", "npm test -C x", "npm test --node-options=x", "npm test --logs-dir=x"],
    ),
    "make *": (
        ["make", "make -j4 all", "make -n test", "make -k check V"],
        ["make -f F", "make -sf F", "make -C x", "make CC=x", "make 'x!=y'", "make --eval=x", "make -I x", "make > F"],
    ),
    "ls *": (["ls -la src", "ls --sort=time"], ["ls > F", "ls $(x)", "ls | tee F"]),
    "rg *": (["rg -n TODO src", "rg --files -g '*.py'"], ["rg --pre x y", "rg --pre=x y", "rg -z x", "rg --hostname-bin x y", "rg --search-zip x"]),
    "cat *": (["cat README.md", "cat a b"], ["cat a > F", "cat <<E\nx\nE", "cat a | sh"]),
    "find *": (
        ["find . -name '*.py' -newer x", "find src -type f -print"],
        ["find . -delete", "find . -fprint F", "find . -fprintf F x", "find . -fls F", "find . -exec x ;", "find . -okdir x ;"],
    ),
    "git log*": (
        ["git log --oneline -5", "git log -p -S x -- a"],
        ["git log --output=F", "git log --outp F", "git log --ext-diff", "git log --textconv -p", "git log --show-signature", "git log --format=%G?"],
    ),
    "git diff*": (
        ["git diff --stat HEAD~2", "git diff --no-ext-diff"],
        ["git diff --output=F", "git diff --ext-diff", "git diff --textconv", "git difftool -x y", "git diff > F"],
    ),
    "sed -n*": (
        ["sed -n 1,5p a", "sed -n -e '/a/p' a"],
        ["sed -n 'w F' a", "sed -n '1e x' a", "sed -n p -i a", "sed -n --line-length 5 'w F' a", "sed -n -e p --expr 'w F' a", "sed -n 's/a/b/w F' a"],
    ),
    "git branch --list*": (
        ["git branch --list", "git branch --list -a 'x*'"],
        ["git branch --list --no-list -D x", "git branch --list --no-li -m a b", "git branch --list --edit-description"],
    ),
    "prettier --check*": (["prettier --check ."], ["prettier --check --no-check --write .", "prettier --check --write .", "prettier --check --plugin=x ."]),
    "go test*": (["go test ./... -run X -v"], ["go test -exec x", "go test -c", "go test -ldflags=x", "go test -test.coverprofile=F", "go test -fuzz=x"]),
    "cargo test*": (["cargo test -p a"], ["cargo test --manifest-path=/x/Cargo.toml", "cargo test --config x", "cargo test -C x"]),
    "mypy*": (["mypy src --strict"], ["mypy --html-report=x src", "mypy --python-executable x src", "mypy --txt-rep x src"]),
    "kubectl get*": (["kubectl get pods -A"], ["kubectl get pods --kubeconfig=F", "kubectl get pods --server=x"]),
    "curl *": (["curl -sSL https://example.org", "curl -sw '%{http_code}' y"], ["curl -o F x", "curl -sXPOST x", "curl --libcurl F x", "curl --etag-save F x", "curl -d x y",
        "curl -w '%output{F}x' y", "curl -sw @F y", "curl --write-out @F y", "curl --write-o=@F y"]),
    "less *": (["less README.md"], ["less '+!x' README.md", "less -oF README.md"]),
    "xxd *": (["xxd a"], ["xxd a F", "xxd -r a F"]),
}  # fmt: skip


@pytest.mark.parametrize("rule", MEANT)
def test_a_star_means_what_its_author_had_in_mind(rule: str) -> None:
    allowed, asks = MEANT[rule]
    verdicts = {command: judge(command, allow=[f"bash({rule})"]) for command in (*allowed, *asks)}
    assert verdicts == {**dict.fromkeys(allowed, "allow"), **dict.fromkeys(asks, "ask")}


def test_an_option_that_a_published_rule_names_cannot_be_taken_back() -> None:
    assert judge("git branch --list x", allow=published()) == "allow"
    assert judge("git branch --list --no-list -D x", allow=published()) == "ask"
    assert judge("git branch --list --no-color", allow=published()) == "allow"


def test_an_option_that_the_rule_itself_names_is_meant_behind_a_runner_too() -> None:
    assert judge("python -m pytest -p x tests", allow=["bash(python -m pytest -p x*)"]) == "allow"
    assert judge("python -m pytest -p x -p y", allow=["bash(python -m pytest -p x*)"]) == "ask"
