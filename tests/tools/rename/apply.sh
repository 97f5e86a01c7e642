#!/bin/bash
HERE=$(dirname "$(readlink -f "$0")")
# apply.sh TREE GLOSSARY...: apply, format
set -e
LOG=$(mktemp)
cd $1; shift
.venv/bin/python $HERE/bulk_rename.py $PWD "$@" --apply > $LOG 2>&1 || { tail -5 $LOG; exit 1; }
grep -v '^[?]' $LOG | grep -v 'unresolved\|keyword of an' | tail -n +2 | cut -c1-250
.venv/bin/ruff check --fix -q --select I,F401 . || true
.venv/bin/ruff format -q . || true
.venv/bin/ruff check --statistics . | tail -12 || true
.venv/bin/mypy 2>&1 | tail -60
