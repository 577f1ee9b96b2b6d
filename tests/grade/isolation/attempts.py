"""Attempts to score without a training step, or to do harm: what a student could hand in for `basic`.

Each is the text of a module. `REACHED` is printed by those that reach what they must not; `good` and `fat` are correct
steps, of which the second keeps too much to pass. `FORGE` sends anything to whoever listens, and ends Python.
"""

# ruff: noqa: E501
from __future__ import annotations

import inspect
import textwrap
from typing import NamedTuple

from lib.grade.isolation import AtSize
from tests.support import functions
from tests.support.profiles import sample

HEAD = f"""
import ctypes, gc, json, os, signal, sys, threading, time
from lib import Model, NotSolved, PuzzleError, Trace, simulate

{inspect.getsource(functions.step)}

def good(model): step(model, keep=False)

def fat(model): step(model, keep=True)

def forge(text):
    for fd in range(3, 256):
        try: os.write(fd, text if isinstance(text, bytes) else text.encode())
        except OSError: pass
    os._exit(0)

def whole(trace, **changes):
    rest = dict(outcome="trace", text="", printed="", answers=[], places=[], lines=[[-1] * len(p["events"]) for p in trace["programs"]] if isinstance(trace, dict) else [])
    return json.dumps(trace) + "\\n" + json.dumps({{**rest, **changes}})

def data(function, puzzle="basic", **size):
    from lib.trace.json_format import encode
    found = encode(Trace.of(simulate(function, puzzle=puzzle, **size)))
    found["places"] = []
    for program in found["programs"]:
        for event in program["events"]: event[8] = -1
    return found

def reached(): print("REACHED")

def tried(what):
    try: result = what()
    except BaseException: return
    if result is None or result is False or result == -1: return
    print("REACHED", result)
"""

OTHER = AtSize(1, 3, 2)
"""Another size of `basic`."""


class Attempt(NamedTuple):
    """A name, and the body of `basic(model)`, or all that makes it. `needs` are the features without which nothing
    may stop it."""

    name: str
    body: str
    size: AtSize | None = None
    needs: tuple[str, ...] = ()
    modules: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        body = textwrap.dedent(self.body).strip("\n")
        if "def basic" in body:
            return f"{HEAD}\n{body}\n"
        return f"{HEAD}\ndef basic(model):\n{textwrap.indent(body, '    ')}\n"


PATCHED = [
    Attempt("Model.check", "type(model).check = staticmethod(lambda *a, **k: None); print('Correct!')"),
    Attempt("check", "import lib.checker.checker as c; c.check = c._judge = lambda *a, **k: None"),
    Attempt("Verdict", "import lib.checker.verdict as v; v.Verdict.passed = v.Verdict.correct = True"),
    Attempt("printed", "print('Correct!'); sys.__stdout__.write('Correct!'); os.write(1, b'Correct!')"),
    Attempt("sizes of values", "import lib.values.values as v; v.HIDDEN = v.LENGTH = 1; fat(model)"),
    Attempt("values", "fat(model); model.program.values[:] = model.program.values[:1] * len(model.program.values)"),
    Attempt("events", "fat(model); del model.program.events[1:-1]"),
    Attempt("an event with no input", "fat(model)\nfor event in model.program.events: event.inputs = ()"),
    Attempt("all events", "fat(model); model.program.events.clear(); model.program.moves.clear()"),
    Attempt(
        "rules",
        """
        import lib.values.rules as r, lib.values.operations as o
        for name, row in dict(o.OPERATIONS).items():
            object.__setattr__(row, "rule", lambda shape, layer, *values: values[-1])
        weights, states, *_ = model.storage()
        for layer in range(model.LAYERS):
            weights[layer], states[layer] = model.load_weights(layer)
            model.set_final_weight(layer, weights[layer])
        """,
    ),
    Attempt(
        "laws",
        """
        import lib.values.laws as laws
        for name in laws.__all__: setattr(laws, name, lambda *a, **k: a[0])
        model.get_activation([0]); model.set_final_weight(0, model.load_weights(0)[0])
        """,
    ),
    Attempt(
        "recorder",
        """
        import lib.simulator.recorder as r
        r.Recorder.record = lambda *a, **k: None
        fat(model)
        """,
    ),
    Attempt("the table", "import lib.values.operations as o; o.OPERATIONS.clear(); fat(model)"),
    Attempt("finals", "import lib.checker.final_weights as f; f.finals = lambda *a, **k: []"),
    Attempt("sandbox", "model.dist.sandbox = True; model.set_final_weight(0, model.load_weights(0)[0])"),
    Attempt(
        "costs",
        "import dataclasses; model.dist.costs = dataclasses.replace(model.dist.costs, forward=0.0); good(model)",
    ),
    Attempt("puzzle", "model.dist.puzzle = 'grad_accum'; good(model)"),
    Attempt("padding", "object.__setattr__(model.dist.shape, 'padding', 2); good(model)"),
    Attempt("ranks", "model.dist.ranks = 2; good(model)"),
    Attempt(
        "a Model of one's own", "class Mine(Model):\n    program = property(lambda self: [])\nmodel.__class__ = Mine"
    ),
    Attempt("foreign Models", "return [Model(0) for _ in range(3)]"),
    Attempt("no Unsolved", "import lib.simulator.simulator as s; s.Unsolved = int; raise NotSolved('basic')"),
    Attempt("a stub", "raise NotSolved('basic')"),
    Attempt("the name of another", "raise NotSolved('grad_accum')"),
]
"""What is changed in the process that runs it."""

FORGED = [
    Attempt("nothing", "forge('')"),
    Attempt("an outcome", "forge(whole(None, outcome='passed'))"),
    Attempt("words", "forge(whole(None, outcome='trace', text='Correct!'))"),
    Attempt(
        "an empty Trace", "d = data(good); d['programs'] = [{'values': [], 'events': [], 'moves': []}]; forge(whole(d))"
    ),
    Attempt("a Trace of a step with too little", "d = data(good); d['programs'][0]['events'].pop(); forge(whole(d))"),
    Attempt("a Trace of another size", "forge(whole(data(good)))", OTHER),
    Attempt(
        "a Trace that calls itself larger", "d = data(good); d['layers'], d['batches'] = 3, 2; forge(whole(d))", OTHER
    ),
    Attempt("a Trace of another puzzle", "d = data(good); d['puzzle'] = 'grad_accum'; forge(whole(d))"),
    Attempt("a Trace of no puzzle", "d = data(good); d['puzzle'] = None; forge(whole(d))"),
    Attempt("a Trace with an error", "d = data(good); d['error'] = 'none'; forge(whole(d))"),
    Attempt("a Trace with padding", "d = data(good); d['padding'] = 1; forge(whole(d))"),
    Attempt("a Trace at other costs", "d = data(good); d['costs']['forward'] = 0; forge(whole(d))"),
    Attempt(
        "a Trace with a mesh",
        "d = data(good); d['mesh'] = {'axes': [['a', 1]], 'ranks': [0], 'host_size': None}; forge(whole(d))",
    ),
    Attempt("a sandbox", "d = data(good); d['sandbox'] = True; forge(whole(d))"),
    Attempt(
        "smaller layers",
        "d = data(good); d['layer_descriptions'] = [{'kind': 'linear', 'inputs': 1, 'outputs': 1, 'rows': 1}]; forge(whole(d))",
    ),
    Attempt("two documents", "forge(whole(data(good)) + '\\n' + whole(data(good)))"),
    Attempt("half of it", "text = whole(data(good)); forge(text[:len(text) // 2])"),
    Attempt(
        "half of it, for ever",
        "text = whole(data(good))\nfor fd in range(3, 256):\n    try: os.write(fd, text[:99].encode())\n    except OSError: pass\nwhile True: time.sleep(1)",
    ),
    Attempt("lists in lists", "forge('[' * 10**6)"),
    Attempt("objects in objects", "forge('null\\n' + '{\"a\":' * 10**5)"),
    Attempt("no numbers", "forge(whole(data(good)).replace('[0,', '[NaN,', 1))"),
    Attempt("infinite", "d = data(good); d['costs']['forward'] = float('inf'); forge(whole(d))"),
    Attempt("a huge number", "d = data(good); d['layers'] = 10**4000; forge(whole(d))"),
    Attempt(
        "more digits than a number has",
        "forge(whole(data(good)).replace('\"layers\": 2', '\"layers\": ' + '2' * 10**6))",
    ),
    Attempt("the same key twice", "forge(whole(data(good)).replace('{', '{\"layers\":9,', 1))"),
    Attempt(
        "half a character",
        "forge(whole(data(good), text='TEXT').replace('TEXT', '\\ud800').encode('utf-8', 'surrogatepass'))",
    ),
    Attempt(
        "a pickle",
        "import pickle\nclass Bomb:\n    def __reduce__(self): return os.system, ('touch /tmp/bomb',)\nforge(pickle.dumps(Bomb()))",
    ),
    Attempt("without end", "forge(b'x' * 2**26)"),
    Attempt("places that are none", "forge(whole(data(good), places=[[1, 2]], lines=[[0] * 99]))"),
    Attempt("what is sent", "import lib.course.child.running as r; r.written = lambda *a: b'null\\n{}'"),
    Attempt("json", 'json.dumps = lambda *a, **k: \'{"outcome": "passed"}\''),
    Attempt(
        "the Trace",
        "import lib.trace.trace as t; t.Trace.of = classmethod(lambda cls, models: simulate(good, puzzle='basic', layers=1)[0].trace)",
    ),
    Attempt(
        "an error with a Trace",
        "class Mine(PuzzleError):\n    trace = Trace.of(simulate(good, puzzle='basic'))\nraise Mine('it is right')",
    ),
    Attempt(
        "text of one's own", "class Text(str):\n    def __len__(self): return 0\nraise ValueError(Text('x' * 10**7))"
    ),
    Attempt(
        "atexit",
        "import atexit; atexit.register(forge, whole(data(good), outcome='passed')); model.get_activation([0])",
    ),
    Attempt(
        "__del__",
        "class Last:\n    def __del__(self): forge(whole(None))\nglobals()['last'] = Last(); model.get_activation([0])",
    ),
    Attempt(
        "result.json",
        "[open(name, 'w').write(whole(data(good))) for name in ('result.json', '/tmp/result.json')]; os._exit(0)",
    ),
]
"""What is sent in place of a result."""

ENDED = [
    Attempt("os._exit", "os._exit(0)"),
    Attempt("sys.exit", "sys.exit(0)"),
    Attempt("KeyboardInterrupt", "raise KeyboardInterrupt"),
    Attempt("BaseException", "class Mine(BaseException): pass\nraise Mine('Correct!')"),
    Attempt("abort", "os.abort()"),
    Attempt("kill itself", "os.kill(os.getpid(), signal.SIGKILL)"),
    Attempt("kill the parent", "os.kill(os.getppid(), signal.SIGKILL)"),
    Attempt("interrupt the parent", "[os.kill(os.getppid(), n) for n in (2, 3, 15, 19)]"),
    Attempt("kill all", "os.kill(-1, signal.SIGKILL)", needs=("processes",)),
    Attempt("kill the group", "os.killpg(0, signal.SIGKILL)"),
    Attempt("a broken Python", "ctypes.string_at(0)"),
    Attempt("no stack", "sys.setrecursionlimit(10**9)\ndef down(): down()\ndown()"),
    Attempt("closed files", "os.closerange(0, 256); good(model); raise ValueError"),
]
"""How it ends before it has done anything."""

ENDLESS = [
    Attempt("a loop", "while True: pass"),
    Attempt("one long sum", "sum(range(10**13))"),
    Attempt("a pattern", "import re; re.match(r'(a+)+$', 'a' * 60 + 'b')"),
    Attempt("sleep", "time.sleep(1000)"),
    Attempt("no signals", "[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 14, 15, 24)]\nwhile True: pass"),
    Attempt(
        "no signals, and one long sum",
        "import faulthandler; faulthandler.cancel_dump_traceback_later(); signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64)); sum(range(10**13))",
    ),
    Attempt("an await", "async def basic(model):\n    import asyncio\n    while True: await asyncio.sleep(0)"),
    Attempt(
        "an event that nobody sets", "async def basic(model):\n    import asyncio\n    await asyncio.Event().wait()"
    ),
    Attempt(
        "an await of its own",
        "class Never:\n    def __await__(self):\n        while True: yield\nasync def basic(model): await Never()",
    ),
    Attempt(
        "a thread that stays", "threading.Thread(target=time.sleep, args=[1000]).start(); model.get_activation([0])"
    ),
    Attempt("prints", "while True: print('x' * 10**6)"),
    Attempt("a late result", "time.sleep(3); forge(whole(data(good)))"),
    Attempt(
        "a result from a thread, late", "threading.Timer(3, lambda: forge(whole(data(good)))).start(); time.sleep(1000)"
    ),
]
"""What does not end by itself."""

HUNGRY = [
    Attempt("memory", "hog = [bytearray(10**8) for _ in range(100)]; reached()"),
    Attempt("one large thing", "'x' * 10**11; reached()"),
    Attempt(
        "threads",
        "many = [threading.Thread(target=time.sleep, args=[100], daemon=True) for _ in range(10**5)]; [t.start() for t in many]; reached()",
    ),
    Attempt("processes", "tried(os.fork)\nwhile True:\n    if os.fork() == 0: continue", needs=("seccomp",)),
    Attempt("open files", "many = [open('/dev/null') for _ in range(10**4)]; reached()"),
    Attempt("a large file", "open('large', 'wb').write(b'x' * 10**9); reached()"),
    Attempt(
        "many files",
        "for n in range(100): open(f'f{n}', 'wb').write(b'x' * 10**7)\nreached()",
        needs=("files",),
    ),
    Attempt("a large Trace", "for _ in range(10**6): model.get_activation([0])"),
    Attempt("a deep folder", "for _ in range(3000): os.mkdir('d'); os.chdir('d')"),
]
"""What uses more than it may have: where it is one that has to be stopped, REACHED is not."""

OUTSIDE = [
    Attempt("a daemon", "tried(lambda: os.fork() or os.setsid() or time.sleep(1000))", needs=("seccomp",)),
    Attempt(
        "a program", "import subprocess; tried(lambda: subprocess.run(['/bin/true'], check=True))", needs=("seccomp",)
    ),
    Attempt("a shell", "tried(lambda: os.system('true') == 0)", needs=("seccomp",)),
    Attempt("posix_spawn", "tried(lambda: os.posix_spawn('/bin/true', ['true'], {}))", needs=("seccomp",)),
    Attempt("ptrace", "tried(lambda: ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0))", needs=("seccomp",)),
    Attempt(
        "process_vm_readv",
        "tried(lambda: ctypes.CDLL(None).process_vm_readv(os.getppid(), None, 0, None, 0, 0))",
        needs=("seccomp",),
    ),
    Attempt("another's memory", "tried(lambda: open(f'/proc/{os.getppid()}/mem', 'rb+'))"),
    Attempt("another's files", "tried(lambda: os.listdir(f'/proc/{os.getppid()}/fd'))", needs=("files",)),
    Attempt("other processes", "tried(lambda: [n for n in os.listdir('/proc') if n.isdigit()])", needs=("files",)),
    Attempt("a namespace", "tried(lambda: ctypes.CDLL(None).unshare(0x10000000) == 0)", needs=("seccomp",)),
    Attempt("mount", "tried(lambda: ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0)"),
    Attempt("io_uring", "tried(lambda: ctypes.CDLL(None).syscall(425, 1, None) not in (-1, -14))", needs=("seccomp",)),
    Attempt(
        "keys", "tried(lambda: ctypes.CDLL(None).syscall(248, b'user', b'x', b'y', 1, -3) > 0)", needs=("seccomp",)
    ),
    Attempt("capabilities", "tried(lambda: os.chroot('/tmp') or 1)"),
    Attempt(
        "loopback", "import socket; tried(lambda: socket.create_connection(('127.0.0.1', PORT), 1))", needs=("seccomp",)
    ),
    Attempt(
        "names of hosts", "import socket; tried(lambda: socket.getaddrinfo('example.org', 80))", needs=("seccomp",)
    ),
    Attempt("a socket", "import socket; tried(lambda: socket.socket(socket.AF_UNIX))", needs=("seccomp",)),
    Attempt(
        "a message to anybody",
        "import socket; tried(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))",
        needs=("seccomp",),
    ),
    Attempt(
        "shared memory",
        "from multiprocessing import shared_memory as s; tried(lambda: s.SharedMemory('x', True, 9))",
        needs=("landlock",),
    ),
    Attempt(
        "the home folder",
        "tried(lambda: open(os.path.expanduser('~/REACHED'), 'w') and os.path.expanduser('~') != '/')",
        needs=("landlock",),
    ),
    Attempt(
        "writing to lib",
        "import lib; tried(lambda: open(os.path.join(os.path.dirname(lib.__file__), 'REACHED.py'), 'w'))",
        needs=("landlock",),
    ),
    Attempt(
        "writing to Python",
        "tried(lambda: open(os.path.join(os.path.dirname(os.__file__), 'REACHED.py'), 'w'))",
        needs=("landlock",),
    ),
    Attempt("what others have", "tried(lambda: open(SECRET).read())", needs=("landlock",)),
    Attempt("a folder of others", "tried(lambda: os.listdir(os.path.dirname(SECRET)))", needs=("landlock",)),
    Attempt("the rights of a file of others", "tried(lambda: os.chmod(SECRET, 0o600) is None)", needs=("seccomp",)),
    Attempt("to empty a file of others", "tried(lambda: os.truncate(SECRET, 0) is None)", needs=("seccomp",)),
    Attempt(
        "to empty a file that it reads",
        "open('own', 'w').write('x'); tried(lambda: os.open('own', os.O_RDONLY | os.O_TRUNC))",
        needs=("seccomp",),
    ),
    Attempt(
        "the rights of Python", "tried(lambda: os.fchmod(os.open(os.__file__, 0), 0o644) is None)", needs=("seccomp",)
    ),
    Attempt("the date of a file of others", "tried(lambda: os.utime(SECRET, (1, 1)) is None)", needs=("seccomp",)),
    Attempt(
        "a signal for others by a socket",
        "import fcntl, socket; pair = socket.socketpair(); tried(lambda: fcntl.fcntl(pair[0], fcntl.F_SETOWN, os.getppid()) == 0)",
        needs=("seccomp",),
    ),
    Attempt(
        "a lock for others",
        "import fcntl; tried(lambda: fcntl.flock(os.open(os.__file__, 0), 2) is None)",
        needs=("seccomp",),
    ),
    Attempt(
        "the processors of others", "tried(lambda: os.sched_setaffinity(os.getppid(), {0}) is None)", needs=("seccomp",)
    ),
    Attempt("a link to it", "os.symlink(SECRET, 'link'); tried(lambda: open('link').read())", needs=("landlock",)),
    Attempt(
        "the solution",
        "from lib.submissions.locations import reference; tried(lambda: reference('basic').read_text())",
        needs=("landlock",),
    ),
    Attempt(
        "the solution, loaded",
        "from lib.submissions.load import load_function\nfrom lib.submissions.locations import reference\nload_function(reference('basic'), 'basic')(model)",
        needs=("landlock",),
    ),
    Attempt("answer", "from lib.course.solutions import answer; tried(lambda: answer('basic'))", needs=("landlock",)),
    Attempt(
        "an alternative",
        "from lib.course.solutions import alternatives, ways; tried(lambda: ways('basic'))",
        needs=("landlock",),
    ),
    Attempt("solution_of", "from lib.submissions.function_check import solution_of; solution_of('basic')(model)"),
    Attempt("a schedule of ours", "from lib.schedules.data_parallel import checkpointed; checkpointed(1)(model)"),
    Attempt(
        "a schedule of ours, by its file",
        "import lib; tried(lambda: open(os.path.join(os.path.dirname(lib.__file__), 'schedules/data_parallel.py')).read())",
        needs=("landlock",),
    ),
    Attempt(
        "the memory of Python",
        "tried(lambda: [one for one in gc.get_objects() if type(one) is Trace or type(one).__name__ == 'Isolation'] or None)",
    ),
    Attempt("the environment", "tried(lambda: [v for v in os.environ.values() if 'hush' in v] or None)"),
    Attempt("import hooks", "sys.meta_path.clear(); sys.path_hooks.clear(); sys.modules.clear(); os._exit(0)"),
    Attempt(
        "modules in place of ours",
        "print('Correct!')",
        modules=(
            ("random.py", "print('REACHED')"),
            ("json.py", "print('REACHED')"),
            ("lib/__init__.py", "print('REACHED')"),
            ("sitecustomize.py", "print('REACHED')"),
        ),
    ),
]
"""What reaches for more than it was given."""

EVERY = [
    (f"{kind}: {one.name}", one)
    for kind, table in (
        ("patched", PATCHED),
        ("forged", FORGED),
        ("ended", ENDED),
        ("endless", sample(ENDLESS)),
        ("hungry", sample(HUNGRY)),
        ("outside", OUTSIDE),
    )
    for one in table
]
