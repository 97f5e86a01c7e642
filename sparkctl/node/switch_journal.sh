# sparkctl journal 1
# Runs on the Spark as `sh -s -- write TEXT [LAST...]` or `sh -s -- remove [LAST...]`, from stdin: the journal of a switch, whole
# or not at all. With LAST only where it says one of these now; "" is that none lies there.
umask 077
d=${XDG_STATE_HOME:-$HOME/.local/state}/sparkctl
f=$d/switch.json
if [ -L "$f" ] || { [ -e "$f" ] && ! [ -O "$f" ]; }; then echo "$f belongs to another user" >&2; exit 1; fi
verb=$1; shift
if [ "$verb" = write ]; then text=$1; shift; fi

known() {
  [ $# -gt 0 ] || return 0
  now=
  if [ -e "$f" ]; then now=$(head -c 65536 -- "$f") || exit 1; fi
  for last in "$@"; do if [ "$now" = "$last" ]; then return 0; fi; done
  echo "@@ other"
  return 1
}

known "$@" || exit 0
case $verb in
  write)
    mkdir -p -- "$d" || exit 1
    t=$(mktemp "$d/.switch.XXXXXX") || exit 1
    if ! { printf '%s\n' "$text" >"$t" && sync -- "$t"; }; then rm -f -- "$t"; exit 1; fi
    # A disk can keep that waiting for long, and whoever waited may have been given up meanwhile.
    if ! known "$@"; then rm -f -- "$t"; exit 0; fi
    if mv -f -- "$t" "$f"; then sync -- "$d"; echo "@@ written"
    else rm -f -- "$t"; exit 1; fi ;;
  remove)
    rm -f -- "$f" && echo "@@ removed" ;;
esac
