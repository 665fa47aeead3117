"""Pages for the tests that read bodies as text."""

from __future__ import annotations

from retinue.web.page import Job, Page, convert

URL = "https://docs.example.org/guide/page.html"


def page(body: bytes | str, kind: str = "text/html", **how) -> Page:
    data = body.encode() if isinstance(body, str) else body
    return convert(Job(body=data, content_type=kind, url=URL, **how))


def job(body: str, **how) -> Job:
    return Job(body=body.encode(), content_type="text/html", url=URL, **how)
