# sparkctl look 1
# Runs on the Spark as `sh -s -- SECTION...`, from stdin, leaves nothing behind and changes nothing.
# A shell script, not a part of agent.py: `doctor` and `status` must answer where python3 is missing or too old (section health tells),
# and `down` where memory is so short that no interpreter starts. A verb reads /proc once here; the panel's samples are the agent's.
# Each section: a line "@@ NAME", what was read, and last of all "@@ end" (whatever a login shell printed before is skipped).
export LC_ALL=C PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
# Is a path there? "hidden": behind a folder that this user may not search, where Docker, as root, may well find it.
presence() {
  place=$1 steps=0
  if [ -e "$place" ]; then echo exists; return; fi
  while [ "$steps" -lt 200 ]; do
    steps=$((steps + 1))
    if [ -L "$place" ]; then
      target=$(readlink -- "$place")
      case $target in /*) place=$target ;; *) place=${place%/*}/$target ;; esac
    else
      place=${place%/*}; place=${place:-/}
    fi
    if [ -d "$place" ]; then
      if [ -x "$place" ]; then echo missing; else echo hidden; fi
      return
    fi
    if [ -e "$place" ]; then break; fi
  done
  echo missing
}
user=
first_line() { line=; { IFS= read -r line <"$1"; } 2>/dev/null; }
first_readable() { for f in "$@"; do [ -f "$f" ] && [ -r "$f" ] && echo "$f" && return; done; }
for section in "$@"; do
  argument=${section#*=}
  case $section in
    identity)
      echo "@@ identity"
      user=$(id -un)
      echo "user $user"; echo "home $HOME"; echo "time $(date +%s)"
      uname -nrm | { read -r host kernel machine; echo "host $host"; echo "kernel $kernel"; echo "machine $machine"; }
      first_line /sys/class/dmi/id/product_family; echo "product $line"
      first_line /proc/driver/nvidia/version # ... Kernel Module for aarch64  580.95.05  Release Build ...
      for word in ${line#*Module}; do case $word in [0-9]*.[0-9]*) echo "driver $word"; break ;; esac; done
      [ -r /etc/dgx-release ] && echo "os $(sed -n 's/^DGX_SWBUILD_VERSION=//p' /etc/dgx-release | tr -d '"')" ;;
    memory)
      echo "@@ memory"; cat /proc/meminfo; grep -s '^drop_' /proc/vmstat ;;
    processes)
      echo "@@ cgroups"; grep -s -o -E '[0-9a-f]{64}' /proc/[0-9]*/cgroup | sort -u
      echo "@@ resident"; grep -s -E '^Rss(Anon|Shmem):' /proc/[0-9]*/status ;;
    procs)
      # Whoever lives, with the first words of its command line: no line break in it, so no line here is anybody's but ours.
      echo "@@ procs"; grep -s '^btime' /proc/stat; cat /proc/[0-9]*/stat 2>/dev/null | cut -d ' ' -f 1-30
      echo "@@ commands"; grep -s -a -z -m 4 '' /proc/[0-9]*/cmdline | tr '\n\0' ' \n' | cut -c 1-200 ;;
    shm)
      echo "@@ shm"
      find /dev/shm -xdev -type f ! -name '*
*' -exec stat -c 'file %d %i %u %b %.W %n' {} + 2>/dev/null | head -n 2000
      grep -s -o -E '[0-9a-f]+:[0-9a-f]+ [0-9]+ +/dev/shm/.*' /proc/[0-9]*/maps | sort -u | head -n 5000
      find /proc/[0-9]*/fd -maxdepth 1 -lname '/dev/shm/*' -exec stat -L -c 'open %d %i %n' {} + 2>/dev/null | head -n 5000 ;;
    gpu)
      echo "@@ gpu"
      command -v nvidia-smi >/dev/null && timeout 5 nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader,nounits 2>/dev/null
      echo "status $?" ;;
    listen)
      # ss asks the kernel for what listens; to list all connections in /proc it walks through half a million places
      echo "@@ listen"; ss -Hltn 2>/dev/null || cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -E '^ *[0-9]+: [0-9A-F]+:[0-9A-F]{4} [0-9A-F]+:[0-9A-F]{4} 0A ' ;;
    downloads)
      # Downloads that run on the node itself, outside a container (see commands/pull/model_download.py), with what they said last.
      echo "@@ downloads"
      for d in /dev/shm/sparkctl-pull-*; do
        { [ -O "$d/pid" ] && grep -qF "$d/program.py" "/proc/$(cat "$d/pid")/cmdline"; } 2>/dev/null || continue
        echo "download ${d##*/} $(head -c 200 "$d/profile" 2>/dev/null | tr -d '\r\n')"
        { grep -m 1 '"total"' "$d/log"; tail -n 5 "$d/log"; } 2>/dev/null | grep '^{' | cut -c 1-300 | sed 's/^/said /'
      done ;;
    disk=*)
      echo "@@ disk $argument"; df -P -k -- "$argument" 2>&1 | tail -n 1 ;;
    path=*)
      echo "@@ path $argument"; presence "$argument" ;;
    model=*)
      # A model's directory, its place in Hugging Face's cache, or a GGUF file: sizes and config.json, bounded in time and length.
      echo "@@ model $argument"
      place=$argument
      if [ -d "$argument/snapshots" ]; then
        place=$argument/snapshots/$(cat "$argument/refs/main" 2>/dev/null)
        if [ ! -d "$place" ] || [ "$place" = "$argument/snapshots/" ]; then
          place=$argument/snapshots/$(ls -t "$argument/snapshots" 2>/dev/null | head -n 1)
        fi
        echo "unfinished $(ls "$argument/blobs" 2>/dev/null | grep -c '\.incomplete$')"
      fi
      if [ -d "$place" ]; then echo "there dir"; elif [ -f "$place" ]; then echo "there file"; elif [ -e "$place" ]; then echo "there other"
      elif ls -d "$place" 2>&1 | grep -q 'Permission denied'; then echo "there unknown"; else echo "there no"; fi
      if [ -d "$place" ]; then
        timeout 5 stat -L -c 'file %s %n' -- "$place"/*.safetensors "$place"/*.gguf "$place"/*.bin "$place"/*.pt 2>/dev/null | head -n 1000
        echo "total $(timeout 5 head -c 8000000 -- "$place"/*.safetensors.index.json 2>/dev/null | grep -o '"total_size": *[0-9]*' | head -n 1)"
        if [ -r "$place/tokenizer.json" ]; then echo "tokenizer yes"; elif [ -x "$place" ]; then echo "tokenizer no"; fi
        echo "config $(timeout 5 head -c 65536 -- "$place/config.json" 2>/dev/null | tr -d '\r\n')"
        # Whether tensors of draft layers are there, by their names in the index, else in the headers of the files.
        names=$(first_readable "$place"/*.safetensors.index.json); [ -n "$names" ] || names=$(first_readable "$place"/*.safetensors)
        case $names in
          *.index.json) timeout 5 head -c 16000000 -- "$names" ;;
          ?*) for f in "$place"/*.safetensors; do timeout 5 head -c 8000000 -- "$f"; done ;;
        esac 2>/dev/null | tr -cd '\040-\176' | { [ -z "$names" ] || if grep -q -i -E '"[^"]*(mtp|nextn|eh_proj)[^"]*" *: *["{]'; then echo "drafts yes"; else echo "drafts no"; fi; }
      elif [ -f "$place" ]; then
        timeout 5 stat -L -c 'file %s %n' -- "$place" "${place%-00001-of-*}"-0*-of-*.gguf 2>/dev/null | sort -u | head -n 1000
      fi ;;
    docker)
      echo "@@ docker"
      s=/var/run/docker.sock
      if [ -S $s ]; then echo "socket yes"; else echo "socket no"; fi
      if [ -r $s ] && [ -w $s ]; then echo "access yes"; else echo "access no"; fi
      echo "hook $(command -v nvidia-container-runtime-hook)"; echo "toolkit $(command -v nvidia-ctk)"
      for f in /etc/cdi/*nvidia* /var/run/cdi/*nvidia*; do [ -e "$f" ] && echo "cdi ${f##*/}" && break; done
      members=$(getent group docker); members=,${members##*:},
      case $members in *",${user:=$(id -un)},"*) echo "member yes" ;; *) echo "member no" ;; esac ;;
    sudo)
      echo "@@ sudo"
      if ! command -v sudo >/dev/null; then echo "drop none"
      # tried with nothing to write, which drops nothing: `sudo -l` also lists what wants a password
      elif sudo -k -n /usr/bin/tee /proc/sys/vm/drop_caches </dev/null >/dev/null 2>&1; then echo "drop allowed"
      else echo "drop denied"; fi ;;
    fabric)
      echo "@@ fabric"
      if [ -d /dev/infiniband ]; then echo "devices yes"; else echo "devices no"; fi
      for d in /sys/class/net/*; do
        [ "$(cat "$d/carrier" 2>/dev/null)" = 1 ] && echo "link ${d##*/} $(cat "$d/mtu" 2>/dev/null || echo -) $(cat "$d/speed" 2>/dev/null || echo -)"
      done
      ip -o -4 addr show 2>/dev/null | awk '{print "address", $2, $4}'
      for d in /sys/class/infiniband/*; do
        [ -d "$d" ] || continue
        for n in "$d"/device/net/*; do [ -e "$n" ] && echo "device ${d##*/} ${n##*/}"; done
        i=0
        while [ $i -lt 8 ]; do
          t=$(cat "$d/ports/1/gid_attrs/types/$i" 2>/dev/null)
          [ "$t" = "RoCE v2" ] && echo "gid ${d##*/} $i $(cat "$d/ports/1/gids/$i" 2>/dev/null)"
          i=$((i + 1))
        done
      done ;;
    network)
      # Every interface with its addresses and routes, for `setup`; and what `setup` wrote here before.
      echo "@@ network"
      echo "addresses $(ip -j addr show 2>/dev/null | tr -d '\r\n')"
      echo "routes $(ip -j -4 route show 2>/dev/null | tr -d '\r\n')"
      for d in /sys/class/infiniband/*/device/net/*; do
        [ -e "$d" ] && n=${d#/sys/class/infiniband/} && echo "device ${n%%/*} ${d##*/}"
      done ;;
    setup)
      echo "@@ setup"
      echo "group $(getent group docker)"
      if command -v netplan >/dev/null; then echo "netplan yes"; else echo "netplan no"; fi
      if [ -d /var/lib/sparkctl/setup ]; then echo "state yes"; else echo "state no"; fi
      if [ -d "${XDG_STATE_HOME:-$HOME/.local/state}/sparkctl/setup" ]; then echo "own yes"; else echo "own no"; fi
      for f in /var/lib/sparkctl/setup/written/etc/*/*; do
        [ -f "$f" ] && echo "written ${f#/var/lib/sparkctl/setup/written} $(head -c 65536 "$f" | base64 | tr -d '\n')"
      done ;;
    journal)
      # The journal of a switch, and whether anybody holds the lock of this node, which is on /run (see commands/node_lock.py): it is
      # tried, shared and for an instant, which whoever wants it outwaits. /proc/locks tells of that of an older sparkctl.
      echo "@@ journal"
      d=${XDG_STATE_HOME:-$HOME/.local/state}/sparkctl; f=$d/switch.json; l=/tmp/sparkctl.lock
      if [ -d "$d" ] && ! [ -x "$d" ]; then echo "file foreign"
      elif [ -L "$f" ] || { [ -e "$f" ] && { ! [ -f "$f" ] || ! [ -O "$f" ]; }; }; then echo "file foreign"
      elif [ -e "$f" ]; then echo "file ours"; printf 'text %s\n' "$(head -c 65536 -- "$f" | tr -d '\r\n')"
      else echo "file none"; fi
      flock -s -n 8 2>/dev/null 8</run
      h=$?; i=$(stat -c %i "$l" 2>/dev/null)
      if [ $h = 1 ]; then echo "held yes"
      elif [ -n "$i" ] && grep -q "FLOCK.*:$i 0 EOF" /proc/locks; then echo "held yes"; else echo "held no"; fi ;;
    health)
      echo "@@ health"
      echo "python $(python3 -V 2>&1 | sed -n 's/^Python //p')"
      echo "earlyoom $(ps -eo args= 2>/dev/null | grep '[e]arlyoom' | head -n 1)"
      echo "swappiness $(cat /proc/sys/vm/swappiness 2>/dev/null)"
      echo "min_free_kbytes $(cat /proc/sys/vm/min_free_kbytes 2>/dev/null)" ;;
  esac
done
echo "@@ end"
