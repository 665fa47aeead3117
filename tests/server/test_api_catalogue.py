"""Agents, tools, settings, stats, comparison: what the server tells about itself."""

from __future__ import annotations

import asyncio
import tomllib
from pathlib import Path

import pytest
from api import serving

from retinue.settings import declared
from retinue.settings.trusted_folders import TrustedFolders
from retinue.testing import ScriptedModel, call
from retinue.tool_files import load_tools
from retinue.tools.base import tool
from skill_shapes import put, said, ten_skills


@tool(effect="read")
async def look(what: str) -> str:
    """Look at something."""
    return f"saw {what}"


async def test_agents_say_where_they_come_from_and_what_is_wrong_with_them(folder: Path) -> None:
    agents = folder / ".retinue" / "agents"
    agents.mkdir(parents=True)
    (agents / "mine.md").write_text(
        "---\nname: mine\ndescription: short\ntools: nosuchtool\n---\nYou are mine."
    )
    (agents / "bad.md").write_text("---\nname: [\n---\nx")
    async with serving(ScriptedModel([]), folder) as api:
        found = await api.get("agents")
        by_name = {agent["name"]: agent for agent in found["agents"]}
        assert {"code-search", "planner", "root", "mine"} <= set(by_name)
        assert by_name["planner"]["scope"] == "builtin"
        assert by_name["root"]["scope"] == "code"
        assert by_name["root"]["default"] is True
        assert (by_name["mine"]["scope"], by_name["mine"]["file"]) == ("project", str(agents / "mine.md"))
        said = " ".join(finding["message"] for finding in by_name["mine"]["findings"])
        assert "nosuchtool" in said
        assert "very short" in said
        assert [Path(problem["file"]).name for problem in found["problems"]] == ["bad.md"]
        detail = await api.get("agents/mine")
        assert detail["prompt"] == "You are mine."
        assert (await api("GET", "agents/nobody")).status == 404


async def test_an_agent_file_counts_as_soon_as_it_is_written(folder: Path) -> None:
    agents = folder / ".retinue" / "agents"
    agents.mkdir(parents=True)
    file = agents / "late.md"
    async with serving(ScriptedModel(lambda request: request.system[:20]), folder) as api:
        assert "late" not in {agent["name"] for agent in (await api.get("agents"))["agents"]}
        file.write_text("---\nname: late\ndescription: Comes late.\n---\nFirst words of it.\n")
        run_id = (await api.post("runs", {"agent": "late", "prompt": "hello"}))["run_id"]
        assert (await api.retinue.wait(run_id)).agent == "late"
        file.write_text("---\nname: late\ndescription: Comes late.\n---\nOther and more words of it.\n")
        assert (await api.get("agents/late"))["prompt"].startswith("Other")
        file.unlink()
        assert (await api("GET", "agents/late")).status == 404


async def test_tools_say_what_they_do_to_the_world(folder: Path) -> None:
    async with serving(ScriptedModel([]), folder, tools=[look]) as api:
        found = {tool["name"]: tool for tool in (await api.get("tools"))["tools"]}
        assert found["look"]["effect"] == "read"
        assert found["look"]["arguments"]["properties"]["what"]["type"] == "string"
        assert found["bash"]["risk"] == "high"


async def test_tools_of_files_say_where_they_come_from_and_which_files_wait(folder: Path) -> None:
    place = folder / ".retinue" / "tools"
    place.mkdir(parents=True)
    (place / "mine.py").write_text(
        'def degrees(city: str) -> int:\n    """How warm it is."""\n    return 3\n'
    )
    waiting = load_tools(folder, trusted=TrustedFolders())
    assert not waiting.tools
    (folder / "named.py").write_text(
        'def named(city: str) -> int:\n    """How warm it is."""\n    return 3\n'
    )
    loaded = load_tools(folder, ["named.py:named"], trusted=TrustedFolders())
    async with serving(ScriptedModel([]), folder, tool_files=loaded) as api:
        found = await api.get("tools")
    origins = {tool["name"]: tool["origin"] for tool in found["tools"]}
    assert (origins["named"], origins["bash"]) == ("--tools named.py:named", "")
    assert [(Path(file["file"]).name, file["names"]) for file in found["waiting"]] == [
        ("mine.py", ["degrees"])
    ]
    assert "tools trust" in found["waiting"][0]["why"]


async def test_skills_are_listed_with_their_origin_and_what_keeps_others_from_being_used(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    ten_skills(folder, home)
    async with serving(ScriptedModel([]), folder) as api:
        found = await api.get("skills")
        skills = {skill["name"]: skill for skill in found["skills"]}
        assert {"commits", "forms", "mine", "power", "manual"} <= set(skills)
        assert (skills["mine"]["scope"], skills["forms"]["scope"]) == ("user", "project")
        assert skills["forms"]["files"] == ["assets/blank.pdf", "references/fields.md", "scripts/fill.sh"]
        assert (skills["manual"]["hidden"], skills["power"]["allowed_tools"]) == (True, ["*"])
        assert found["problems"], "broken ones are named"
        put(folder / ".agents/skills/late", said("late"))
        assert "late" in {skill["name"] for skill in (await api.get("skills"))["skills"]}


async def test_every_setting_is_listed_with_its_default_and_origin(folder: Path) -> None:
    async with serving(ScriptedModel([]), folder, settings={"limits.max_turns": 7}) as api:
        listed = {one["name"]: one for one in (await api.get("settings"))["settings"]}
        assert set(listed) == set(declared())
        turns = listed["limits.max_turns"]
        assert (turns["value"], turns["default"], turns["origin"]) == (7, 25, "flag")
        assert turns["arguments"]["minimum"] == 1
        assert turns["per_run"] is True
        assert listed["approvals.allow"]["needs"] == "admin"
        assert listed["sheets.enabled"]["needs"] == "approve"


async def test_a_changed_setting_is_kept_in_the_users_file_and_counts_for_the_next_run(
    folder: Path, own_settings: Path
) -> None:
    own_settings.write_text("# mine\n[limits]\ntimeout = 99 # a while\n")
    async with serving(ScriptedModel(["done"]), folder) as api:
        changed = await api(
            "PUT", "settings", {"settings": {"limits.max_cost": 1.5, "approvals.deny": ["bash"]}}
        )
        listed = {one["name"]: one for one in changed.body["settings"]}
        assert listed["limits.max_cost"]["value"] == 1.5
        assert listed["limits.max_cost"]["origin"] == str(own_settings)
        text = own_settings.read_text()
        assert "# mine" in text
        assert "# a while" in text
        assert tomllib.loads(text)["limits"] == {"timeout": 99, "max_cost": 1.5}
        run_id = await api.ask()
        await api.ended(run_id)
        assert (await api.get(f"runs/{run_id}"))["limits"]["cost"] == 1.5
        await api("PUT", "settings", {"settings": {"limits.max_cost": None}})
        assert "max_cost" not in own_settings.read_text()


async def test_a_wrong_value_changes_nothing(folder: Path, own_settings: Path) -> None:
    async with serving(ScriptedModel([]), folder) as api:
        for settings in (
            {"limits.max_turns": 5, "limits.timeout": "long"},
            {"limits.max_turns": 5, "no.such": 1},
            {"db": "postgresql://me:***@host/x"},
            {"providers": {"x": {"base_url": None, "nested": {"a": None}}}},
            {"limits.max_turns": 5, "default_agent": "nobody"},
            {"knowledge.agent": "nobody"},
            {"model": "nobody:x"},
            {"approvals.deny": ["bash(rm*) and more"]},
            {"web.allow_hosts": ["http://a b"]},
            {"small_model": "openai:sk-aaaaaaaaaaaaaaaaaaaaaaaa"},
        ):
            answer = await api("PUT", "settings", {"settings": settings})
            assert (answer.status, answer.code) == (422, "invalid"), settings
        assert own_settings.read_text() == ""
        assert (await api("PUT", "settings", {"settings": {"default_agent": "planner"}})).status == 200


async def test_many_changes_at_once_are_all_kept(folder: Path, own_settings: Path) -> None:
    async with serving(ScriptedModel([]), folder) as api:
        changes = [
            {"limits.max_turns": 5},
            {"sheets.enabled": False},
            {"web.robots": False},
            {"code.calls": 3},
        ]
        answers = await asyncio.gather(*(api("PUT", "settings", {"settings": one}) for one in changes))
        assert {answer.status for answer in answers} == {200}
        kept = tomllib.loads(own_settings.read_text())
        assert kept == {
            "limits": {"max_turns": 5},
            "sheets": {"enabled": False},
            "web": {"robots": False},
            "code": {"calls": 3},
        }


async def test_a_password_in_an_address_is_never_shown(folder: Path) -> None:
    secret = {"web.proxy": "http://me:hunter2@proxy:8080"}
    async with serving(ScriptedModel([]), folder, settings=secret) as api:
        answer = await api("GET", "settings")
        proxy = next(one for one in answer.body["settings"] if one["name"] == "web.proxy")
        assert proxy["value"] == "http://me:***@proxy:8080"
        assert "hunter2" not in str(answer.body)


async def test_no_secret_of_any_setting_reaches_who_may_only_watch(folder: Path) -> None:
    settings = {
        "knowledge.base_urls": {"wikipedia": "https://bob:hunter2@wiki.corp"},
        "providers": {"corp": {"base_url": "https://llm.corp/v1?api_key=hunter3"}},
        "web.proxy": "http://hunter4@proxy:3128",
        "web.searxng_url": "https://u:p@hunter5@s.corp",
    }
    async with serving(ScriptedModel([]), folder, with_tokens=True, settings=settings) as api:
        watcher = api.as_role("watch")
        for path in ("settings", "me"):
            answer = await watcher("GET", path)
            assert answer.status == 200
            assert "hunter" not in str(answer.body)
        admin = api.as_role("admin")
        refused = await admin("PUT", "settings", {"settings": {"limits.timeout": "http://u:hunter6@h/"}})
        assert refused.status == 422
        assert "hunter6" not in str(refused.body)
        shown = await admin("GET", "settings")
        for one in shown.body["settings"]:
            if one["name"] in settings:
                again = await admin("PUT", "settings", {"settings": {one["name"]: one["value"]}})
                assert (again.status, again.code) == (422, "invalid"), one


async def test_a_password_in_the_address_of_a_model_is_refused_and_not_repeated(folder: Path) -> None:
    async with serving(ScriptedModel([]), folder) as api:
        asked = {"prompt": "x", "model": "http://bob:hunter2@127.0.0.1:9/v1#m"}
        answer = await api("POST", "runs", asked)
        assert (answer.status, answer.code) == (422, "invalid")
        assert "hunter2" not in str(answer.body)
        assert "hunter2" not in str((await api("GET", "runs")).body)


async def test_a_value_that_something_stronger_hides_is_said(folder: Path) -> None:
    async with serving(ScriptedModel([]), folder, settings={"limits.max_turns": 7}) as api:
        answer = await api("PUT", "settings", {"settings": {"limits.max_turns": 9}})
        assert "flag" in " ".join(answer.body["warnings"])


async def test_stats_sum_up_by_agent_model_and_day(folder: Path) -> None:
    async with serving(ScriptedModel(lambda r: "done"), folder) as api:
        for _ in range(3):
            await api.ended(await api.ask())
        for by in ("agent", "model", "day"):
            (total,) = (await api.get(f"stats?by={by}"))["totals"]
            assert (total["runs"], total["input_tokens"]) == (3, 30)
        assert (await api.get("stats?since=99999999999"))["totals"] == []
        assert (await api("GET", "stats?by=moon")).status == 422


async def test_two_runs_are_compared(folder: Path) -> None:
    model = ScriptedModel(["same\nfirst", call("look", what="x"), "same\nsecond"])
    async with serving(model, folder, tools=[look]) as api:
        a = await api.ask()
        await api.ended(a)
        b = await api.ask()
        await api.ended(b)
        found = await api.get(f"compare?a={a}&b={b}")
        assert "-first" in found["diff"]
        assert "+second" in found["diff"]
        assert (found["a"]["tools"], found["b"]["tools"]) == ({}, {"look": 1})
        assert found["b"]["total"]["turns"] == 2
        assert (await api("GET", f"compare?a={a}&b=r0")).status == 404


async def test_markdown_is_rendered_on_request(folder: Path) -> None:
    async with serving(ScriptedModel([]), folder) as api:
        found = await api.post("render", {"texts": ["**a**", "<script>alert(1)</script>"]})
        assert found["html"] == [
            "<p><strong>a</strong></p>\n",
            "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>\n",
        ]


async def test_health_says_ok_and_nothing_else(folder: Path) -> None:
    async with serving(ScriptedModel([]), folder, with_tokens=True) as nobody:
        assert (await nobody("GET", "health")).body == {"status": "ok"}


async def test_mcp_servers_say_whose_they_are_and_whether_they_may_start(folder: Path) -> None:
    (folder / ".mcp.json").write_text(
        '{"mcpServers": {"shop": {"command": "shop-server", "env": {"K": "${SHOP_KEY}"}}, "odd": 3}}'
    )
    async with serving(ScriptedModel([]), folder) as api:
        found = await api.get("mcp")
        shop = found["servers"][0]
        assert (shop["name"], shop["trust"], shop["state"]) == ("shop", "new", "waits")
        assert shop["origin"] == str(folder / ".mcp.json")
        assert shop["variables"] == ["SHOP_KEY"]
        assert len(found["problems"]) == 1
