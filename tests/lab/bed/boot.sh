#!/bin/bash
# The first process of a lab node, in namespaces of its own (net, mount, uts, ipc, pid). It builds a throw-away root,
# the host's / below and a tmpfs above, moves into it and hands over to tini.
# usage: boot.sh DIR NAME DATA_SIZE      DIR/files is copied over the root, DIR/shared becomes /run/lab
set -euo pipefail
dir=$1 name=$2 size=$3
read -r host_pid _ </proc/self/stat # /proc is still the host's
hostname "$name"
mount --make-rprivate /
mount -t tmpfs -o size=1g,mode=755 tmpfs "$dir/mnt" # overlayfs wants its upper layer outside the lower one
mkdir "$dir"/mnt/{upper,work,root}
root=$dir/mnt/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$dir/mnt/upper,workdir=$dir/mnt/work" "$root"

mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount -t sysfs -o nosuid,nodev,noexec sysfs "$root/sys" # a fresh one shows this namespace's network cards ...
mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"      # ... and hides the cgroups, which dockerd needs
mount -t tmpfs -o mode=755,size=64k tmpfs "$root/dev"
mkdir "$root"/dev/{pts,shm,mqueue}
while read -r node major minor; do
  mknod -m 666 "$root/dev/$node" c "$major" "$minor"
done <<<'null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
tty 5 0'
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t mqueue mqueue "$root/dev/mqueue"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for n in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${n%:*}" "$root/dev/${n#*:}"; done
for d in run tmp root home mnt; do mount -t tmpfs -o mode=755 tmpfs "$root/$d"; done
chmod 1777 "$root/tmp"
chmod 700 "$root/root"

mkdir -p "$root"/run/{sshd,lock,lab,docker} "$root/var/lib/docker" "$root/mnt/old"
mount -t tmpfs -o "size=$size" tmpfs "$root/var/lib/docker"
mount --bind "$dir/shared" "$root/run/lab"
rm -rf "$root"/etc/motd "$root"/etc/update-motd.d # which PAM runs at every login
cp -a "$dir/files/." "$root/"

cd "$root"
pivot_root . mnt/old
umount -l /mnt/old
cd /
echo "$host_pid" >/run/lab/pid1
exec tini -s -- /bin/bash -c 'cd /usr/local/sbin; ./start-sshd; ./start-containerd; ./start-dockerd; exec sleep infinity'
