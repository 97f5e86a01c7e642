# sparkctl setup 1
# Runs on the Spark as root, from the stdin of a shell: these functions first, then the calls, with each file's text in them (base64).
# The shell begins after the first line above: a password before it that sudo did not read is no command.
# What was there before is kept below $state, with what was written; a file is put in place whole, by a rename.
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
umask 022
state=/var/lib/sparkctl/setup
cable=/run/sparkctl-cable
echo "@@ setup"
fail() { echo "@@ failed $*"; exit 1; }
as_user() { # files of the node's own user, without root: what was there is kept in the user's home
  umask 077
  state=${XDG_STATE_HOME:-$HOME/.local/state}/sparkctl/setup
  echo "@@ state $state"
}
sum_of() {
  if [ -L "$1" ]; then echo other
  elif [ -f "$1" ]; then sha256sum <"$1" | cut -d ' ' -f 1
  elif [ -e "$1" ]; then echo other
  else echo none; fi
}
show() { # PATH...: what is there now
  for path in "$@"; do
    sum=$(sum_of "$path")
    echo "@@ file $path $sum"
    case $sum in none | other) ;; *) base64 <"$path" ;; esac
  done
}
records() { # what was written here, what was there before, and what is there now
  find "$state/written" -type f ! -name '*.new' 2>/dev/null | sort | while read -r record; do
    path=${record#"$state/written"}
    echo "@@ record $path"
    show "$path" "$state/written$path" "$state/before$path"
  done
  for record in "$state"/groups/*; do [ -e "$record" ] && echo "@@ group ${record##*/}"; done
  if [ -e "$state/key" ]; then echo "@@ made-key $HOME/.ssh/id_ed25519.pub"; show "$HOME/.ssh/id_ed25519.pub"; fi
}
show_ssh() { # what a login from here, and to here, rests on: files, a key without a passphrase, the keys of this host
  echo "@@ home $HOME"
  if [ -L "$HOME/.ssh" ] || { [ -e "$HOME/.ssh" ] && ! [ -d "$HOME/.ssh" ]; }; then fail "$HOME/.ssh is no plain directory, so sparkctl does not touch it"; fi
  command -v ssh-keygen >/dev/null && command -v ssh >/dev/null || fail "there is no ssh here: sudo apt install openssh-client"
  show "$HOME/.ssh/authorized_keys" "$HOME/.ssh/known_hosts"
  file=$HOME/.ssh/id_ed25519 # a private key: only whether it is there
  if [ -e "$file" ] || [ -L "$file" ]; then echo "@@ file $file other"; else echo "@@ file $file none"; fi
  for kind in ed25519 ecdsa rsa; do
    public=$(ssh-keygen -y -P '' -f "$HOME/.ssh/id_$kind" 2>/dev/null </dev/null) && echo "@@ public $public" && break
  done
  for kind in ed25519 ecdsa rsa; do
    file=/etc/ssh/ssh_host_${kind}_key.pub
    if [ -r "$file" ]; then echo "@@ host $(head -n 1 "$file")"; break; fi
  done
}
make_ssh_directory() {
  [ -d "$HOME/.ssh" ] || { mkdir -p "$state" && : >"$state/made-ssh" && mkdir -m 700 "$HOME/.ssh"; } || fail "$HOME/.ssh cannot be made"
}
make_key() { # COMMENT: a key pair whose private part never leaves this node
  for file in "$HOME/.ssh/id_ed25519" "$HOME/.ssh/id_ed25519.pub"; do
    if [ -e "$file" ] || [ -L "$file" ]; then echo "@@ changed $file"; exit 3; fi
  done
  make_ssh_directory
  mkdir -p "$state" && : >"$state/key" || fail "$state cannot be written"
  said=$(ssh-keygen -q -t ed25519 -N '' -C "$1" -f "$HOME/.ssh/id_ed25519" 2>&1 </dev/null) || { rm -f "$state/key"; fail "ssh-keygen: $said"; }
  sum_of "$HOME/.ssh/id_ed25519.pub" >"$state/key"
  echo "@@ public $(cat "$HOME/.ssh/id_ed25519.pub")"
}
remove_key() { # the one that make_key made, and nobody else's
  if [ "$(sum_of "$HOME/.ssh/id_ed25519.pub")" = "$(cat "$state/key")" ]; then rm -f "$HOME/.ssh/id_ed25519" "$HOME/.ssh/id_ed25519.pub"; fi
}
remember() { # PATH NEW: keep what is there, unless that is what we wrote ourselves
  mkdir -p "$state/written${1%/*}" "$state/before${1%/*}" && chmod 700 "$state/before" || fail "$state cannot be written"
  if ! [ -e "$state/written$1" ]; then
    rm -f "$state/before$1"
    if [ -e "$1" ]; then cp -p "$1" "$state/before$1" || fail "$1 cannot be kept"; fi
  fi
  case $1 in /etc/sudoers.d/*) mode=600 ;; *) mode=644 ;; esac # the owner reads the others at the next look, without sudo
  cp "$2" "$state/written$1.new" && chmod "$mode" "$state/written$1.new" && mv -f "$state/written$1.new" "$state/written$1" ||
    fail "$state cannot be written"
}
put() { # PATH MODE SUM: stdin becomes the file, if what is there now has this sum
  [ -d "${1%/*}" ] || fail "${1%/*} is not there"
  new=$(mktemp "${1%/*}/.sparkctl.XXXXXX") || fail "${1%/*} cannot be written"
  if ! { base64 -d >"$new" && chmod "$2" "$new"; }; then rm -f "$new"; fail "$1 cannot be written"; fi
  case $1 in
    /etc/sudoers.d/*)
      if ! said=$(visudo -c -f "$new" 2>&1); then rm -f "$new"; fail "visudo refuses the line: $(echo "$said" | head -n 1)"; fi ;;
  esac
  if [ "$(sum_of "$1")" != "$3" ]; then rm -f "$new"; echo "@@ changed $1"; exit 3; fi
  case $1 in /etc/netplan/*) if [ -d "$cable/decided" ]; then rm -f "$new"; fail "the cable went back already"; fi ;; esac
  remember "$1" "$new"
  mv -f "$new" "$1" || fail "$1 cannot be written"
  sync
  echo "@@ done $1"
}
restore() { # PATH BEFORE: put back the file that was kept, with its owner, mode and times
  if [ -e "$2" ]; then
    new=$(mktemp "${1%/*}/.sparkctl.XXXXXX") && cp -p "$2" "$new" && mv -f "$new" "$1"
  else
    rm -f "$1"
  fi
}
join_group() { # GROUP USER
  getent group "$1" >/dev/null || fail "there is no group $1"
  if is_member "$1" "$2"; then echo "@@ done group"; return; fi # who was in it before us stays in it after an undo
  mkdir -p "$state/groups" && : >"$state/groups/$1:$2" || fail "$state cannot be written"
  said=$(usermod -aG "$1" "$2" 2>&1) || { rm -f "$state/groups/$1:$2"; fail "usermod: $said"; }
  echo "@@ done group"
}
is_member() { # GROUP USER
  case ",$(getent group "$1" | cut -d : -f 4)," in *",$2,"*) return 0 ;; *) return 1 ;; esac
}
lanes_back() { # FILE, with "INTERFACE MTU ADDRESS..." in each line: what netplan does not give back by itself
  while read -r name mtu addresses; do
    for now in $(ip -o -4 addr show dev "$name" scope global | awk '{print $4}'); do
      case " $addresses " in *" $now "*) ;; *) ip addr del "$now" dev "$name" ;; esac
    done
    ip link set "$name" mtu "$mtu"
    for address in $addresses; do ip addr replace "$address" dev "$name"; done
  done <"$1"
}
cable_back() { # PATH: the way back, once: whoever makes the folder decides
  mkdir "$cable/decided" 2>/dev/null || return 1
  restore "$1" "$cable/before"
  if [ -e "$cable/written" ]; then cp -p "$cable/written" "$state/written$1"; else rm -f "$state/written$1" "$state/before$1"; fi
  if [ -e "$cable/first" ]; then rm -f "$state/lanes"; fi
  netplan apply
  lanes_back "$cable/lanes"
  : >"$cable/is-back"
}
go_back_after() { # SECONDS PATH: unless this set-up ended, and another one is under way
  sleep "$1"
  if [ "$(cat "$cable/pid")" = $$ ]; then cable_back "$2"; fi
}
arm_cable() { # PATH LANE...: stdin becomes the program that goes back by itself after a while, unless somebody confirms
  path=$1
  shift
  if [ -d "$cable" ] && ! [ -d "$cable/decided" ] && kill -0 "$(cat "$cable/pid")" 2>/dev/null; then
    fail "another set-up of the cable is under way here"
  fi
  command -v netplan >/dev/null || fail "there is no netplan here"
  rm -rf "$cable"
  mkdir -m 700 "$cable" && printf '%s\n' "$@" >"$cable/lanes" && base64 -d >"$cable/way-back.sh" || fail "$cable cannot be written"
  if [ -e "$path" ]; then cp -p "$path" "$cable/before" || fail "$path cannot be kept"; fi
  if [ -e "$state/written$path" ]; then cp -p "$state/written$path" "$cable/written"; fi
  setsid sh "$cable/way-back.sh" </dev/null >"$cable/log" 2>&1 & # in a session of its own, which no lost connection ends
  echo $! >"$cable/pid"
}
apply_cable() { # PATH
  said=$(netplan generate 2>&1 && netplan apply 2>&1) || { cable_back "$1" >/dev/null 2>&1; fail "netplan refuses it: $(echo "$said" | tail -n 3 | tr '\n' ' ')"; }
  echo "@@ applied"
}
confirm_cable() {
  if ! mkdir "$cable/decided" 2>/dev/null; then echo "@@ late"; exit 3; fi
  : >"$cable/confirmed"
  [ -e "$state/lanes" ] || { : >"$cable/first"; cp "$cable/lanes" "$state/lanes"; }
  echo "@@ confirmed"
}
give_cable_back() { # PATH: also where this end is confirmed already, and the other is not
  if mv "$cable/confirmed" "$cable/withdrawn" 2>/dev/null; then rmdir "$cable/decided"; fi
  cable_back "$1" >/dev/null 2>&1
  tries=0
  until [ -e "$cable/is-back" ] || [ $tries -gt 50 ]; do sleep 0.2; tries=$((tries + 1)); done
  if [ -e "$cable/is-back" ]; then echo "@@ back"; fi
}
rebase() { # PATH SUM: stdin is what an undo puts back, in place of what was there before: others added lines since
  if [ "$(sum_of "$1")" != "$2" ]; then echo "@@ changed $1"; exit 3; fi
  cp -p "$1" "$state/before$1" && base64 -d >"$state/before$1" || fail "$state cannot be written"
}
undo() { # [PATH SUM ...]: give everything back, if each file still has the sum that was shown
  [ $# -eq 0 ] || printf '%s %s\n' "$@" | while read -r path sum; do
    if [ "$(sum_of "$path")" != "$sum" ]; then echo "@@ changed $path"; exit 3; fi
  done || exit
  failed= netplan=
  for path in "$@"; do
    case $path in /*) ;; *) continue ;; esac # a sum
    restore "$path" "$state/before$path" || fail "$path cannot be put back"
    case $path in
      /etc/netplan/*) netplan="$netplan $path" ;;
      *) rm -f "$state/written$path" "$state/before$path" ;;
    esac
    echo "@@ done $path"
  done
  if [ -n "$netplan" ]; then
    said=$(netplan apply 2>&1) || failed="netplan apply: $(echo "$said" | tail -n 1)"
    if [ -e "$state/lanes" ]; then lanes_back "$state/lanes" >/dev/null 2>&1; fi
    if [ -z "$failed" ]; then for path in $netplan; do rm -f "$state/written$path" "$state/before$path"; done; fi
  fi
  for record in "$state"/groups/*; do
    [ -e "$record" ] || continue
    name=${record##*/}
    if ! is_member "${name%%:*}" "${name#*:}" || said=$(gpasswd -d "${name#*:}" "${name%%:*}" 2>&1); then
      rm -f "$record"
    else
      failed="${failed:+$failed; }gpasswd: $said"
    fi
  done
  sync
  # What could not be undone stays on record, so that the next undo finds it.
  [ -z "$failed" ] || fail "$failed (the rest is undone)"
  if [ -e "$state/key" ]; then remove_key; fi
  if [ -e "$state/made-ssh" ]; then rmdir "$HOME/.ssh" 2>/dev/null; fi
  rm -rf "$state"
}
