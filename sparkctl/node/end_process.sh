# sparkctl kill 1
# Runs on the Spark as `sh -s -- SIGNAL PID START NAME`, from stdin: signals the process of that number only while it is the one that
# was meant: the one that began START clock ticks after the boot, or, where that is not known (-), the one that is called NAME (-: any).
# Its answer is one line: "sent", "gone", "other NAME" or "refused WHY".
export LC_ALL=C
set -f
stat=$(cat "/proc/$2/stat" 2>/dev/null)
name=${stat#*\(} name=${name%\)*}
set -- "$1" "$2" "$3" "$4" ${stat##*\)}
[ "$#" -ge 24 ] || { echo gone; exit 0; }
if [ "$3" != - ]; then [ "$3" = "${24}" ]; else [ "$4" = - ] || [ "$4" = "$name" ]; fi || { printf 'other %s\n' "$name"; exit 0; }
if said=$(kill -s "$1" "$2" 2>&1); then echo sent; else printf 'refused %s\n' "$said"; fi
exit 0
