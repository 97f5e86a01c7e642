cd $1
git rm -q -f --ignore-unmatch sparkctl/core/__init__.py sparkctl/operations/following/__init__.py
python3 - <<'P'
import re,pathlib
p=pathlib.Path('pyproject.toml'); t=p.read_text()
t=t.replace('"sparkctl/sim/*_script*.py"','"sparkctl/engines/*/simulated_*.py"').replace('"sparkctl/sim/*_lines.py"','"sparkctl/engines/simulation/*.py"')
p.write_text(t)
P
for i in 1 2; do
python3 - <<'P'
import json,subprocess,collections,pathlib,re
out=json.loads(subprocess.run(['.venv/bin/ruff','check','.','--select','E501','--output-format','json'],capture_output=True,text=True).stdout)
by=collections.defaultdict(list)
for o in out: by[o['filename']].append(o['location']['row'])
for f,rows in by.items():
    L=pathlib.Path(f).read_text().split('\n')
    for r in rows:
        for i in range(r-1,min(r+40,len(L))):
            if '# fmt: skip' in L[i]: L[i]=re.sub(r'\s*# fmt: skip','',L[i]); break
    pathlib.Path(f).write_text('\n'.join(L))
P
.venv/bin/ruff format -q .
done
.venv/bin/ruff check -q --fix --unsafe-fixes --select I,RUF022 .
.venv/bin/ruff format -q .
.venv/bin/ruff check . --output-format concise | tail -30
.venv/bin/mypy | tail -20
