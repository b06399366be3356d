# The part of tests/rdma/guest that runs in the guest, sourced by the job it writes: makes the RDMA devices, runs the
# command and reports its exit code. Sourced with devices, loss, rw and command set.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
job=/run/job

# port NAME: the device of this virtio-serial port, as soon as it can be opened.
port() {
  local name
  while true; do
    for name in /sys/class/virtio-ports/*/name; do
      if [[ $(<"$name") == "$1" ]]; then
        basename "$(dirname "$name")"
        return
      fi
    done 2>/dev/null
    sleep 0.02
  done
}

# add_device NAME INTERFACE: a soft-RoCE device on an interface that is up, with its GIDs.
add_device() {
  rdma link add "$1" type rxe netdev "$2" || return
  # The table of GIDs fills by and by: 0 is the link-local one, 1 the IPv4 address's.
  until cat "/sys/class/infiniband/$1/ports/1/gid_attrs/ndevs/1" &>/dev/null; do sleep 0.05; done
}

make_one() {
  ip link add rdma0 mtu 9000 type dummy && ip address add 10.99.0.1/24 dev rdma0 && ip link set rdma0 up &&
    add_device rxe0 rdma0
}

# Both ends of the cable are in one network namespace, where the kernel would deliver to its own address without it: rules
# that come before the table of local addresses send what goes from one end to the other into the cable. Each end knows the
# other's hardware address: to connect a queue pair fails when the question for it is lost.
make_pair() {
  ip link add rdma0 mtu 4500 type veth peer name rdma1 mtu 4500 || return
  local end setting
  for end in 0 1; do
    ip address add "10.99.0.$((end + 1))/24" dev "rdma$end" && ip link set "rdma$end" up || return
  done
  for setting in rp_filter=0 accept_local=1 arp_ignore=1; do
    for end in all rdma0 rdma1; do echo "${setting#*=}" >"/proc/sys/net/ipv4/conf/$end/${setting%=*}" || return; done
  done
  ip rule add pref 100 lookup local && ip rule delete pref 0 || return
  for end in 0 1; do
    local own=10.99.0.$((end + 1)) other=10.99.0.$((2 - end)) table=$((101 + end))
    ip rule add pref 1 from "$own" to "$other" iif lo lookup "$table" &&
      ip route add "$other" dev "rdma$end" src "$own" table "$table" &&
      ip neighbour add "$other" dev "rdma$end" lladdr "$(<"/sys/class/net/rdma$((1 - end))/address")" nud permanent &&
      add_device "rxe$end" "rdma$end" || return
    [[ -z $loss ]] || tc qdisc add dev "rdma$end" root netem loss "$loss" || return
  done
}

share_writable() {
  local number
  for number in "${!rw[@]}"; do
    mkdir -p "${rw[number]}" &&
      mount -t 9p -o trans=virtio,version=9p2000.L,cache=mmap "rw$number" "${rw[number]}" || return
  done
}

# Pipes, not the ports themselves: a port can be opened only once, and commands open /dev/stdout.
exec 3> >(exec cat >"/dev/$(port stdout)")
readers=$!
exec 4> >(exec 3>&- && exec cat >"/dev/$(port stderr)")
readers+=" $!"

ip link set lo up
if make_"$devices" && share_writable; then
  : >"$job/started"
  "${command[@]}" </dev/null >&3 2>&4 3>&- 4>&-
  code=$?
  echo "$code" >"$job/code.partial" && mv "$job/code.partial" "$job/code"
fi
exec 3>&- 4>&-
# What the command left running may keep the pipes open: it is not waited for.
for ((tenths = 0; tenths < 30; ++tenths)); do
  kill -0 $readers 2>/dev/null || break
  sleep 0.1
done
