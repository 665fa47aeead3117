"""Ordinary Python of the kinds that models write runs in the default engine, where the kernel can seal it."""

from __future__ import annotations

import pytest

from retinue.sandbox import open_engine, seal
from retinue.sandbox.base import SandboxLimits
from retinue.settings import CodeSettings

SNIPPETS = {
    "inherit": "class A:\n    def f(self): return 1\nclass B(A):\n    def f(self): return super().f()+1\nB().f()",
    "generator": "def g(n):\n    for i in range(n):\n        yield i*i\nsum(g(5))",
    "genexp_next": "next(x for x in range(10) if x>3)",
    "own_exception": "class E(ValueError):\n    pass\ntry:\n    raise E('x')\nexcept E as e:\n    r=str(e)\nr",
    "dataclass_asdict": "from dataclasses import dataclass, asdict\n@dataclass\nclass P:\n    x:int\n    y:int=2\nasdict(P(1))",
    "statistics": "import statistics\nstatistics.median([3,1,2])",
    "stdev": "import statistics\nround(statistics.stdev([1,2,3,4]),3)",
    "heapq": "import heapq\nh=[3,1,2]\nheapq.heapify(h)\nheapq.heappop(h)",
    "nlargest": "import heapq\nheapq.nlargest(2,[1,5,3])",
    "textwrap": "import textwrap\ntextwrap.fill('a b c d e f', 5)",
    "dedent": "import textwrap\ntextwrap.dedent('  a\\n  b')",
    "fractions": "from fractions import Fraction\nstr(Fraction(1,3)+Fraction(1,6))",
    "decimal": "from decimal import Decimal\nstr(Decimal('0.1')+Decimal('0.2'))",
    "csv_read": "import csv, io\nlist(csv.DictReader(io.StringIO('a,b\\n1,2')))",
    "csv_write": "import csv, io\no=io.StringIO()\ncsv.writer(o).writerow([1,'x,y'])\no.getvalue()",
    "re_sub_fn": "import re\nre.sub(r'\\d+', lambda m: str(int(m[0])*2), 'a1b22')",
    "re_named": "import re\nre.match(r'(?P<a>\\w+)-(?P<b>\\d+)','x-1').groupdict()",
    "gather": "import asyncio\nasync def f(x):\n    if x==2: raise ValueError('no')\n    return x\nr=await asyncio.gather(f(1),f(2),return_exceptions=True)\n[type(x).__name__ for x in r]",
    "dunder_eq": "class V:\n    def __init__(s,x): s.x=x\n    def __eq__(s,o): return s.x==o.x\n    def __hash__(s): return hash(s.x)\nV(1)==V(1)",
    "dunder_add": "class V:\n    def __init__(s,x): s.x=x\n    def __add__(s,o): return V(s.x+o.x)\n    def __repr__(s): return f'V({s.x})'\nrepr(V(1)+V(2))",
    "dunder_iter": "class R:\n    def __iter__(s): return iter([1,2])\nlist(R())",
    "ctx": "from contextlib import contextmanager\n@contextmanager\ndef c():\n    yield 3\nwith c() as x:\n    y=x\ny",
    "with_class": "class C:\n    def __enter__(s): return 1\n    def __exit__(s,*a): return True\nwith C() as v:\n    raise ValueError\nv",
    "round": "round(2.675, 2)",
    "round_half": "[round(0.5), round(1.5), round(2.5)]",
    "counter": "from collections import Counter\nCounter('abca').most_common(1)",
    "defaultdict": "from collections import defaultdict\nd=defaultdict(list)\nd['a'].append(1)\ndict(d)",
    "deque": "from collections import deque\nd=deque([1,2,3],maxlen=2)\nlist(d)",
    "namedtuple": "from collections import namedtuple\nP=namedtuple('P','x y')\nP(1,2).y",
    "itertools": "import itertools\n[k+str(len(list(g))) for k,g in itertools.groupby('aabb')]",
    "product": "from itertools import product\nlen(list(product([1,2],repeat=3)))",
    "functools": "from functools import reduce, lru_cache\n@lru_cache\ndef f(n): return n if n<2 else f(n-1)+f(n-2)\nf(50)",
    "datetime": "from datetime import date, timedelta\nstr(date(2024,2,28)+timedelta(days=2))",
    "strptime": "from datetime import datetime\ndatetime.strptime('2024-03-01 10:00','%Y-%m-%d %H:%M').isoformat()",
    "json": "import json\njson.dumps({'b':1,'a':[1,2]},sort_keys=True,indent=1)",
    "math": "import math\nmath.comb(10,3), math.isclose(0.1+0.2,0.3)",
    "enum": "from enum import Enum\nclass C(Enum):\n    A=1\nC.A.name",
    "match": "x={'k':[1,2]}\nmatch x:\n    case {'k':[a,b]}: r=a+b\nr",
    "walrus": "[y for x in range(5) if (y:=x*x)>3]",
    "fstring": "f'{3.14159:.2f} {1234567:,} {\"a\":>3}'",
    "unpack": "a,*b,c=[1,2,3,4]\n(a,b,c)",
    "property": "class A:\n    @property\n    def x(self): return 5\nA().x",
    "classmethod": "class A:\n    @classmethod\n    def m(cls): return cls.__name__\nA.m()",
    "closure": "def o():\n    n=0\n    def i():\n        nonlocal n\n        n+=1\n        return n\n    return i\nf=o()\nf()\nf()",
    "async_gen": "async def g():\n    for i in range(3):\n        yield i\n[x async for x in g()]",
    "bisect": "import bisect\nbisect.bisect([1,3,5],3)",
    "string": "import string\nstring.Template('$a!').substitute(a='x')",
    "difflib": "import difflib\nround(difflib.SequenceMatcher(None,'abc','abd').ratio(),2)",
}
GIVE = {"round": "2.67", "round_half": "[0, 2, 2]", "decimal": "'0.3'", "gather": "['int', 'ValueError']"}


@pytest.mark.skipif(seal.missing() is not None, reason="nothing can be sealed here")
async def test_ordinary_python_runs_in_the_default_engine() -> None:
    engine, _ = open_engine(CodeSettings())
    session = engine.session(SandboxLimits.of(CodeSettings()))
    failed: dict[str, str] = {}
    try:
        for name, code in SNIPPETS.items():
            outcome = await session.run(code, functions={})
            if outcome.error or outcome.value is None or outcome.value != GIVE.get(name, outcome.value):
                failed[name] = outcome.error or str(outcome.value)
    finally:
        await session.close()
        await engine.close()
    assert (len(SNIPPETS), failed) == (48, {})
