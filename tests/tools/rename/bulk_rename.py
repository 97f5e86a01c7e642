"""Bulk renamer over mypy's types. usage: bulk_rename.py ROOT GLOSSARY... [--apply]
Glossary TSV: 'file<TAB>old<TAB>new' (paths below ROOT) | 'sym<TAB>module.Qual.name<TAB>newname'
"""
from __future__ import annotations
import ast, collections, pathlib, re, subprocess, sys, pickle, os
from mypy import build, nodes, types as T
from mypy.options import Options
from mypy.modulefinder import BuildSource
from mypy import patterns as P

args = [a for a in sys.argv[1:] if not a.startswith("--")]
APPLY = "--apply" in sys.argv
ROOT = pathlib.Path(args[0]).resolve()
os.chdir(ROOT)
files: dict[str, str] = {}
syms: dict[str, str] = {}
problems: list[str] = []
for g in args[1:]:
    for n, line in enumerate(pathlib.Path(g).read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        p = line.split("\t")
        if len(p) < 3:
            problems.append(f"{g}:{n}: malformed {line!r}"); continue
        kind, old, new = (x.strip() for x in p[:3])
        if kind == "file":
            if old != new: files[old] = new
        elif kind == "sym":
            if old.rsplit(".", 1)[1] != new: 
                if syms.get(old, new) != new: problems.append(f"{g}:{n}: {old} twice: {syms[old]} {new}")
                syms[old] = new
        else:
            problems.append(f"{g}:{n}: kind {kind}")

def modname(path: str) -> str:
    m = path[:-3].replace("/", ".")
    return m[: -len(".__init__")] if m.endswith(".__init__") else m

sources = []
for top in ("sparkctl", "tests"):
    for f in sorted((ROOT / top).rglob("*.py")):
        rel = str(f.relative_to(ROOT))
        sources.append(BuildSource(rel, modname(rel)))
o = Options()
o.python_version = (3, 11)
o.export_types = True; o.preserve_asts = True; o.incremental = False; o.check_untyped_defs = True
o.namespace_packages = True; o.explicit_package_bases = True; o.mypy_path = [str(ROOT)]
o.ignore_missing_imports = True; o.warn_unreachable = False; o.cache_dir = os.devnull
o.python_executable = sys.executable
o.local_partial_types = False
res = build.build(sources, o)
print("mypy errors:", len(res.errors), res.errors[:5], file=sys.stderr)
allt = res.types
mods = {m: f for m, f in res.files.items() if m.split(".")[0] in ("sparkctl", "tests")}
path_of = {m: os.path.relpath(f.path, ROOT) for m, f in mods.items()}
modmap = {modname(a): modname(b) for a, b in files.items() if a.endswith(".py")}

# --- union-find over overriding members
parent: dict[str, str] = {}
def find(x):
    while parent.get(x, x) != x:
        x = parent[x]
    return x
def union(a, b):
    a, b = find(a), find(b)
    if a != b: parent[a] = b
infos: list[nodes.TypeInfo] = []
def collect(tbl, seen=set()):
    for s in tbl.values():
        n = s.node
        if isinstance(n, nodes.TypeInfo) and n.fullname.split(".")[0] in ("sparkctl", "tests") and n.fullname not in seen:
            seen.add(n.fullname); infos.append(n); collect(n.names)
for f in mods.values(): collect(f.names)
# classes inside of functions
KINDS = (nodes.Statement, nodes.Expression, nodes.Block, P.Pattern, nodes.Argument, nodes.FuncBase, nodes.MypyFile)
SKIP = {"node", "info", "type", "unanalyzed_type", "names", "def_var", "partial_fallback", "var", "original_def", "alias_tvars", "imports"}
def attrs(n):
    for c in type(n).__mro__:
        yield from getattr(c, "__mypyc_attrs__", ()) or getattr(c, "__slots__", ())
def traverse(root):
    stack, seen = [root], set()
    while stack:
        n = stack.pop()
        if id(n) in seen: continue
        seen.add(id(n)); yield n
        for a in set(attrs(n)):
            if a in SKIP or a.startswith("__"): continue
            try: v = getattr(n, a)
            except AttributeError: continue
            todo = [v]
            while todo:
                x = todo.pop()
                if isinstance(x, KINDS): stack.append(x)
                elif isinstance(x, (list, tuple)): todo.extend(x)
                elif isinstance(x, dict): todo.extend(x.keys()); todo.extend(x.values())
known = {i.fullname for i in infos}
for f in mods.values():
    for n in traverse(f):
        if isinstance(n, nodes.ClassDef) and n.info and n.info.fullname not in known: known.add(n.info.fullname); infos.append(n.info)
external: set[str] = set()
for i in infos:
    for name in i.names:
        for b in i.mro[1:]:
            if name in b.names:
                union(f"{i.fullname}.{name}", f"{b.fullname}.{name}")
                if b.fullname.split(".")[0] not in ("sparkctl", "tests"): external.add(f"{b.fullname}.{name}")
from mypy.subtypes import is_protocol_implementation
from mypy.typevars import fill_typevars_with_any
from mypy.state import state
def implements(i, p):
    if p in i.mro: return True
    try:
        with state.strict_optional_set(True):
            return is_protocol_implementation(fill_typevars_with_any(i), fill_typevars_with_any(p))
    except Exception as e:
        print("protocol check failed", i.fullname, p.fullname, e, file=sys.stderr); return True
protos = [i for i in infos if i.is_protocol]
for p in protos:
    members = [m for b in p.mro if b.is_protocol for m in b.names if not m.startswith("__")] 
    if not members: continue
    for i in infos:
        if i is p: continue
        if all(i.get(m) for m in members) and (len(members) > 2 or implements(i, p)):
            for m in members:
                for b in i.mro:
                    if m in b.names: union(f"{b.fullname}.{m}", f"{p.fullname}.{m}"); break
                for b in p.mro:
                    if m in b.names: union(f"{b.fullname}.{m}", f"{p.fullname}.{m}"); break
renames: dict[str, str] = {}   # canonical -> new
for old, new in syms.items():
    c = find(old)
    if renames.get(c, new) != new:
        problems.append(f"conflict in one override family: {old} -> {new}, but {renames[c]} already")
    renames[c] = new
extcanon = {find(e) for e in external}
for old in syms:
    if find(old) in extcanon: problems.append(f"overrides a member of a library: {old}")
def exists(full: str) -> bool:
    parts = full.split(".")
    for k in range(len(parts) - 1, 0, -1):
        m = ".".join(parts[:k])
        if m in mods:
            tbl = mods[m].names
            for j, q in enumerate(parts[k:]):
                s = tbl.get(q)
                if s is None: return False
                if j == len(parts[k:]) - 1: return True
                if not isinstance(s.node, nodes.TypeInfo): return False
                tbl = s.node.names
    return False
for old in syms:
    if not exists(old): problems.append(f"no such symbol: {old}")
# clash in the same namespace
members: dict[str, set[str]] = collections.defaultdict(set)
for i in infos:
    members[i.fullname] = set().union(*[set(b.names) for b in i.mro if b.fullname != "builtins.object"])
for old, new in syms.items():
    owner = old.rsplit(".", 1)[0]
    if owner in members:
        if new in members[owner] and f"{owner}.{new}" not in syms and not any(f"{b.fullname}.{new}" in syms for i in infos if i.fullname == owner for b in i.mro):
            problems.append(f"clash: {owner} has {new} already (from {old})")
    elif owner in mods and new in mods[owner].names and f"{owner}.{new}" not in syms:
        s = mods[owner].names[new]
        full = s.node.fullname if s.node is not None and hasattr(s.node, "fullname") else ""
        if full not in syms:
            problems.append(f"clash: module {owner} has {new} already (from {old})")
by_simple: dict[str, list[str]] = collections.defaultdict(list)
for s in syms: by_simple[s.rsplit(".", 1)[1]].append(s)

def new_name(full: str) -> str | None:
    return renames.get(find(full))

# --- index of mypy nodes by place
class Index:
    def __init__(self, file):
        self.names = {}; self.members = {}; self.calls = {}; self.supers = {}
        for o in traverse(file):
            if isinstance(o, nodes.SuperExpr): self.supers[(o.end_line, o.end_column)] = o
            if isinstance(o, nodes.NameExpr): self.names.setdefault((o.line, o.column), o)
            elif isinstance(o, nodes.MemberExpr): self.members.setdefault((o.line, o.column, o.end_line, o.end_column), []).append(o)
            elif isinstance(o, nodes.CallExpr): self.calls.setdefault((o.line, o.column, o.end_line, o.end_column), o)

def owners(t, name) -> set[str] | None:
    """Full names of the member definitions; None where the type isn't known."""
    if t is None: return None
    t = T.get_proper_type(t)
    if isinstance(t, T.UnionType):
        out = set(); 
        for it in t.items:
            r = owners(it, name)
            if r: out |= r
        return out or None
    if isinstance(t, T.NoneType): return set()
    if isinstance(t, T.TypeVarType): return owners(t.upper_bound, name)
    if isinstance(t, (T.TupleType,)): return owners(t.partial_fallback, name)
    if isinstance(t, T.LiteralType): return owners(t.fallback, name)
    if isinstance(t, T.TypeType): return owners(t.item, name)
    if isinstance(t, T.Overloaded): 
        return owners(t.items[0], name)
    if isinstance(t, T.CallableType):
        if t.is_type_obj(): return owners(T.get_proper_type(t.ret_type) if not isinstance(T.get_proper_type(t.ret_type), T.NoneType) else None, name)
        return set()
    if isinstance(t, T.AnyType): return None
    if isinstance(t, T.Instance):
        for b in t.type.mro:
            if name in b.names: return {f"{b.fullname}.{name}"}
        return set()
    return set()

unresolved = collections.Counter()
edits: dict[str, list] = collections.defaultdict(list)
strings: list[str] = []

class Walk(ast.NodeVisitor):
    def __init__(self, mod, path, src):
        self.mod, self.path = mod, path
        self.file = mods[mod]
        self.lines = src.split(b"\n")
        self.idx = Index(self.file)
        self.scopes: list[dict[str, str]] = []
        self.classes: list[str] = []
        self.funcs: list[ast.AST] = []
        self.locals_of: list[set[str]] = []
        self.done = set()
        self.naming = set(); self.bound_to = {}
    def edit(self, line, col, old, new, why=""):
        b = old.encode()
        got = self.lines[line - 1][col: col + len(b)]
        if got != b:
            problems.append(f"{self.path}:{line}:{col}: expected {old}, found {got!r} {why}"); return
        if (line, col) in self.done: return
        self.done.add((line, col))
        edits[self.path].append((line, col, len(b), new))
    def check_local(self, node, new):
        for s in self.locals_of:
            if new in s: problems.append(f"shadow: {self.path}:{node.lineno}: {new} is a local name here")
    def global_full(self, name):
        for s in reversed(self.scopes):
            if name in s: return s[name]
        s = self.file.names.get(name)
        if s is not None and s.node is not None: return getattr(s.node, "fullname", None)
        return None
    def col(self, line, col):
        return len(self.lines[line - 1][:col].decode())
    def key(self, n):
        return (n.lineno, self.col(n.lineno, n.col_offset), n.end_lineno, self.col(n.end_lineno, n.end_col_offset))
    def is_local(self, name):
        return any(name in s for s in self.locals_of) and not any(name in s for s in self.scopes)
    def bind(self, local, full, line):
        self.bound_to.setdefault(local, {}).setdefault(full, line)
    def visit_Name(self, n):
        e = self.idx.names.get((n.lineno, n.col_offset)) or self.idx.names.get(self.key(n)[:2])
        if e is not None and e.name != n.id: e = self.idx.names.get(self.key(n)[:2])
        if e is not None and e.name != n.id: e = None
        full = None
        if e is not None and e.name == n.id:
            if e.node is not None and isinstance(e.node, nodes.MypyFile): full = e.node.fullname
            elif e.kind in (nodes.GDEF,): full = e.fullname
            elif e.kind == nodes.MDEF:
                full = e.node.fullname if getattr(e.node, "fullname", "").count(".") else None
            elif e.kind is None or e.kind == nodes.LDEF:
                f = e.fullname or ""
                full = f if "." in f else None
                if full is None and e.kind is None: full = self.global_full(n.id)
        if e is None:
            full = None if self.is_local(n.id) else self.global_full(n.id)
        if full:
            new = new_name(full)
            if full.rsplit(".", 1)[-1] == n.id: self.bind(new or n.id, full, n.lineno)
            if new and full.rsplit(".", 1)[-1] == n.id:
                self.check_local(n, new); self.edit(n.lineno, n.col_offset, n.id, new)
            elif full in modmap and full.rsplit(".", 1)[-1] == n.id:
                new = modmap[full].rsplit(".", 1)[-1]
                if new != n.id: self.check_local(n, new); self.edit(n.lineno, n.col_offset, n.id, new)
    def visit_Attribute(self, n):
        self.generic_visit(n)
        es = self.idx.members.get(self.key(n)) or self.idx.members.get((n.lineno, n.col_offset, n.end_lineno, n.end_col_offset), [])
        sup = self.idx.supers.get(self.key(n)[2:]) or self.idx.supers.get((n.end_lineno, n.end_col_offset))
        if sup is not None and sup.name == n.attr and sup.info is not None:
            for b in sup.info.mro[1:]:
                if n.attr in b.names:
                    new = new_name(f"{b.fullname}.{n.attr}")
                    if new: self.edit(n.end_lineno, n.end_col_offset - len(n.attr.encode()), n.attr, new)
                    break
            return
        col = n.end_col_offset - len(n.attr.encode())
        fulls = None
        for e in es:
            if e.name != n.attr: continue
            if isinstance(e.expr, nodes.RefExpr) and isinstance(e.expr.node, nodes.MypyFile):
                fulls = {getattr(e.node, "fullname", None) or f"{e.expr.node.fullname}.{n.attr}"}; break
            t = allt.get(e.expr)
            if t is None and isinstance(e.expr, nodes.RefExpr) and isinstance(e.expr.node, nodes.TypeInfo):
                for b in e.expr.node.mro:
                    if n.attr in b.names: fulls = {f"{b.fullname}.{n.attr}"}; break
                else: fulls = set()
                break
            if t is None and isinstance(e.expr, nodes.RefExpr) and isinstance(e.expr.node, nodes.Var): t = e.expr.node.type
            r = owners(t, n.attr)
            if r is not None: fulls = (fulls or set()) | r
        if fulls is None and not es:  # an annotation or unreachable
            if isinstance(n.value, ast.Name):
                base = self.global_full(n.value.id)
                if base in mods: fulls = {f"{base}.{n.attr}"}
                elif base: fulls = {f"{base}.{n.attr}"}
        if fulls is None:
            if n.attr in by_simple and not n.attr.startswith("__"):
                problems.append(f"unresolved: {self.path}:{n.lineno}: .{n.attr} ({', '.join(by_simple[n.attr])[:120]})")
            return
        news = {new_name(f) for f in fulls}
        if len(news - {None}) and len(news) > 1: problems.append(f"mixed: {self.path}:{n.lineno}: .{n.attr} {fulls} -> {news}"); 
        news.discard(None)
        if len(news) == 1: self.edit(n.end_lineno, col, n.attr, news.pop())
        elif len(fulls) == 1 and (f := next(iter(fulls))) in modmap:
            new = modmap[f].rsplit(".", 1)[-1]
            if new != n.attr: self.edit(n.end_lineno, col, n.attr, new)
    def defname(self, n, full):
        new = new_name(full)
        if not self.classes: self.bind(new or n.name, full, n.lineno)
        if new:
            line = self.lines[n.lineno - 1]
            m = re.compile(rb"(?:async\s+def|def|class)\s+").match(line, n.col_offset)
            self.edit(n.lineno, m.end(), n.name, new)
    def qual(self, name):
        return ".".join([self.mod, *self.classes, name])
    def bound(self, fn):
        out = set()
        a = fn.args
        for x in [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]:
            if x: out.add(x.arg)
        for d in ast.walk(fn):
            if isinstance(d, ast.Name) and isinstance(d.ctx, ast.Store): out.add(d.id)
        return out
    def visit_FunctionDef(self, n):
        if not self.funcs: self.defname(n, self.qual(n.name))
        elif self.classes and self.funcs: 
            # method of a class within a function
            for i in infos:
                if i.defn.line and i.module_name == self.mod and i.name == self.classes[-1] and "@" in i.fullname + "@": 
                    self.defname(n, f"{i.fullname}.{n.name}"); break
        for d in n.decorator_list: self.visit(d)
        self.funcs.append(n); self.locals_of.append(self.bound(n))
        scope = {}
        for d in ast.walk(n):
            if isinstance(d, ast.ImportFrom) and d.module and not d.level:
                for al in d.names: scope[al.asname or al.name] = self.resolve(d.module, al.name)
        self.scopes.append(scope)
        saved, self.classes = self.classes, self.classes
        for f in [n.args, n.returns, *n.body]:
            if f is not None: self.visit(f)
        self.classes = saved
        self.scopes.pop(); self.funcs.pop(); self.locals_of.pop()
    visit_AsyncFunctionDef = visit_FunctionDef
    def visit_Lambda(self, n):
        self.locals_of.append({x.arg for x in n.args.args}); self.generic_visit(n); self.locals_of.pop()
    def visit_ClassDef(self, n):
        if not self.funcs: self.defname(n, self.qual(n.name))
        for d in [*n.decorator_list, *n.bases, *n.keywords]: self.visit(d)
        self.classes.append(n.name)
        saved, funcs = self.funcs, self.funcs
        if not self.funcs: self.funcs = []
        for s in n.body:
            # class-level attributes
            targets = [s.target] if isinstance(s, ast.AnnAssign) else s.targets if isinstance(s, ast.Assign) else []
            for t in targets:
                if isinstance(t, ast.Name):
                    new = new_name(self.qual(t.id))
                    if new: self.edit(t.lineno, t.col_offset, t.id, new)
            self.visit(s)
        self.funcs = saved
        self.classes.pop()
    def resolve(self, module, name):
        if module in mods:
            s = mods[module].names.get(name)
            if s is not None and s.node is not None:
                f = getattr(s.node, "fullname", None)
                if f: return f
        if f"{module}.{name}" in mods: return f"{module}.{name}"
        return f"{module}.{name}"
    def visit_ImportFrom(self, n):
        if n.level or not n.module or n.module.split(".")[0] not in ("sparkctl", "tests"): return
        groups = collections.OrderedDict(); changed = False
        for al in n.names:
            sub = f"{n.module}.{al.name}"
            full = self.resolve(n.module, al.name)
            if sub in mods and (mods[n.module].names.get(al.name) is None or isinstance(mods[n.module].names[al.name].node, nodes.MypyFile)) :
                target = modmap.get(sub, sub)
                m, nm = target.rsplit(".", 1)
            else:
                m = modmap.get(n.module, n.module)
                nm = new_name(full) or al.name if full.rsplit(".", 1)[-1] == al.name else al.name
            asn = al.asname
            if asn and asn == al.name: asn = nm  # an explicit re-export
            self.bind(asn or nm, full, n.lineno)
            if m != n.module or nm != al.name: changed = True
            if not asn and self.locals_of and nm != al.name and nm in self.locals_of[-1]: problems.append(f"shadow: {self.path}:{n.lineno}: import {nm}")
            groups.setdefault(m, []).append(nm + (f" as {asn}" if asn else ""))
        if not changed: return
        first, last = n.lineno - 1, n.end_lineno - 1
        text = b"\n".join(self.lines[first:last + 1])
        comments = re.findall(rb"#[^\n]*", text)
        tail = self.lines[last][n.end_col_offset:]
        head = self.lines[first][:n.col_offset]
        if head.strip(): problems.append(f"import after other code: {self.path}:{n.lineno}")
        stm = []
        for k, (m, names) in enumerate(groups.items()):
            stm.append(head.decode() + f"from {m} import " + (f"({', '.join(names)})" if len(names) > 3 else ", ".join(names)))
        if comments and len(stm) >= 1 and not tail.strip():
            c = b"  ".join(comments).decode()
            stm[0] += "  " + c
        new = "\n".join(stm)
        edits[self.path].append((n.lineno, n.col_offset, ("span", n.end_lineno, n.end_col_offset), new[n.col_offset:]))
    def visit_Import(self, n):
        for al in n.names:
            if al.name in modmap: problems.append(f"plain import to rewrite by hand: {self.path}:{n.lineno} {al.name}")
    def visit_Call(self, n):
        self.generic_visit(n)
        if ast.unparse(n.func) in ("cast", "typing.cast") and n.args and isinstance(n.args[0], ast.Constant):
            c = n.args[0]
            for m in re.finditer(r"(?<![.\w])[A-Za-z_]\w*", c.value):
                full = self.global_full(m[0])
                if full and new_name(full) and full.rsplit(".", 1)[-1] == m[0]: self.edit(c.lineno, c.col_offset + 1 + m.start(), m[0], new_name(full))
        if n.keywords:
            e = self.idx.calls.get(self.key(n)) or self.idx.calls.get((n.lineno, n.col_offset, n.end_lineno, n.end_col_offset))
            if e is None: return
            t = T.get_proper_type(allt.get(e.callee)) if allt.get(e.callee) is not None else None
            cls = None
            if isinstance(t, T.Overloaded): t = t.items[0]
            if isinstance(t, T.CallableType):
                if t.is_type_obj(): cls = T.get_proper_type(t.ret_type)
                elif getattr(e.callee, "fullname", "") in ("dataclasses.replace", "copy.replace") and n.args: 
                    cls = allt.get(e.args[0]); cls = T.get_proper_type(cls) if cls is not None else None
            if t is None and isinstance(e.callee, nodes.RefExpr) and isinstance(e.callee.node, nodes.TypeInfo):
                pass
            for k in n.keywords:
                if k.arg is None: continue
                r = owners(cls, k.arg) if cls is not None else None
                if r:
                    news = {new_name(f) for f in r} - {None}
                    if news: self.edit(k.lineno, k.col_offset, k.arg, news.pop())
                elif k.arg in by_simple and cls is None and isinstance(t, (type(None), T.AnyType)):
                    problems.append(f"keyword of an unknown callee: {self.path}:{k.lineno} {k.arg}=")
        if isinstance(n.func, ast.Name) and n.func.id in ("getattr", "setattr", "hasattr") or isinstance(n.func, ast.Attribute) and n.func.attr in ("setattr", "delattr", "setitem", "object", "attrgetter", "methodcaller"):
            for a in n.args:
                if isinstance(a, ast.Constant) and isinstance(a.value, str) and a.value in by_simple:
                    strings.append(f"attribute by string: {self.path}:{a.lineno}: {a.value!r} ({', '.join(by_simple[a.value])[:150]})")
    def visit_MatchClass(self, n):
        self.generic_visit(n)
        if not n.kwd_attrs: return
        cname = n.cls
        full = None
        if isinstance(cname, ast.Name):
            e = self.idx.names.get(self.key(cname)[:2]); full = (e.fullname if e is not None else None) or self.global_full(cname.id)
        info = next((i for i in infos if i.fullname == full), None)
        for attr, pat in zip(n.kwd_attrs, n.kwd_patterns):
            if attr not in by_simple: continue
            if info is None: problems.append(f"pattern of unknown class: {self.path}:{n.lineno} {attr}="); continue
            new = None
            for b in info.mro:
                if attr in b.names: new = new_name(f"{b.fullname}.{attr}"); break
            if new:
                # the keyword stands right before its pattern
                line = self.lines[pat.lineno - 1][:pat.col_offset]
                m = re.search(rb"\b" + attr.encode() + rb"\s*=\s*\(?$", line)
                if m: self.edit(pat.lineno, m.start(), attr, new)
                else: problems.append(f"pattern keyword not found: {self.path}:{pat.lineno} {attr}")
    def visit_Assign(self, n):
        t = n.targets[0]
        if isinstance(t, ast.Name):
            if t.id == "__all__": self.naming.update(x for x in ast.walk(n.value) if isinstance(x, ast.Constant))
            elif isinstance(n.value, ast.Call) and n.value.args and isinstance(n.value.args[0], ast.Constant) and n.value.args[0].value == t.id: self.naming.add(n.value.args[0])
        self.generic_visit(n)
    def visit_Subscript(self, n):
        self.naming.update(x for x in ast.walk(n.slice) if isinstance(x, ast.Constant)) if not isinstance(n.slice, ast.Constant) else None
        self.generic_visit(n)
    def visit_Global(self, n):
        for name in n.names:
            full = self.global_full(name)
            if full and new_name(full): 
                m = re.search(rb"\b" + name.encode() + rb"\b", self.lines[n.lineno - 1]); self.edit(n.lineno, m.start(), name, new_name(full))
    def visit_Constant(self, n):
        if isinstance(n.value, str):
            v = n.value
            if re.fullmatch(r"[A-Za-z_]\w+", v) and v in by_simple and n in self.naming:
                full = self.global_full(v)
                if full and new_name(full) and full.rsplit(".", 1)[-1] == v:
                    seg = self.lines[n.lineno - 1][n.col_offset:n.end_col_offset]
                    if seg[1:-1] == v.encode(): self.edit(n.lineno, n.col_offset + 1, v, new_name(full)); strings.append(f"string edited: {self.path}:{n.lineno} {v}")
            elif re.search(r"\b(sparkctl|tests)(\.\w+)+", v):
                for m in re.findall(r"\b(?:sparkctl|tests)(?:\.\w+)+", v):
                    strings.append(f"dotted string: {self.path}:{n.lineno}: {m}")

for mod, f in sorted(mods.items()):
    if not path_of[mod].endswith(".py"): continue
    path = path_of[mod]
    src = (ROOT / path).read_bytes()
    w = Walk(mod, path, src)
    w.visit(ast.parse(src))
    for local, fulls in w.bound_to.items():
        if len(fulls) > 1 and any(new_name(f) for f in fulls): problems.append(f"two things of one name in {path}: {local}: {fulls}")

# class of one name twice after the renaming (top-level classes)
names = collections.defaultdict(set)
for i in infos:
    if i.fullname.startswith("sparkctl."):
        names[new_name(i.fullname) or i.name].add(i.fullname)
for k, v in sorted(names.items()):
    if len(v) > 1 and any(x in syms for x in v): problems.append(f"class name twice: {k}: {', '.join(sorted(v))}")

print(f"{len(syms)} symbols, {len(files)} files, {sum(map(len, edits.values()))} edits in {len(edits)} files; {len(problems)} problems; {len(strings)} strings")
for p in sorted(set(problems)): print("!", p)
for s in sorted(set(strings)): print("?", s)
if APPLY:
    for path, es in edits.items():
        data = (ROOT / path).read_bytes()
        lines = data.split(b"\n")
        starts = [0]
        for l in lines: starts.append(starts[-1] + len(l) + 1)
        spans = []
        for line, col, length, new in es:
            s = starts[line - 1] + col
            e = starts[length[1] - 1] + length[2] if isinstance(length, tuple) else s + length
            spans.append((s, e, new.encode()))
        for s, e, new in sorted(spans, reverse=True):
            data = data[:s] + new + data[e:]
        (ROOT / path).write_bytes(data)
    # moves
    for old, new in files.items():
        (ROOT / new).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "mv", old, new], check=True)
    for d in {p for new in files.values() for p in pathlib.Path(new).parents if str(p) not in (".",)}:
        init = ROOT / d / "__init__.py"
        if d.parts[0] == "sparkctl" and not init.exists():
            init.write_text(f'"""{d.name}."""\n'); subprocess.run(["git", "add", str(init)], check=True)
    # dotted module names and paths in text; import statements are rewritten already
    def dotted(m):
        parts = m[0].split(".")
        for k in range(len(parts), 1, -1):
            head = ".".join(parts[:k])
            if head in mods:
                return ".".join([modmap.get(head, head), *parts[k:]])
        return m[0]
    ppairs = dict(files)
    ppat = re.compile(r"(?<![\w/])(" + "|".join(re.escape(a) for a in sorted(ppairs, key=len, reverse=True)) + r")(?![\w])") if ppairs else None
    out = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.split()
    for f in out:
        if not re.search(r"\.(py|toml|md|sh|cfg|yaml|txt)$|^\.ci/|^tests/(run|prepare)$", f) or f == "CHANGELOG.md": continue
        t = (ROOT / f).read_text()
        rows = t.split("\n")
        for i, r in enumerate(rows):
            if f.endswith(".py") and re.match(r"\s*(from|import) (sparkctl|tests)[ .]", r): continue
            rows[i] = re.sub(r"(?<![\w.])(?:sparkctl|tests)(?:\.\w+)+", dotted, r)
        u = "\n".join(rows)
        u = ppat.sub(lambda m: ppairs[m[1]], u) if ppat else u
        if u != t: (ROOT / f).write_text(u)
