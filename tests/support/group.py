"""What tests do to a subvolume group from outside, as client.admin of the cluster whose configuration CEPH_CONF names.

    remove PATH     removes a directory of the file system
    fill PATH       writes files into a directory of the file system
    sum PATH        prints the SHA-256 of all that is in it
    age GROUP       makes the entries of what is being made older by a day; prints how many there are
    index GROUP     prints the keys of the entries of a group, with their states
    halves GROUP    prints the volumes whose subvolumes a manager has made only in part
    lose GROUP      takes pending clones from the manager's list, as one does that dies in `snapshot clone`
    hold GROUP      lets the manager keep all snapshots of a group, as one does that died when it ended a clone of each
    free GROUP      lets it keep none for clones that are not in its list any more; prints how many there were
    claims GROUP    prints the objects by which names are claimed for subvolumes of the group
"""
import hashlib, json, os, stat, sys

CONF = os.environ["CEPH_CONF"]
DAY = 24 * 60 * 60 + 60
INDEX = "cephlet.volumes"


def mounted():
    import cephfs
    tree = cephfs.LibCephFS(conffile=CONF, auth_id="admin")
    tree.mount(filesystem_name=b"cephfs")
    return tree


def pool():
    import rados
    cluster = rados.Rados(conffile=CONF, name="client.admin")
    cluster.connect()
    io = cluster.open_ioctx("fs-meta")
    io.set_namespace("cephlet")
    return io


def fill(path):
    tree = mounted()
    tree.mkdirs(f"{path}/directory".encode(), 0o755)
    for number, name in enumerate(["one", "two", "directory/three", "directory/four"]):
        file = tree.open(f"{path}/{name}".encode(), "w", 0o644)
        tree.write(file, bytes(at * at >> 3 & 255 for at in range(number * 70_001, (number + 1) * 70_001)), 0)
        tree.close(file)
    tree.shutdown()


def entries(tree, path):
    directory = tree.opendir(path)
    names = []
    while entry := tree.readdir(directory):
        names.append(entry.d_name)
    tree.closedir(directory)
    return sorted(name for name in names if name not in (b".", b".."))


def digest(tree, path, below, told):
    for name in entries(tree, path):
        found, shown = path + b"/" + name, below + b"/" + name
        status = tree.stat(found)
        told.update(shown + b"\n")
        if stat.S_ISDIR(status.st_mode):
            digest(tree, found, shown, told)
            continue
        file = tree.open(found, "r")
        told.update(b"%d\n" % status.st_size + tree.read(file, 0, status.st_size))
        tree.close(file)


def checksum(path):
    tree, told = mounted(), hashlib.sha256()
    digest(tree, path.encode(), b"", told)
    tree.shutdown()
    print(told.hexdigest())


def index(io):
    import rados
    with rados.ReadOpCtx() as op:
        rows, _ = io.get_omap_vals(op, "", "", 100_000)
        try:
            io.operate_read_op(op, INDEX)
        except rados.ObjectNotFound:
            return {}
        return {key: json.loads(value) for key, value in rows}


def age(group):
    import rados
    io = pool()
    made = {key: entry for key, entry in index(io).items() if key.startswith(f"{group}/") and entry["state"] == "making"}
    for key, entry in made.items():
        with rados.WriteOpCtx() as op:
            io.set_omap(op, (key,), (json.dumps({**entry, "since": entry["since"] - DAY}).encode(),))
            io.operate_write_op(op, INDEX)
    print(len(made))


def list_entries(group):
    for key, entry in index(pool()).items():
        if key.startswith(f"{group}/"):
            print(key, entry["state"])


def halves(group):
    tree = mounted()
    whole = [key for key, entry in index(pool()).items() if key.startswith(f"{group}/") and entry["state"] == "whole" and "@" not in key]
    for key in whole:
        # The manager writes this file last. Without it, it takes the directory for a subvolume of the old form.
        if b".meta" not in entries(tree, f"/volumes/{key}".encode()):
            print(key)
    tree.shutdown()


def lose(group):
    tree, queue = mounted(), b"/volumes/_index/clone/"
    targets = {one: tree.readlink(queue + one, 4096) for one in entries(tree, queue)}
    lost = [one for one, target in targets.items() if target.startswith(f"/volumes/{group}/".encode())]
    for one in lost:
        tree.unlink(queue + one)
    for path, content in metadata(tree, group):
        kept = [line for line in content.splitlines(True) if not line.startswith(tuple(lost))]
        write(tree, path + b"/.meta", b"".join(kept))
    tree.shutdown()
    print(len(lost))


def metadata(tree, group):
    for subvolume in entries(tree, f"/volumes/{group}".encode()):
        path = b"/volumes/%s/%s" % (group.encode(), subvolume)
        if b".meta" not in entries(tree, path):
            continue  # A manager that died has made only the directory.
        file = tree.open(path + b"/.meta", "r")
        yield path, tree.read(file, 0, 1 << 20)
        tree.close(file)


def write(tree, path, content):
    file = tree.open(path, os.O_WRONLY | os.O_TRUNC, 0o600)
    tree.write(file, content, 0)
    tree.close(file)


def hold(group):
    tree = mounted()
    for path, content in metadata(tree, group):
        held = b"".join(b"00000000-0000-0000-0000-%012d = %s\n" % pair for pair in enumerate(entries(tree, path + b"/.snap")))
        if held:
            write(tree, path + b"/.meta", content + b"\n[clone snaps]\n" + held)
    tree.shutdown()


def free(group):
    tree, count = mounted(), 0
    # The first clone of a file system makes the list.
    listed = entries(tree, b"/volumes/_index/clone") if b"_index" in entries(tree, b"/volumes") else []
    for path, content in metadata(tree, group):
        lines, section = [], b""
        for line in content.splitlines(True):
            section = line.strip() if line.startswith(b"[") else section
            if section == b"[clone snaps]" and b" = " in line and line.split(b" = ")[0] not in listed:
                count += 1
            else:
                lines.append(line)
        write(tree, path + b"/.meta", b"".join(lines))
    tree.shutdown()
    print(count)


def remove(path):
    tree = mounted()
    remove_all(tree, path.encode())
    tree.shutdown()


def remove_all(tree, path):
    for name in entries(tree, path):
        found = path + b"/" + name
        if stat.S_ISDIR(tree.stat(found).st_mode):
            remove_all(tree, found)
        else:
            tree.unlink(found)
    tree.rmdir(path)


def claims(group):
    io = pool()
    for name in (one.key for one in io.list_objects()):
        if name.startswith(("cephlet.name.", "cephlet.snap.")):
            request = b"\x01\x01\x0b\x00\x00\x00\x07\x00\x00\x00cephlet"
            try:
                told = io.execute(name, "lock", "get_info", request)[1]
            except Exception:
                continue  # It has just been removed.
            # The number of holders, and the tag, which stays when there is none.
            if told[6:10] != b"\0\0\0\0" and f"{group}/".encode() in told:
                print(name)


act = {"fill": fill, "sum": checksum, "remove": remove, "age": age, "index": list_entries, "halves": halves, "lose": lose,
       "hold": hold, "free": free, "claims": claims}
act[sys.argv[1]](sys.argv[2])
sys.stdout.flush()
# The threads of librados go on. They crash if its destructors run first.
os._exit(0)
