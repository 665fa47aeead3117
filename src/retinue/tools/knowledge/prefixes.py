"""Prefixes of SPARQL queries, declared where a query uses them without saying what they stand for.

Called by Wikidata and DBpedia before a query is sent. Their own servers know these by heart; another server
that holds the same graph (`knowledge.base_urls`), or that stands in for them, does not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_COMMON = {
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
    "owl": "http://www.w3.org/2002/07/owl#",
    "skos": "http://www.w3.org/2004/02/skos/core#",
    "schema": "http://schema.org/",
    "geo": "http://www.opengis.net/ont/geosparql#",
    "prov": "http://www.w3.org/ns/prov#",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "dct": "http://purl.org/dc/terms/",
}
WIKIDATA = {
    **_COMMON,
    "bd": "http://www.bigdata.com/rdf#",
    "wikibase": "http://wikiba.se/ontology#",
    "wd": "http://www.wikidata.org/entity/",
    "wds": "http://www.wikidata.org/entity/statement/",
    "wdv": "http://www.wikidata.org/value/",
    "wdref": "http://www.wikidata.org/reference/",
    "wdno": "http://www.wikidata.org/prop/novalue/",
    "wdt": "http://www.wikidata.org/prop/direct/",
    "wdtn": "http://www.wikidata.org/prop/direct-normalized/",
    "p": "http://www.wikidata.org/prop/",
    "ps": "http://www.wikidata.org/prop/statement/",
    "psv": "http://www.wikidata.org/prop/statement/value/",
    "psn": "http://www.wikidata.org/prop/statement/value-normalized/",
    "pq": "http://www.wikidata.org/prop/qualifier/",
    "pqv": "http://www.wikidata.org/prop/qualifier/value/",
    "pqn": "http://www.wikidata.org/prop/qualifier/value-normalized/",
    "pr": "http://www.wikidata.org/prop/reference/",
    "prv": "http://www.wikidata.org/prop/reference/value/",
    "prn": "http://www.wikidata.org/prop/reference/value-normalized/",
}
DBPEDIA = {
    **_COMMON,
    "dbr": "http://dbpedia.org/resource/",
    "dbo": "http://dbpedia.org/ontology/",
    "dbp": "http://dbpedia.org/property/",
    "dbc": "http://dbpedia.org/resource/Category:",
    "dbt": "http://dbpedia.org/resource/Template:",
    "dc": "http://purl.org/dc/elements/1.1/",
    "geo": "http://www.w3.org/2003/01/geo/wgs84_pos#",
    "georss": "http://www.georss.org/georss/",
}
# Texts, addresses and comments hold no prefixes that count. A text that is not closed ends with its line,
# or with the query.
_ASIDE = re.compile(
    r'"""(?:[^"\\]|\\(?:.|\Z)|"(?!""))*+(?:"""|\Z)'
    r'|"(?:[^"\\\n]|\\(?:.|\Z))*+(?:"|$)'
    r"|'(?:[^'\\\n]|\\(?:.|\Z))*+(?:'|$)"
    r'|<[^<>"{}|^`\\\s]*>|#[^\n]*',
    re.DOTALL | re.MULTILINE,
)
_DECLARED = re.compile(r"\bPREFIX\s+([A-Za-z][\w-]*)?\s*:", re.IGNORECASE)
_USED = re.compile(r"(?<![\w?$@:-])([A-Za-z][\w-]*):")


def declared(query: str, known: Mapping[str, str]) -> str:
    """The query with a line for each of the known prefixes that it uses and does not declare."""
    bare = _ASIDE.sub(" ", query)
    there = {name or "" for name in _DECLARED.findall(bare)}
    missing = [name for name in dict.fromkeys(_USED.findall(bare)) if name in known and name not in there]
    return "".join(f"PREFIX {name}: <{known[name]}>\n" for name in missing) + query
