"""Files that usually hold secrets ask before they are read."""

from __future__ import annotations

from os.path import normpath
from pathlib import Path

from attacking import SECRET, Attacker, events_of, results, retinue_in

from retinue.authority.flows import said
from retinue.authority.secrets import is_secret
from retinue.engine.answers import Answer
from retinue.events import (
    ApprovalRequested,
    ToolCalled,
    ToolReturned,
    decode,
    encode,
)
from retinue.fold import fold
from retinue.testing import call


async def test_a_file_of_secrets_is_read_after_a_person_was_asked(project: Path, attacker: Attacker) -> None:
    (project / "link.txt").symlink_to(".env")
    (project / "hard.txt").hardlink_to(project / ".env")
    for path in (".env", "./sub/../.env", "link.txt", "hard.txt"):
        for name, more in (("read", {}), ("grep", {"pattern": "PASS"})):
            async with retinue_in(project, attacker, [call(name, path=path, **more), "done"]) as retinue:
                run_id = await retinue.start("general", "go")
                await retinue.wait(run_id)
                (refused,) = results(await events_of(retinue, run_id))
            assert refused.not_run == "unattended", (path, name)
            assert f'"{name}(.env)"' in refused.text
            assert SECRET not in refused.text

    async def approve(question: ApprovalRequested) -> Answer:
        return Answer(decision="approve")

    steps = [call("read", path=".env"), call("read", path=".env"), "done"]
    async with retinue_in(project, attacker, steps, approve=approve) as retinue:
        run_id = await retinue.start("general", "go")
        await retinue.wait(run_id)
        log = await events_of(retinue, run_id)
    assert [SECRET in event.text for event in results(log)] == [True, True]
    assert len([event for event in log if isinstance(event, ApprovalRequested)]) == 1


async def test_a_file_of_secrets_is_made_after_a_person_was_asked_unless_a_rule_names_it(
    project: Path, attacker: Attacker
) -> None:
    """Programs take orders from such files: `.npmrc`, `.envrc`, `.my.cnf`."""
    (project / "deep").mkdir()
    made = (".npmrc", "deep/.envrc", "new/server.key", "deep/x://../.pypirc")
    for path in made:
        write = call("write", path=path, content="x")
        for rules, ran in ((["write"], False), (["write(**)"], False), ([f"write({normpath(path)})"], True)):
            settings = {"approvals.allow": rules}
            async with retinue_in(project, attacker, [write, "done"], settings=settings) as retinue:
                run_id = await retinue.start("general", "go")
                await retinue.wait(run_id)
                (found,) = results(await events_of(retinue, run_id))
            assert (found.not_run == "") is ran, (path, rules)
            assert (project / normpath(path)).exists() is ran
    write = call("write", path=".env.example", content="x")
    async with retinue_in(
        project, attacker, [write, "done"], settings={"approvals.allow": ["write"]}
    ) as retinue:
        await retinue.wait(await retinue.start("general", "go"))
    assert (project / ".env.example").exists()


async def test_a_search_leaves_files_of_secrets_out_and_says_so(project: Path, attacker: Attacker) -> None:
    steps = [call("grep", pattern=SECRET), call("glob", pattern="**/*"), "done"]
    async with retinue_in(project, attacker, steps) as retinue:
        run_id = await retinue.start("general", "go")
        await retinue.wait(run_id)
        found, names = results(await events_of(retinue, run_id))
    assert "notes.md" in found.text
    assert "PASSWORD" not in found.text
    assert "1 file left out: files like these usually hold secrets" in found.text
    assert ".env" in names.text


async def test_a_file_of_secrets_is_changed_after_a_person_was_asked_unless_a_rule_names_it(
    project: Path, attacker: Attacker
) -> None:
    """Whether an edit fits tells what is in the file, letter for letter."""
    before = (project / ".env").read_text()
    edit = call("edit", path=".env", old="PASS", new="PASS")
    write = call("write", path=".env", content="x")
    for rules, ran in (
        (["edit", "write"], False),
        (["effect:write"], False),
        (["edit(**)", "write(*)"], False),
        (["edit(.env)", "write(**/.env)"], True),
    ):
        settings = {"approvals.allow": rules}
        async with retinue_in(project, attacker, [edit, write, "done"], settings=settings) as retinue:
            run_id = await retinue.start("general", "go")
            await retinue.wait(run_id)
            found = results(await events_of(retinue, run_id))
        assert [each.not_run for each in found] == ([""] * 2 if ran else ["unattended"] * 2), rules
        assert ((project / ".env").read_text() == before) is not ran
    assert "edit(.env)" in (await _refused(project, attacker)).text


async def _refused(project: Path, attacker: Attacker) -> ToolReturned:
    steps = [call("edit", path=".env", old="x", new="x"), "done"]
    async with retinue_in(project, attacker, steps, settings={"approvals.allow": ["edit"]}) as retinue:
        run_id = await retinue.start("general", "go")
        await retinue.wait(run_id)
        return results(await events_of(retinue, run_id))[0]


async def test_a_search_that_a_bare_rule_allows_leaves_files_of_secrets_out(
    project: Path, attacker: Attacker
) -> None:
    for rule, found in (("grep", False), ("grep(**)", False), ("grep(**/.env)", True)):
        steps = [call("grep", pattern="PASSWORD"), "done"]
        async with retinue_in(project, attacker, steps, settings={"approvals.allow": [rule]}) as retinue:
            run_id = await retinue.start("general", "go")
            await retinue.wait(run_id)
            (said,) = results(await events_of(retinue, run_id))
        assert ("PASSWORD=" in said.text) is found, rule


SECRETS = "\n".join(
    [
        """.env .env.local .ENV prod.env .netrc .npmrc .pypirc id_rsa id_ed25519.bak server.pem tls.key
    kubeconfig .kube/config .aws/credentials a/.ssh/deploy service-account.json my-service_account-1.json
    credentials.json secrets.yaml .git-credentials store.jks client_secret_1.json
    .netrc.bak .authinfo password.txt passwords.csv passwd.txt .vault_pass.txt token.txt token.json oauth_token.json
    github-tokens.txt auth.json .composer/auth.json rclone.conf wp-config.php local.settings.json keystore.properties
    key.properties terraform.tfstate prod.tfstate.backup secrets.auto.tfvars private.asc my-secret-key.gpg gcp-key.json
    google-cloud-prod-key.json x-firebase-adminsdk-1a.json .bash_history .psql_history old.kdb http.keytab home.ovpn
    .m2/settings.xml .gradle/gradle.properties .password-store/mail/me.gpg
    .terraform.d/credentials.tfrc.json terraform.rc .flaskenv .Renviron prod.tfvars terraform.tfvars.json variables.tfvars #.env#
    .env~ .env.swp .#.env .id_rsa.swp .secrets.yaml.swo #secrets.yaml# secrets.yaml~ secrets.yaml.~2~ passwords.csv.bak token.json.old
    .secrets apikey.txt api_key api-keys.json openai_api_key.txt deploy_key github-deploy-key ssh_host_rsa_key private_key signing-key.txt
    wallet.dat UTC--2020-01-01T00-00-00Z--0a mnemonic.txt seed-phrase.txt recovery_codes.txt .dev.vars htpasswd .mylogin.cnf
    .kaggle/kaggle.json .cache/huggingface/token .fly/config.yml .config/sops/age/keys.txt credentials.json.orig"""
    ]
).split()


PLAIN = "\n".join(
    [
        """.env.example .env.sample env.py .env.template .env.local.example id_rsa.pub key.pub credentials.py
    secrets.py environment.ts .ssh/known_hosts monkey.py keys.md README.md package.json .envoy/a.txt
    tokens.json tokens.txt tokens.py token.py design-tokens.json tokenizer.json password.py passwords.md PasswordForm.tsx
    auth.py auth.ts settings.xml gradle.properties main.tf variables.tf database.yml appsettings.json keys.json
    translation-keys.json private.html release.asc history.md .git/config wp-config-sample.php token.json.example
    vault.yml config.php primary-key.json api_key.py apikeys.ts api-keys.md test_api_key.py deploy_key.rs secrets.baseline
    .secrets.baseline seed.txt seeds.sql wallet.py wallet.ts wallet.test.ts .env.example~ #README.md# notes.txt~ main.py.bak .main.c.swp
    prod.tfvars.example flask.env.py renv.lock recovery.md masterkey.go keys.txt foreign_keys.txt hotkeys.json copy.txt token"""
    ]
).split()


def test_names_that_usually_mean_secrets() -> None:
    assert [name for name in SECRETS if not is_secret(name)] == []
    assert [name for name in PLAIN if is_secret(name)] == []


def test_what_a_person_says_is_taken_word_for_word() -> None:
    text = "See https://a.test/x?b=1 (and http://B.test:80), c.test/p. Also <https://d.test/(y)>!"
    assert said(text) == {
        "https://a.test/x?b=1",
        "http://b.test/",
        "https://c.test/p",
        "http://c.test/p",
        "https://c.test/p.",
        "http://c.test/p.",
        "https://d.test/(y)",
    }


def test_an_old_log_means_private_data_by_the_effects_of_its_tools() -> None:
    old = [
        decode(line)
        for line in (Path(__file__).parent.parent / "stored/log-version-1.jsonl").read_bytes().splitlines()
    ]
    effects = {event.effect for event in old if isinstance(event, ToolCalled)}
    runs = {event.run_id for event in old}
    states = [fold([event for event in old if event.run_id == run_id]) for run_id in runs]
    assert any(state.private for state in states) is bool(effects & {"read", "write", "execute"})
    assert all(decode(encode(event)) == event for event in old)
