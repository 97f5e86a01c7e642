# sparkctl pings 1
# Runs on the Spark as `sh -s -- LANE...`, from stdin; leaves nothing behind, changes nothing, and ends within 5 s.
# LANE: "INTERFACE OWN-ADDRESS PEER-ADDRESS SIZE DEVICE", one argument; SIZE 0: no large packet; DEVICE -: no RDMA.
set -f
export LC_ALL=C PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
asked() { # INTERFACE OWN PEER SIZE: one answer is enough; the first packet may be lost to the search for the address
  large=
  [ "$4" != 0 ] && large="-M do -s $4"
  said=$(timeout 3 ping -n -c 1 -w 2 $large -I "$1" "$3" 2>&1)
  case $said in *BINDTODEVICE*) said=$(timeout 3 ping -n -c 1 -w 2 $large -I "$2" "$3" 2>&1) ;; esac
  printf '@@ ping %s %s %s\n%s\n' "$1" "$3" "$4" "$(printf '%s\n' "$said" | tail -n 5 | cut -c 1-200)"
  case $said in *" 0% packet loss"*) return ;; esac
  [ "$4" = 0 ] || return
  # a firewall may drop pings alone: whether its SSH port answers, with yes or no
  printf '@@ tcp %s %s\n%s\n' "$1" "$3" "$(timeout 3 python3 -ISc '
import errno, socket, sys
name, own, peer = sys.argv[1:]
with socket.socket() as s:
    s.settimeout(2)
    try:
        s.bind((own, 0))
        s.setsockopt(socket.SOL_SOCKET, 25, name.encode())  # SO_BINDTODEVICE
    except OSError:
        pass
    code = s.connect_ex((peer, 22))
print(errno.errorcode.get(code, code) if code else "OK")
' "$1" "$2" "$3" 2>/dev/null)"
}
for lane in "$@"; do
  set -- $lane
  printf '@@ link %s %s\n' "$1" "$(cat "/sys/class/net/$1/carrier" 2>/dev/null)"
  [ "$5" = - ] || printf '@@ rdma %s %s\n' "$5" "$(cat "/sys/class/infiniband/$5/ports/1/state" 2>/dev/null)"
  asked "$1" "$2" "$3" 0 &
  [ "$4" = 0 ] || asked "$1" "$2" "$3" "$4" &
done
wait
echo "@@ end"
