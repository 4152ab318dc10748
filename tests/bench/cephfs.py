"""The manager's commands as 16 callers send them, without cephlet: `cephfs.py CALLERS NAME…` makes subvolumes of these names in the
group `bare`, and prints the seconds that it took. CEPH_CONF names the cluster's configuration with client.admin's key."""
import json, os, queue, sys, threading, time

import rados

cluster = rados.Rados(conffile=os.environ["CEPH_CONF"], name="client.admin")
cluster.connect()


def order(prefix, **arguments):
    status, _, said = cluster.mgr_command(json.dumps({"prefix": prefix, "vol_name": "cephfs", **arguments}), b"")
    if status != 0:
        sys.exit(f"{prefix}: {said}")


def go_on():
    while True:
        try:
            name = names.get_nowait()
        except queue.Empty:
            return
        order("fs subvolume create", sub_name=name, group_name="bare", size=1 << 30)


names = queue.Queue()
order("fs subvolumegroup create", group_name="bare")
for name in sys.argv[2:]:
    names.put(name)
callers = [threading.Thread(target=go_on) for _ in range(int(sys.argv[1]))]
begun = time.monotonic()
for caller in callers:
    caller.start()
for caller in callers:
    caller.join()
print(time.monotonic() - begun)
