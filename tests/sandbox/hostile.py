"""Code that tries to get out of a sandbox, and code that tries to use it up.

An attack has got out if the token shows up in anything it prints or returns, if it prints OUT, if it makes
the file MADE, or if it reaches the listening PORT. Written for plain Python, so that the same list can be run
without a sandbox to see that each attack would work.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Attack:
    name: str
    code: str
    plain: bool = True
    """It works in an unprotected interpreter. The others need a host function to attack."""


@dataclass(frozen=True, kw_only=True)
class Bomb:
    name: str
    code: str
    harmless: bool = False
    """An engine may finish it, within the limits, instead of stopping it."""


def _attacks(**codes: str) -> list[Attack]:
    return [Attack(name=name, code=code) for name, code in codes.items()]


ATTACKS = [
    *_attacks(
        open_file="print(open(SECRET).read())",
        pathlib_read="import pathlib\nprint(pathlib.Path(SECRET).read_text())",
        os_open="import os\nprint(os.read(os.open(SECRET, os.O_RDONLY), 100))",
        io_open="import io\nprint(io.FileIO(SECRET).readall())",
        open_code="import io\nprint(io.open_code(SECRET).read())",
        codecs_open="import codecs\nprint(codecs.open(SECRET).read())",
        linecache_read="import linecache\nprint(linecache.getline(SECRET, 1))",
        mmap_file="import mmap, os\nprint(mmap.mmap(os.open(SECRET, 0), 0, prot=1)[:])",
        list_folder="import os\nprint(os.listdir(FOLDER))",
        glob_folder="import glob\nprint(glob.glob(FOLDER + '/*'))",
        scan_folder="import pathlib\nprint(list(pathlib.Path(FOLDER).iterdir()))",
        stat_file="import os\nif os.stat(SECRET).st_size: print(OUT)",
        file_exists="import os.path\nif os.path.exists(SECRET): print(OUT)",
        relative_path="import os\nprint(open('../' * 30 + SECRET).read())",
        proc_environ="print(open('/proc/self/environ').read())",
        proc_root="print(open('/proc/self/root' + SECRET).read())",
        proc_parent="import os\nif open(f'/proc/{os.getppid()}/environ').read(1): print(OUT)",
        environ="import os\nprint(os.environ['CANARY'])",
        getenv="import os\nprint(os.getenv('CANARY'))",
        environ_bytes="import os\nprint(os.environb)",
        write_file="open(MADE, 'w').write('x')",
        make_link="import os\nos.symlink(SECRET, MADE)\nprint(open(MADE).read())",
        hard_link="import os\nos.link(SECRET, MADE)",
        copy_file="import shutil\nshutil.copy(SECRET, MADE)",
        sqlite_file="import sqlite3\nsqlite3.connect(MADE).execute('create table t(x)')",
        os_system="import os\nos.system('cat ' + SECRET + ' > ' + MADE)",
        popen="import os\nprint(os.popen('cat ' + SECRET).read())",
        subprocess="import subprocess\nprint(subprocess.check_output(['cat', SECRET]))",
        spawn="import os\npid = os.posix_spawn('/bin/cp', ['cp', SECRET, MADE], {})\nos.waitpid(pid, 0)",
        fork_exec=(
            "import os\npid = os.fork()\n"
            "if pid == 0:\n    os.execv('/bin/cp', ['cp', SECRET, MADE])\n"
            "os.waitpid(pid, 0)"
        ),
        ctypes_libc=(
            "import ctypes\nlibc = ctypes.CDLL(None)\nbuffer = ctypes.create_string_buffer(100)\n"
            "libc.read(libc.open(SECRET.encode(), 0), buffer, 100)\nprint(buffer.value)"
        ),
        ctypes_system="import ctypes\nctypes.CDLL(None).system(('cp ' + SECRET + ' ' + MADE).encode())",
        socket_connect=(
            "import socket\ns = socket.create_connection(('127.0.0.1', PORT))\ns.sendall(b'hello')\ns.close()"
        ),
        low_socket="import _socket\ns = _socket.socket()\ns.connect(('127.0.0.1', PORT))\ns.close()",
        fetch_url="import urllib.request\nurllib.request.urlopen(f'http://127.0.0.1:{PORT}/', timeout=1)",
        http_client=(
            "import http.client\nhttp.client.HTTPConnection('127.0.0.1', PORT, timeout=1).request('GET', '/')"
        ),
        subclasses=(
            "found = [c for c in object.__subclasses__() if c.__name__ == '_wrap_close']\n"
            "print(found[0].__init__.__globals__['popen']('cat ' + SECRET).read())"
        ),
        catch_warnings=(
            "for c in ().__class__.__bases__[0].__subclasses__():\n"
            "    if c.__name__ in ('catch_warnings', 'BuiltinImporter', 'Quitter'):\n"
            "        try:\n            print(c()._module.__builtins__['open'](SECRET).read())\n"
            "        except Exception as e: print(type(e))\n"
            "        try:\n            print(c.load_module('posix').environ)\n"
            "        except Exception as e: print(type(e))"
        ),
        builtin_importer="print(__loader__.load_module('posix').environ)",
        import_function="print(__import__('os').popen('cat ' + SECRET).read())",
        importlib_module="import importlib\nprint(importlib.import_module('posix').environ)",
        builtins_import="import builtins\nprint(builtins.__import__('os').environ)",
        eval_import="print(eval(\"__import__('os').environ\"))",
        exec_open="exec('print(open(SECRET).read())', {'SECRET': SECRET})",
        compile_open="print(eval(compile('open(' + repr(SECRET) + ').read()', 'x', 'eval')))",
        sys_modules="import sys\nprint(sys.modules['os'].environ)",
        reload_os="import importlib, sys\nsys.modules.pop('os', None)\nimport os\nprint(os.environ)",
        frame_walk=(
            "import sys\nframe = sys._getframe()\n"
            "while frame:\n    print(frame.f_builtins['open'](SECRET).read())\n    frame = frame.f_back"
        ),
        traceback_walk=(
            "try:\n    1 / 0\nexcept Exception as e:\n"
            "    frame = e.__traceback__.tb_frame\n"
            "    while frame:\n        b = frame.f_globals['__builtins__']\n"
            "        b = b if isinstance(b, dict) else vars(b)\n"
            "        print(b['open'](SECRET).read())\n        frame = frame.f_back"
        ),
        pickle_call=(
            "import pickle, os\nclass Evil:\n"
            "    def __reduce__(self): return os.system, ('cp ' + SECRET + ' ' + MADE,)\n"
            "pickle.loads(pickle.dumps(Evil()))"
        ),
        pickle_bytes=(
            "import pickle\n"
            "pickle.loads(b'cposix\\nsystem\\n(V' + ('cp ' + SECRET + ' ' + MADE).encode() + b'\\ntR.')"
        ),
        function_type=(
            "import types\n"
            "f = types.FunctionType(compile('print(open(S).read())', 'x', 'exec'), {'S': SECRET})\nf()"
        ),
        gc_search=(
            "import gc, os\nfor o in gc.get_objects():\n"
            "    if type(o).__name__ == '_Environ': print(o['CANARY'])"
        ),
        host_packages="import msgspec\nprint(OUT)",
        extension_loader=(
            "import importlib.machinery as m, importlib.util as u, glob\n"
            "paths = glob.glob(PACKAGES + '/msgspec/_core*.so')\n"
            "loader = m.ExtensionFileLoader('msgspec._core', paths[0])\n"
            "u.module_from_spec(u.spec_from_loader('msgspec._core', loader))\nprint(OUT)"
        ),
        signal_parent="import os\nos.kill(os.getppid(), 0)\nprint(OUT)",
        process_limits=(
            "import os, resource\nif resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE): print(OUT)"
        ),
        temp_file="import tempfile\nprint(OUT if tempfile.NamedTemporaryFile().name else '')",
        change_folder="import os\nos.chdir(FOLDER)\nprint(open('secret.txt').read())",
        memory_file="import os\nfd = os.memfd_create('x')\nos.write(fd, b'x')\nprint(OUT)",
        local_socket="import socket\na, b = socket.socketpair()\nprint(OUT)",
    ),
    Attack(
        name="function_globals",
        code="print(lookup.__globals__['TOKEN'])\nprint(lookup.__globals__)",
        plain=False,
    ),
    Attack(
        name="function_closure",
        code="print([c.cell_contents for c in lookup.__closure__])\nprint(lookup.__code__.co_consts)",
        plain=False,
    ),
    Attack(
        name="function_self",
        code="print(lookup.__self__.__dict__)\nprint(vars(lookup))\nprint(dir(lookup))",
        plain=False,
    ),
    Attack(name="format_walk", code="print('{0.__globals__[TOKEN]}'.format(lookup))", plain=False),
    Attack(name="function_default", code="print(lookup.__defaults__, lookup.__kwdefaults__)", plain=False),
    Attack(
        name="host_traceback",
        code=(
            "try:\n    await lookup('missing')\nexcept Exception as e:\n"
            "    print(repr(e), e.args)\n    tb = e.__traceback__\n"
            "    while tb:\n        print(tb.tb_frame.f_globals.get('TOKEN'), tb.tb_frame.f_locals.get('hidden'))\n"
            "        tb = tb.tb_next"
        ),
        plain=False,
    ),
    Attack(
        name="evil_argument",
        code=(
            "class Evil(str):\n"
            "    def __eq__(self, other): print(other)\n"
            "    def __reduce__(self): return print, (OUT,)\n"
            "print(await lookup(Evil('x')))"
        ),
        plain=False,
    ),
    Attack(name="function_as_argument", code="print(await lookup(lookup))", plain=False),
    Attack(name="other_function", code="print(await forbidden('x'))", plain=False),
    Attack(
        name="private_function",
        code=(
            "f = lookup\ntry:\n    f.__name__ = 'forbidden'\n"
            "except Exception as e: print(type(e))\nprint(await f('x'))"
        ),
        plain=False,
    ),
    Attack(
        name="forged_frame",
        code=(
            'import os\nmessage = b\'{"op":"call","id":99,"name":"forbidden","args":["x"],"kwargs":{}}\'\n'
            "for fd in range(3, 20):\n"
            "    try:\n        os.write(fd, len(message).to_bytes(4, 'big') + message)\n"
            "    except OSError: pass\n"
            "print(await lookup('y'))"
        ),
        plain=False,
    ),
    Attack(
        name="forged_end",
        code=(
            "import os, time\n"
            'for message in (b\'{"op":"call","id":7,"name":"forbidden"}\', b\'{"op":"done","value":"1"}\'):\n'
            "    os.write(1, len(message).to_bytes(4, 'big') + message)\n"
            "while True: time.time()"
        ),
        plain=False,
    ),
    Attack(
        name="not_a_message",
        code="import os\nos.write(1, b'\\xff\\xff\\xff\\xff' + b'x' * 100)\nprint(await lookup('y'))",
        plain=False,
    ),
    Attack(
        name="gather_forbidden",
        code="import asyncio\nprint(await asyncio.gather(lookup('a'), forbidden('b')))",
        plain=False,
    ),
]

# Writes messages to the host past all that would count them.
_FORGED = """
import json, os
message = json.dumps({{"op": "call", "id": 1, "name": {name}}}).encode()
message = (len(message).to_bytes(4, "big") + message) * {count}
left = {forever}
while left:
    data = message
    while data: data = data[os.write(1, data):]
    left = left if left is True else left - 1
"""

BOMBS = [
    Bomb(name="endless_loop", code="while True: pass"),
    Bomb(
        name="loop_that_catches",
        code="while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    ),
    Bomb(name="endless_builtin", code="any(iter(int, 1))"),
    Bomb(name="long_sum", code="sum(range(10**13))"),
    Bomb(name="list_memory", code="x = [0] * 10**10"),
    Bomb(name="growing_list", code="x = []\nwhile True: x.append('a' * 100_000)"),
    Bomb(name="string_doubling", code="x = 'ab'\nwhile True: x += x"),
    Bomb(name="string_multiplication", code="x = 'a' * 10**12"),
    Bomb(name="bytes_memory", code="x = b'a' * 10**12"),
    Bomb(name="dict_memory", code="x = {}\nfor i in range(10**12): x[i] = str(i) * 10"),
    Bomb(name="format_width", code="x = '%2000000000d' % 1"),
    Bomb(name="set_of_range", code="x = set(range(10**10))"),
    Bomb(name="print_flood", code="while True: print('x' * 1000)"),
    Bomb(name="print_once", code="print('x' * 20_000_000)"),
    Bomb(name="recursion", code="def f(n): return f(n + 1) + 1\nf(0)"),
    Bomb(
        name="recursion_that_catches",
        code="def f():\n    try: f()\n    except BaseException: f()\nf()",
    ),
    Bomb(name="nested_repr", code="x = []\nfor i in range(1_000_000): x = [x]\nlen(repr(x))", harmless=True),
    Bomb(name="huge_power", code="x = 10 ** 10 ** 10"),
    Bomb(name="slow_power", code="x = 3\nwhile True: x = x ** 3"),
    Bomb(name="huge_shift", code="x = 1 << 10**12"),
    Bomb(name="huge_value", code="'x' * 50_000_000"),
    Bomb(name="huge_error", code="raise ValueError('x' * 3_000_000)"),
    Bomb(
        name="value_that_never_shows",
        code="class A:\n    def __repr__(self):\n        while True: pass\n[A()]",
        harmless=True,
    ),
    Bomb(name="factorial", code="import math\nmath.factorial(10**7)"),
    Bomb(name="decimals", code="from decimal import *\ngetcontext().prec = 10**9\nDecimal(1) / Decimal(3)"),
    Bomb(name="all_products", code="import itertools\nlist(itertools.product(range(100), repeat=20))"),
    Bomb(name="wide_field", code="f'{1:>{10**12}}'"),
    Bomb(name="padding", code="'a'.zfill(10**12) + 'a'.center(10**12)"),
    Bomb(name="long_number", code="int('9' * 10_000_000)"),
    Bomb(name="json_indent", code="import json\njson.dumps([1] * 1000, indent=10**9)"),
    Bomb(name="substitution", code="import re\nre.sub('a', 'b' * 10**6, 'a' * 10**6)"),
    Bomb(
        name="endless_iterator", code="import itertools\nlist(itertools.accumulate(itertools.repeat('aaaa')))"
    ),
    Bomb(name="random_bytes", code="import random\nrandom.randbytes(10**11) + random.choices([1], k=10**10)"),
    Bomb(name="key_derivation", code="import hashlib\nhashlib.pbkdf2_hmac('sha256', b'a', b'b', 10**12)"),
    Bomb(name="regex", code="import re\nre.match('(a+)+$', 'a' * 64 + 'b')", harmless=True),
    Bomb(
        name="nested_regex",
        code="import re\nre.match('(?:(?:x{1,1000}){1,1000}){1,1000}', 'x' * 10)",
        harmless=True,
    ),
    Bomb(name="nested_source", code="x = " + "(" * 3000 + ")" * 3000),
    Bomb(name="long_expression", code="x = " + "+".join(["1"] * 60_000), harmless=True),
    Bomb(name="nested_json", code="import json\njson.loads('[' * 500_000)"),
    Bomb(name="long_sleep", code="import time\nwhile True: time.sleep(100)"),
    Bomb(name="async_sleep", code="import asyncio\nwhile True: await asyncio.sleep(100)"),
    Bomb(
        name="task_storm",
        code="import asyncio\nasync def f():\n    await asyncio.gather(f(), f(), f())\nawait f()",
    ),
    Bomb(name="fork_bomb", code="import os\nwhile True: os.fork()"),
    Bomb(
        name="thread_bomb", code="import threading\nwhile True: threading.Thread(target=lambda: None).start()"
    ),
    Bomb(name="quadratic_replace", code="x = 'a' * 10_000\nwhile True: x = x.replace('a', 'aa')"),
    Bomb(name="sorted_forever", code="x = sorted(range(10**10), key=str)"),
    Bomb(name="flood_of_forged_calls", code=_FORGED.format(name="'nope'", count=1000, forever=True)),
    Bomb(name="forged_calls_of_long_names", code=_FORGED.format(name="'x' * 3_000_000", count=1, forever=60)),
    Bomb(
        name="flood_of_forged_prints",
        code=_FORGED.replace('"op": "call"', '"op": "print"').format(name="''", count=1000, forever=True),
    ),
]
