import re,sys,pathlib,subprocess,collections
root=pathlib.Path(sys.argv[1]); gl=sys.argv[2:]
sym={}
for g in gl:
    for l in open(g):
        p=l.rstrip('\n').split('\t')
        if p[0]=='sym': sym[p[1]]=p[2]
tui={o.rsplit('.',1)[1]:n for o,n in sym.items() if o.startswith('sparkctl.tui.') and re.fullmatch(r'sparkctl\.tui\.\w+\.[A-Z_]\w*',o)and not o.rsplit('.',1)[1].isupper()}
for f in (root/'sparkctl/tui').rglob('*.py'):
    t=f.read_text()
    def css(m):
        body=m[2]
        for o,n in tui.items(): body=re.sub(rf'(?<![\w.#$-]){o}(?![\w-])',n,body)
        return m[1]+body+m[3]
    u=re.sub(r'(CSS = """)(.*?)(""")',css,t,flags=re.S)
    if u!=t: f.write_text(u); print('css',f)
bymod=collections.defaultdict(dict)
for o,n in sym.items():
    m,s=o.rsplit('.',1); bymod[m][s]=n
files=[x for x in subprocess.run(['git','-C',str(root),'ls-files'],capture_output=True,text=True).stdout.split() if re.search(r'\.(py|sh|toml|md)$|^\.ci/',x) and x!='CHANGELOG.md']
full=re.compile(r'sparkctl(?:\.\w+)+')
for x in files:
    f=root/x; t=f.read_text()
    def imp(m):
        names=bymod.get(m[1],{})
        return f"from {m[1]} import "+re.sub(r'\w+',lambda k:names.get(k[0],k[0]),m[2])
    u=re.sub(r"from (sparkctl[\w.]*) import ([\w, ]+)",imp,t) if x.startswith('tests') else t
    def dot(m):
        return m[0].rsplit('.',1)[0]+'.'+sym[m[0]] if m[0] in sym else m[0]
    u=full.sub(dot,u)
    # aliases within strings of tests: import sparkctl.engines as e -> e.names()
    if u!=t: f.write_text(u); print('text',x)
