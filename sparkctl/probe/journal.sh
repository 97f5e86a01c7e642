# sparkctl journal 1
# Runs on the Spark as `sh -s -- write TEXT` or `sh -s -- remove`, from stdin: the journal of a switch, whole or not at all.
umask 077
d=${XDG_STATE_HOME:-$HOME/.local/state}/sparkctl
f=$d/switch.json
if [ -L "$f" ] || { [ -e "$f" ] && ! [ -O "$f" ]; }; then echo "$f belongs to another user" >&2; exit 1; fi
case $1 in
  write)
    mkdir -p -- "$d" || exit 1
    t=$(mktemp "$d/.switch.XXXXXX") || exit 1
    if printf '%s\n' "$2" >"$t" && sync -- "$t" && mv -f -- "$t" "$f"; then sync -- "$d"; echo "@@ written"
    else rm -f -- "$t"; exit 1; fi ;;
  remove)
    rm -f -- "$f" && echo "@@ removed" ;;
esac
