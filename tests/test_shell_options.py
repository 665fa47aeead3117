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
    "cargo clippy*": (["cargo clippy --features a -- -D warnings"], ["cargo clippy --fix", "cargo clippy --fix --allow-dirty", "cargo clippy --fi"]),
    "tsc*": (["tsc --noEmit"], ["tsc @F"]),
    "ruff check*": (["ruff check src"], ["ruff check @F", "ruff check --fix src"]),
    "gcc *": (["gcc -c a.c"], ["gcc @F"]),
    "biome *": (["biome check src"], ["biome check --write src", "biome check --apply src", "biome check --fix src"]),
    "golangci-lint run*": (["golangci-lint run ./..."], ["golangci-lint run --fix"]),
    "rubocop*": (["rubocop lib"], ["rubocop -a", "rubocop -A lib", "rubocop --autocorrect", "rubocop --auto-correct-all"]),
    "stylelint *": (["stylelint a.css"], ["stylelint --fix a.css"]),
    "codespell*": (["codespell src"], ["codespell -w src", "codespell -i 3 -w src"]),
    "yapf *": (["yapf -d src"], ["yapf -i src", "yapf --in-place src"]),
    "gofmt *": (["gofmt -l ."], ["gofmt -w .", "gofmt -l -w ."]),
    "npm ls*": (["npm ls @types/node"], ["npm ls --prefix=x"]),
    "git log *": (["git log @~3", "git log '@{u}..'"], ["git log --output=F"]),
    "mypy*": (["mypy src --strict"], ["mypy @F", "mypy src @F", "mypy --html-report=x src", "mypy --python-executable x src", "mypy --txt-rep x src"]),
    "kubectl get*": (["kubectl get pods -A"], ["kubectl get -f http://192.0.2.1/x", "kubectl get -fhttp://192.0.2.1/x", "kubectl get --filename=http://192.0.2.1/x", "kubectl get -k x",
        "kubectl get pods --kubeconfig=F", "kubectl get pods --server=x"]),
    "kubectl logs*": (["kubectl logs -f web"], ["kubectl logs -f web --kubeconfig=F"]),
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


# By rule: what stays with what it says, and what undoes it or runs or writes something beside it.
KEPT = {
    "bash -n*": (
        ["bash -n x.sh", "bash -n -v x.sh", "bash -n x.sh -c y", "bash -n -- x.sh"],
        ["bash -n +n -c 'touch F'", "bash -n +n x.sh", "bash -n +vn x.sh", "bash -n -c x", "bash -n -o exec x.sh", "bash -n +o noexec x.sh", "bash -n -s",
         "bash -n -i x.sh", "bash -n --rcfile F -i", "bash -n +O x y"],
    ),
    "sh -n*": (["sh -n x.sh"], ["sh -n +n x.sh", "sh -n -nc x"]),
    "zsh -n*": (["zsh -n x.sh"], ["zsh -n --exec x.sh", "zsh -n -o exec x.sh"]),
    "timeout 9 bash -n*": (["timeout 9 bash -n x.sh"], ["timeout 9 bash -n +n x.sh"]),
    "bash scripts/test.sh*": (["bash scripts/test.sh -c x +n", "bash scripts/test.sh"], []),
    "bash *": (["bash -c x", "bash x.sh"], []),
    "ruby -c*": (["ruby -c x.rb", "ruby -c -w x.rb"], ["ruby -c -r ./x y.rb", "ruby -c -e x"]),
    "perl -c*": (["perl -c x.pl"], ["perl -c -Mx y.pl", "perl -c -e x", "perl -c -I. x.pl"]),
    "node --check*": (["node --check x.js"], ["node --check -r ./x y.js", "node --check --import ./x y.js"]),
    "kubectl apply --dry-run=client*": (
        ["kubectl apply --dry-run=client -f x"], ["kubectl apply --dry-run=client --dry-run=none -f x"],
    ),
    "tsc --noEmit*": (["tsc --noEmit -p ."], ["tsc --noEmit --noEmit false", "tsc --noEmit --noemit false", "tsc --noEmit --outDir x"]),
    "git push -n*": (["git push -n origin"], ["git push -n --no-dry-run", "git push -n --no-dry origin"]),
    "git branch -l*": (["git branch -l 'x*'"], ["git branch -l --no-list -D x"]),
    "git branch -v*": (
        ["git branch -v", "git branch -v -v", "git branch -v --sort=x"],
        ["git branch -v new", "git branch -v -D x", "git branch -v --delete x", "git branch -v --del x", "git branch -v -fm a b", "git branch -v -u o/x"],
    ),
    "git branch --list*": (["git branch --list 'x*'"], ["git branch --list -D x", "git branch --list -m a b"]),
    "git tag -l*": (["git tag -l 'v*'", "git tag -l --sort=x"], ["git tag -l -d x", "git tag -l -f x", "git tag -l -v x"]),
    "git tag -n*": (["git tag -n 'v*'"], ["git tag -n -d x"]),
    "git tag --sort=x*": (["git tag --sort=x", "git tag --sort=x -l"], ["git tag --sort=x new"]),
    "git remote -v*": (
        ["git remote -v", "git remote -v show origin", "git remote -v get-url origin"],
        ["git remote -v add x y", "git remote -v update", "git remote -v remove x", "git remote -v rename x y", "git remote -v set-url x y",
         "git remote -v prune x", "git remote -v -v add x y"],
    ),
    "git stash list*": (["git stash list", "git stash list -p --stat"], ["git stash list --output=F"]),
    "git stash -q*": (["git stash -q"], ["git stash -q drop"]),
    "git worktree list*": (["git worktree list", "git worktree list --porcelain"], []),
    "git submodule --quiet*": ([], ["git submodule --quiet foreach x"]),
    "git config --get*": (["git config --get user.name"], ["git config --get --unset x.y", "git config --get --no-get x.y z", "git config --get -e"]),
    "git config --global*": (["git config --global --list"], ["git config --global core.pager x", "git config --global -e", "git config --global --unset x.y"]),
    "git symbolic-ref --short*": (["git symbolic-ref --short HEAD"], ["git symbolic-ref --short HEAD refs/heads/x", "git symbolic-ref --short -d HEAD"]),
    "git symbolic-ref HEAD*": (["git symbolic-ref HEAD"], ["git symbolic-ref HEAD refs/heads/x"]),
    "git apply --check*": (["git apply --check x.patch"], ["git apply --check --apply x.patch"]),
    "split*": (["split -l 5 x"], ["split --filter='touch F' x", "split --fil=x y"]),
    "tar tf*": (["tar tf x.tar", "tar tf x.tar --wildcards 'a*'"], ["tar tf x --index-file=F", "tar tf x --index F", "tar tf x -T F", "tar tf x --volno-file=F"]),
    "shuf*": (["shuf -n 3 x"], ["shuf -o F x", "shuf -no F x", "shuf --out=F x"]),
    "iconv*": (["iconv -f latin1 -t utf8 x"], ["iconv -o F x", "iconv --output=F x"]),
    "sdiff*": (["sdiff -s a b"], ["sdiff -o F a b", "sdiff --diff-program=x a b"]),
    "diff3*": (["diff3 a b c"], ["diff3 --diff-program=x a b c"]),
    "ptx*": (["ptx x"], ["ptx -G x F", "ptx --traditional x F"]),
    "date*": (["date +%F", "date -d 20240101 +%u", "date -u"], ["date 01010101", "date -s x"]),
    "openssl dgst*": (["openssl dgst -sha256 x"], ["openssl dgst -out F x", "openssl dgst -engine ./x y"]),
    "pip list*": (
        ["pip list --format=json", "pip list -o", "pip list --path x"],
        ["pip list --log F", "pip list --lo=F", "pip list --python ./x", "pip list -i x"],
    ),
    "python -m pip list*": (["python -m pip list"], ["python -m pip list --log F"]),
    "pip3 show*": (["pip3 show -f x"], ["pip3 show --log=F x"]),
    "python3 -m json.tool*": (["python3 -m json.tool x"], ["python3 -m json.tool x F"]),
    "sqlite3 -readonly*": (
        ["sqlite3 -readonly x.db 'select a.b from a'", "sqlite3 -readonly -json ./x.db .tables", "sqlite3 -readonly x.db '.schema users'"],
        ["sqlite3 -readonly x '.shell touch F'", "sqlite3 -readonly x .sh", "sqlite3 -readonly x '.output F'", "sqlite3 -readonly x \"select writefile('F', 1)\"",
         "sqlite3 -readonly x \"VACUUM INTO 'F'\"", "sqlite3 -readonly -cmd '.shell x' y", "sqlite3 -readonly -init F x", "sqlite3 -readonly x '.read |x'"],
    ),
    "psql -c*": (["psql -c 'select 1'", "psql -c '\\d users'"], ["psql -c '\\! touch F'", "psql -c x -o F", "psql -c \"copy a to program 'x'\"", "psql -c '\\lo_export 1 F'"]),
    "xz -l*": (["xz -l x.xz"], ["xz -l -d x.xz", "xz -l --decompress x.xz"]),
    "unzip -l*": (["unzip -l x.zip"], ["unzip -l --l x.zip", "unzip -l -q-l x.zip"]),
    "nm*": (["nm -C x.o"], ["nm --plugin ./x y.o", "nm @F"]),
    "gmake -n*": (["gmake -n all"], ["gmake -n -f F", "gmake -n CC=x"]),
    "curl -I*": (["curl -I https://example.org"], ["curl -I --expand-output F x"]),
}  # fmt: skip


@pytest.mark.parametrize("rule", KEPT)
def test_words_under_a_star_neither_undo_a_rule_nor_run_or_write_beside_it(rule: str) -> None:
    allowed, asks = KEPT[rule]
    verdicts = {command: judge(command, allow=[f"bash({rule})"]) for command in (*allowed, *asks)}
    assert verdicts == {**dict.fromkeys(allowed, "allow"), **dict.fromkeys(asks, "ask")}


# By rule: what a wide rule of one's own means, and what runs or loads something else beside it.
WIDE = {
    "tox *": (["tox -e py311 -- -q", "tox run -p auto"], ["tox -x testenv.commands=x", "tox -qx a=b", "tox --override a=b", "tox exec -- x", "tox -c F"]),
    "gcc *": (
        ["gcc -Wall -O2 -o a a.c -lm", "gcc -fPIC -shared a.c", "gcc -Wl,-rpath,/usr/lib a.o", "gcc -Wl,--as-needed a.o", "gcc -fuse-ld=lld a.o", "gcc -I include -DX=1 a.c"],
        ["gcc -fplugin=./x.so a.c", "gcc -wrapper x,y a.c", "gcc -B. a.c", "gcc -B x a.c", "gcc -specs=F a.c", "gcc --specs=F a.c", "gcc -Wl,-plugin,x a.c",
         "gcc -Wl,--plugin=x a.c", "gcc -Xlinker -plugin -Xlinker x a.c", "gcc -fuse-ld=./x a.c", "gcc -Wa,@F a.c", "gcc --prefix=x a.c"],
    ),
    "x86_64-linux-gnu-g++-13 *": (["x86_64-linux-gnu-g++-13 -c a.cc"], ["x86_64-linux-gnu-g++-13 -fplugin=x a.cc", "x86_64-linux-gnu-g++-13 -B. a.cc"]),
    "clang-17 *": (
        ["clang-17 -O3 -emit-llvm -S a.c", "clang-17 -fsanitize=address a.c"],
        ["clang-17 -Xclang -load -Xclang ./x.so a.c", "clang-17 -fpass-plugin=x a.c", "clang-17 -cc1 -load x a.c", "clang-17 --ld-path=x a.c", "clang-17 --config=F a.c"],
    ),
    "/usr/bin/cc *": (["/usr/bin/cc -c a.c"], ["/usr/bin/cc -fplugin=x a.c"]),
    "ld *": (["ld -o a a.o -lc"], ["ld -plugin x a.o", "ld --plugin x a.o", "ld --plugin=x a.o"]),
    "ld.lld *": (["ld.lld -o a a.o"], ["ld.lld --load-pass-plugin=x a.o", "ld.lld -mllvm -load=x a.o", "ld.lld --dtlto-distributor=x a.o"]),
    "javac *": (
        ["javac -d out -cp lib/a.jar A.java", "javac -Xlint:all A.java", "javac -proc:none A.java"],
        ["javac -J-javaagent:x A.java", "javac -processor x A.java", "javac -processorpath x A.java", "javac --processor-path x A.java", "javac -Xplugin:x A.java"],
    ),
    "rustc *": (["rustc -O a.rs", "rustc -C opt-level=3 --edition 2021 a.rs"], ["rustc -C linker=x a.rs", "rustc -Clinker=x a.rs", "rustc --codegen=linker=x a.rs", "rustc -C link-arg=x a.rs", "rustc --target x.json a.rs"]),
    "cargo build*": (["cargo build --release --target wasm32-unknown-unknown"], ["cargo build --target x.json", "cargo build --target=./x.json", "cargo build --config a=b"]),
    "go *": (["go build ./...", "go vet ./..."], ["go build -toolexec x", "go vet -vettool=x", "go build -ldflags=x"]),
    "cmake *": (
        ["cmake -S . -B build", "cmake -B build -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTS=ON", "cmake --build build -j 4 --target all", "cmake -D BUILD_TESTS=OFF -G Ninja .."],
        ["cmake -P F", "cmake -C F .", "cmake -DCMAKE_C_COMPILER=x .", "cmake -D CMAKE_C_COMPILER_LAUNCHER=x .", "cmake --toolchain x .", "cmake -E env x",
         "cmake --build . -- SHELL=x", "cmake --build . -- -f F"],
    ),
    "ninja *": (["ninja -j4 all", "ninja -v"], ["ninja -f F", "ninja -C x", "ninja -vf F"]),
    "gradle *": (["gradle test --info", "gradle build -x lint"], ["gradle -I F build", "gradle --init-script F build", "gradle -Dx=y build", "gradle -p x build"]),
    "mvn *": (["mvn -q test", "mvn -B -ntp verify"], ["mvn -f F test", "mvn -Dexec.executable=x test", "mvn -s F test"]),
    "bazel *": (["bazel test //..."], ["bazel test --run_under=x //...", "bazel --bazelrc=F test //..."]),
    "just *": (["just test"], ["just -f F test", "just --shell x test", "just --set a b test"]),
    "vim *": (["vim README.md", "vim +12 a.py", "vim -R a"], ["vim -c x a", "vim +x a", "vim --cmd x a", "vim -S F", "vim -u F a", "vim -es a"]),
    "nvim *": (["nvim -R a"], ["nvim -c x", "nvim --headless +x a", "nvim -l F"]),
    "emacs *": (["emacs -nw a", "emacs -Q a"], ["emacs --batch --eval x", "emacs -l F", "emacs -f x"]),
    "gdb *": (["gdb ./a", "gdb --batch ./a"], ["gdb -ex x ./a", "gdb -x F ./a", "gdb --command=F ./a", "gdb -iex x ./a"]),
    "pandoc *": (["pandoc -s a.md -o a.html", "pandoc --toc a.md"], ["pandoc --filter x a.md", "pandoc -F x a.md", "pandoc --lua-filter=F a.md", "pandoc --pdf-engine=x a.md"]),
    "pdflatex *": (["pdflatex -interaction=nonstopmode a.tex"], ["pdflatex -shell-escape a.tex", "pdflatex --shell-escape a.tex", "pdflatex -enable-write18 a.tex"]),
    "svn *": (["svn log -l 5", "svn diff"], ["svn diff --diff-cmd x", "svn --config-option=x log", "svn commit --editor-cmd x"]),
    "hg *": (["hg log -l 5"], ["hg log --config a=b", "hg -R x log", "hg log --pager x"]),
    "ssh *": (["ssh host uptime", "ssh -p 22 host"], ["ssh -o ProxyCommand=x host", "ssh -oProxyCommand=x host", "ssh -I x host", "ssh -F F host"]),
    "git *": (["git fetch origin", "git clone https://example.org/x", "git init"], ["git clone --template=x y", "git init --template=x", "git hook run x", "git -c a=b log",
        "git fetch --upload-pack=x", "git --exec-path=x log", "git for-each-repo x", "git bisect run x",
        "git merge-index ./run.sh -a", "git submodule--helper foreach x", "git bundle create .git/hooks/x HEAD", "git diagnose -o x",
        "git fast-export --export-marks=x HEAD", "git mailinfo a b", "git checkout-index -f --prefix=.git/ config", "git checkout-index --pref .git/ config"]),
    "git merge*": (["git merge --no-ff x", "git merge --abort"], ["git merge -s ./x y", "git merge -s./x y", "git merge --strategy=./x y", "git merge --strat ./x y"]),
    "git rebase*": (["git rebase -i main", "git rebase --onto a b"], ["git rebase -s ./x y", "git rebase -x y"]),
    "git cherry-pick*": (["git cherry-pick -s x", "git cherry-pick -Xours x"], ["git cherry-pick --strategy=./x y"]),
    "git pull*": (["git pull --rebase"], ["git pull -s ./x o y", "git pull --strategy ./x o y"]),
    "git revert*": (["git revert --no-edit x"], ["git revert --strategy=./x y"]),
    "vitest *": (["vitest run --coverage", "vitest --run src"], ["vitest --config x", "vitest -c x"]),
    "webpack *": (["webpack --mode production"], ["webpack --config x", "webpack -c x"]),
    "mocha *": (["mocha --grep x test/"], ["mocha -r x", "mocha --require x", "mocha --reporter x"]),
    "deno test*": (["deno test src"], ["deno test -A", "deno test --allow-run", "deno test --allow-all"]),
    "ansible-playbook *": (["ansible-playbook site.yml --check"], ["ansible-playbook -e x site.yml", "ansible-playbook -M x site.yml"]),
    "perf *": (["perf list", "perf report"], ["perf record x", "perf stat x"]),
    "hyperfine *": ([], ["hyperfine x", "hyperfine -w 3 'x'"]),
    "hyperfine 'pytest -q'": (["hyperfine 'pytest -q'"], []),
    "ccache gcc *": (["ccache gcc -c a.c"], ["ccache gcc -fplugin=x a.c", "ccache x"]),
    "valgrind ./a*": (["valgrind ./a -x"], ["valgrind x"]),
    "systemd-run *": ([], ["systemd-run x"]),
    # programs that no table knows: by the names of their options
    "mytool *": (
        ["mytool run --verbose -j 4", "mytool --output=x a", "mytool --page 2", "mytool --no-plugins a", "mytool --ignore-scripts", "mytool --profile x"],
        ["mytool --plugin x", "mytool --plugins=x", "mytool --exec x", "mytool --post-exec=x", "mytool --command x", "mytool --pre-cmd x", "mytool --config x", "mytool --config-file=x",
         "mytool -config x", "mytool --loadPlugin x", "mytool --init-script=x", "mytool --pager x", "mytool --editor x", "mytool --shell x", "mytool --hook x", "mytool --require x",
         "mytool --wrapper=x", "mytool --interpreter x", "mytool --plug x", "mytool --preproc x", "mytool -Xplugin:x", "mytool --rcfile x"],
    ),
    "uv run mytool*": (["uv run mytool -v"], ["uv run mytool --plugin x"]),
    "./scripts/mine.sh*": (["./scripts/mine.sh --config x --exec y"], []),
    "node_modules/.bin/mytool *": (["node_modules/.bin/mytool a"], ["node_modules/.bin/mytool --config x"]),
    "python *": (["python tool.py --config x", "python -c x"], []),
}  # fmt: skip


@pytest.mark.parametrize("rule", WIDE)
def test_a_wide_rule_means_a_program_and_not_what_its_options_run(rule: str) -> None:
    allowed, asks = WIDE[rule]
    verdicts = {command: judge(command, allow=[f"bash({rule})"]) for command in (*allowed, *asks)}
    assert verdicts == {**dict.fromkeys(allowed, "allow"), **dict.fromkeys(asks, "ask")}


def test_a_wide_rule_may_name_such_an_option_itself() -> None:
    assert judge("mytool --config a.toml x", allow=["bash(mytool --config a.toml*)"]) == "allow"
    assert judge("gcc -fplugin=x a.c", allow=["bash(gcc -fplugin=x*)"]) == "allow"
    assert judge("gcc -fplugin=x -fplugin=y a.c", allow=["bash(gcc -fplugin=x*)"]) == "ask"


@pytest.mark.parametrize("command", ["sqlite3 -readonly x.db", "psql mine", "at now", "ed F", "patch F"])
def test_a_program_that_reads_its_work_beside_a_file_asks_behind_a_pipe(command: str) -> None:
    name = command.partition(" ")[0]
    assert judge(f"cat x | {command}", allow=["bash(cat*)", f"bash({name} *)"]) == "ask"
    assert (
        judge("cat x | sqlite3 -readonly x.db 'select 1'", allow=["bash(cat*)", "bash(sqlite3 *)"]) == "allow"
    )


def test_an_option_that_a_published_rule_names_cannot_be_taken_back() -> None:
    assert judge("git branch --list x", allow=published()) == "allow"
    assert judge("git branch --list --no-list -D x", allow=published()) == "ask"
    assert judge("git branch --list --no-color", allow=published()) == "allow"


def test_an_option_that_the_rule_itself_names_is_meant_behind_a_runner_too() -> None:
    assert judge("python -m pytest -p x tests", allow=["bash(python -m pytest -p x*)"]) == "allow"
    assert judge("python -m pytest -p x -p y", allow=["bash(python -m pytest -p x*)"]) == "ask"
