#!/busybox sh
# The first process of the guest that tests/rdma/guest boots: loads the modules, lays a file system in memory over the
# host's, which is shared read-only, and has guest_session.sh do the rest there.
for name in mount mkdir ln insmod chroot poweroff sync; do alias $name="/busybox $name"; done
share=trans=virtio,version=9p2000.L,msize=512000

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do
  insmod "/modules/$module" || echo "tests/rdma/guest: cannot load $module"
done </modules/order

mount -t 9p -o $share,cache=loose,ro root /lower
mount -t tmpfs tmpfs /upper
mkdir /upper/files /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work overlay /root
for folder in proc sys dev; do
  mkdir -p /root/$folder
  mount --move /$folder /root/$folder
done

cd /root
ln -s /proc/self/fd dev/fd
ln -s fd/0 dev/stdin
ln -s fd/1 dev/stdout
ln -s fd/2 dev/stderr
mkdir -p dev/pts dev/shm run
mount -t devpts devpts dev/pts
mount -t tmpfs tmpfs dev/shm
mount -t tmpfs tmpfs run
mkdir run/job
mount -t 9p -o $share job run/job
chroot /root /bin/bash /run/job/session
sync
poweroff -f
