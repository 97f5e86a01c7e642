#!/bin/bash
HERE=$(dirname "$(readlink -f "$0")")
# replay.sh TREE: whole renaming on a clean tree
T=$1; cd $T || exit 1
$HERE/apply.sh $T $HERE/symbols.tsv | grep -v 'no such symbol'
python3 $HERE/post.py $T $HERE/symbols.tsv | grep -v '^css'; bash $HERE/post.sh $T; bash $HERE/premove.sh $T
git add -A; git commit -qm "Names of the field: classes, functions and constants"
$HERE/apply.sh $T $HERE/files.tsv | tail -5
bash $HERE/postmove.sh $T
