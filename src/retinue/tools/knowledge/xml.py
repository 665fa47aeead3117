"""XML from the net, without the attacks that XML allows. Used by arXiv and PubMed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.errors import ToolError
from retinue.tools.knowledge import causes
from retinue.tools.knowledge.wire import SourceResponse

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


def parse_xml(answer: SourceResponse, label: str, root: str) -> Element:
    """The tree of an answer whose outermost element has this name: any other is no answer."""
    try:
        from defusedxml import DefusedXmlException
        from defusedxml.ElementTree import ParseError, fromstring
    except ImportError:
        raise ToolError(f"{label} needs the package defusedxml: pip install 'retinue[web]'.") from None
    try:
        found = fromstring(answer.body)
    except (ParseError, DefusedXmlException) as error:
        what = f"an answer that is not the XML it promises, {type(error).__name__}"
        raise causes.down(label, what, said=answer.start) from None
    if found.tag != root:
        raise causes.no_answer(label, "some other XML", answer.start)
    return found
