"""What an MCP server answers, as a model and as code read it: framed as data, bounded, binaries as files."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import mimetypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import mcp_types

from retinue.errors import ToolError
from retinue.tools.base import ToolResult
from retinue.types import Image, ReportFields
from retinue.web.framing import frame
from retinue.workspace import WEB, Files

SHOWN = 30_000
"""Characters of an answer that are shown; the rest is in a file."""
MOST_FILES = 20
"""Pictures and other binaries of one answer that are kept."""
MOST_PICTURES = 5
"""Pictures of one answer that a model is shown; the others are files."""
Masked = Callable[[str], str]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Content:
    """Content blocks as they are read: texts, the files that were saved, and the pictures among them."""

    texts: list[str] = field(default_factory=list[str])
    saved: list[str] = field(default_factory=list[str])
    images: list[Image] = field(default_factory=list[Image])

    def result(self, shown: str, spilled: tuple[str, ...], **more: Any) -> ToolResult:
        return ToolResult(text=shown, files=(*self.saved, *spilled), images=tuple(self.images), **more)


def called(
    server: str, tool: str, answer: mcp_types.CallToolResult, files: Files, masked: Masked
) -> ToolResult:
    """The result of a tool. Structured content is kept as data for code."""
    content = _content(server, answer.content, files, masked)
    parts = content.texts
    structured = answer.structured_content
    if structured is not None and not _says(answer.content, structured):
        parts.append(masked(json.dumps(structured, ensure_ascii=False)))
    text = "\n".join(parts) or "(it returned nothing)"
    shown, spilled = _shown(server, tool, text, files)
    fields = None
    if structured is not None and not answer.is_error:
        data = json.loads(masked(json.dumps(structured)))
        fields = ReportFields(text=text[:SHOWN], status="completed", child_id="", data=data)
    return content.result(shown, spilled, is_error=answer.is_error, fields=fields)


def read_resource(
    server: str, answer: mcp_types.ReadResourceResult, files: Files, masked: Masked
) -> ToolResult:
    blocks = [mcp_types.EmbeddedResource(resource=each) for each in answer.contents]
    content = _content(server, blocks, files, masked)
    shown, spilled = _shown(server, "resource", "\n".join(content.texts) or "(it is empty)", files)
    return content.result(shown, spilled)


def listed_resources(
    server: str,
    found: Sequence[mcp_types.Resource | mcp_types.ResourceTemplate],
    files: Files,
    masked: Masked,
) -> ToolResult:
    lines = [
        f"{each.uri if isinstance(each, mcp_types.Resource) else each.uri_template} · "
        f"{each.title or each.name}{f' · {each.description}' if each.description else ''}"
        for each in found
    ]
    text = masked("\n".join(lines)) or "(there are none)"
    shown, spilled = _shown(server, "resources", text, files)
    return ToolResult(text=shown, files=spilled)


def prompt(server: str, answer: mcp_types.GetPromptResult, files: Files, masked: Masked) -> ToolResult:
    content = _content(server, [each.content for each in answer.messages], files, masked)
    roles = (each.role for each in answer.messages)
    parts = [f"{role}: {text}" for role, text in zip(roles, content.texts, strict=True)]
    shown, spilled = _shown(server, "prompt", "\n\n".join(parts) or "(it is empty)", files)
    return content.result(shown, spilled)


def _content(server: str, blocks: Sequence[mcp_types.ContentBlock], files: Files, masked: Masked) -> _Content:
    """One text for each block. A picture is a file, and the model is shown it too if it takes pictures."""
    content = _Content()
    parts, saved, images = content.texts, content.saved, content.images

    def keep(data: str, kind: str) -> str:
        if len(saved) >= MOST_FILES:
            return f"[{kind}: left out, since {MOST_FILES} files of this answer are kept]"
        try:
            raw = base64.b64decode(data, validate=False)
        except (binascii.Error, ValueError):
            return f"[{kind}: left out, since it is not base64]"
        suffix = mimetypes.guess_extension(kind.partition(";")[0]) or ".bin"
        try:
            path = files.save(f"{server}{suffix}", raw, WEB)
        except ToolError as error:
            return f"[{kind} of {len(raw):,} bytes: not kept: {error}]"
        saved.append(path)
        if kind.startswith("image/") and len(images) < MOST_PICTURES:
            with contextlib.suppress(ValueError):  # of a kind, or a size, that no model takes
                images.append(Image.from_bytes(raw))
        return f"[{kind} of {len(raw):,} bytes, saved as {path}]"

    for block in blocks:
        if isinstance(block, mcp_types.TextContent):
            parts.append(masked(block.text))
        elif isinstance(block, mcp_types.ImageContent | mcp_types.AudioContent):
            parts.append(keep(block.data, block.mime_type))
        elif isinstance(block, mcp_types.ResourceLink):
            parts.append(masked(f"[resource {block.uri}: {block.title or block.name}]"))
        elif isinstance(block.resource, mcp_types.TextResourceContents):
            parts.append(masked(f"[resource {block.resource.uri}]\n{block.resource.text}"))
        else:
            kind = block.resource.mime_type or "application/octet-stream"
            parts.append(masked(f"[resource {block.resource.uri}] ") + keep(block.resource.blob, kind))
    return content


def _shown(server: str, what: str, text: str, files: Files) -> tuple[str, tuple[str, ...]]:
    """The answer in a frame; of a long one its beginning, and where the rest is."""
    named = f"answer of the MCP server {server}"[:60]
    if len(text) <= SHOWN:
        return frame(text, what=named), ()
    try:
        path = files.save(f"{server}-{what}.txt", text.encode("utf-8", "replace"), WEB)
    except ToolError as error:
        return f"{frame(text[:SHOWN], what=named)}\n[cut: {SHOWN:,} of {len(text):,} characters; {error}]", ()
    cut = f"[cut: {SHOWN:,} of {len(text):,} characters shown; all of it is in {path}]"
    return f"{frame(text[:SHOWN], what=named)}\n{cut}", (path,)


def _says(blocks: Sequence[mcp_types.ContentBlock], structured: Any) -> bool:
    """Whether the text already is the structured content, as servers repeat it for older clients."""
    for block in blocks:
        if isinstance(block, mcp_types.TextContent) and block.text.lstrip().startswith(("{", "[")):
            try:
                if json.loads(block.text) == structured:
                    return True
            except (ValueError, RecursionError):
                continue
    return False
