# sparkctl peer-login 1
# Runs on the Spark as its user, from the stdin of `sh -s`: these functions first, then one call. What was changed is on record
# in $state, so that it can be taken back.
export LC_ALL=C
umask 077
state=${XDG_STATE_HOME:-$HOME/.local/state}/sparkctl/peer-login
list=$HOME/.ssh/authorized_keys
echo "@@ peer-login"
fail() { echo "@@ failed $*"; exit 1; }
sum_of() { if [ -f "$1" ]; then sha256sum <"$1" | cut -d ' ' -f 1; elif [ -e "$1" ]; then echo other; else echo none; fi; }
show() {
  for name in id_ed25519 id_ecdsa id_rsa; do # in the order in which a Spark's ssh tries them, the newest first
    [ -f "$HOME/.ssh/$name" ] || continue
    if public=$(ssh-keygen -y -P '' -f "$HOME/.ssh/$name" 2>/dev/null); then echo "@@ key $public"; break; fi
    echo "@@ locked $HOME/.ssh/$name"
  done
  echo "@@ list $list $(sum_of "$list")"
  if [ -f "$list" ]; then base64 <"$list"; fi
  if [ -d "$state" ]; then echo "@@ record"; fi
}
make_key() { # COMMENT: a key without a passphrase, unless one of that name is there; prints the public half
  key=$HOME/.ssh/id_ed25519
  command -v ssh-keygen >/dev/null || fail "there is no ssh-keygen here (sudo apt install openssh-client)"
  if ! [ -e "$key" ]; then
    mkdir -p "$HOME/.ssh" "$state" || fail "$HOME/.ssh cannot be written"
    said=$(ssh-keygen -q -t ed25519 -N '' -C "$1" -f "$key" </dev/null 2>&1) || fail "ssh-keygen: $said"
    cp "$key.pub" "$state/made.pub" || fail "$state cannot be written"
  fi
  echo "@@ key $(ssh-keygen -y -P '' -f "$key" 2>/dev/null)"
}
admit() { # SUM LINE: one more line in authorized_keys, if it is as it was shown
  [ "$(sum_of "$list")" = "$1" ] || fail "$list changed after it was shown; it is as it was"
  mkdir -p "$HOME/.ssh" "$state" || fail "$HOME/.ssh cannot be written"
  if ! [ -e "$state/line" ]; then
    rm -f "$state/before"
    if [ -e "$list" ]; then cp -p "$list" "$state/before" || fail "$list cannot be kept"; fi
  fi
  new=$(mktemp "$HOME/.ssh/.sparkctl.XXXXXX") || fail "$HOME/.ssh cannot be written"
  if [ -e "$list" ]; then cp -p "$list" "$new"; fi
  if [ -s "$new" ] && [ -n "$(tail -c 1 "$new")" ]; then echo >>"$new"; fi
  printf '%s\n' "$2" >>"$new" && printf '%s\n' "$2" >>"$state/line" && sum_of "$new" >"$state/sum" && mv -f "$new" "$list" ||
    { rm -f "$new"; fail "$list cannot be written"; }
  echo "@@ done"
}
undo() { # byte for byte where nobody has changed the list since, else our lines alone
  [ -d "$state" ] || { echo "@@ done"; exit; }
  if [ -e "$state/line" ]; then
    if [ "$(sum_of "$list")" = "$(cat "$state/sum")" ]; then
      if [ -e "$state/before" ]; then cp -p "$state/before" "$list.sparkctl" && mv -f "$list.sparkctl" "$list"; else rm -f "$list"; fi ||
        fail "$list cannot be written"
    elif [ -f "$list" ]; then
      cp -p "$list" "$list.sparkctl" || fail "$list cannot be written"
      grep -vxF -f "$state/line" "$list" >"$list.sparkctl" # 1: no line is left
      mv -f "$list.sparkctl" "$list" || fail "$list cannot be written"
      echo "@@ warning $list has changed since; only the lines of the other Sparks were taken out"
    fi
  fi
  if [ -e "$state/made.pub" ] && cmp -s "$state/made.pub" "$HOME/.ssh/id_ed25519.pub"; then
    rm -f "$HOME/.ssh/id_ed25519" "$HOME/.ssh/id_ed25519.pub"
  fi
  rm -rf "$state"
  echo "@@ done"
}
