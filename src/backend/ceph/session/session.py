"""Ceph's tools as one resident process.

cephlet starts it and sends command lines of `rbd` and `rados`, and commands for monitors and manager. Each gets the exit status, the
JSON and the words of the tool that it stands for. A command line that is not served here is answered so, and cephlet starts the tool.

Stdin is a socket. A frame is two 32-bit lengths (big endian), a JSON object and a body:
  {"cluster": 1, "conf": PATH or null, "options": {...}}   body: the key       how to reach a cluster, with a user
  {"id": 7, "cluster": 1, "argv": ["rbd", "info", ...]}    body: stdin         a command line
  {"id": 8, "cluster": 1, "commands": [{...}], "manager": false}               commands, one after the other
  {"forget": 1}                                                                the cluster is not asked any more
  {"id": 7, "status": 2, "said": TEXT}                     body: stdout        the answer; a status of null: not served
At its end of file no request is begun; those under way end, so that no image stays half made.
"""
import ctypes

PR_SET_DUMPABLE = 4
ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # Keys are in its memory: no core, no ptrace, /proc is root's.

import contextlib
import errno
import fcntl
import itertools
import json
import os
import queue
import socket
import struct
import sys
import threading
import time

import rados
import rbd

PROTOCOL = 1
WORKERS = 8  # Of a cluster. The library's own threads are the limit: more make nothing faster. No more requests are sent (AT_ONCE).
MONITOR_WORKERS = 8  # The same: monitors without a quorum answer nothing, while the OSDs go on.
MANAGER_WORKERS = 8  # The same. The manager carries out one after the other, and is faster if the next is there already.
CLIENTS = 2  # Of a cluster. The second takes locks that the first has.
JUST_NOW = 1  # Seconds.
SHORTLY = 5
A_WHILE = 60
LANES = 64
IN_FLIGHT = 128  # Class methods of a list.
PAGE = 1024
LONGEST_VALUE = 1 << 20
ATTEMPTS = 8  # To change an object that others change.
OF_NO_KIND = "\1\1\4\0\0\0\x7f\0\0\0"  # librbd/WatchNotifyTypes.h, NotifyMessage
SNAPSHOT = struct.pack("<Q", (1 << 64) - 2)  # CEPH_NOSNAP
FEATURES = ["layering", "striping", "exclusive-lock", "object-map", "fast-diff", "deep-flatten", "journaling", "data-pool", "operations",
            "migrating", "non-primary"]
STRIPING, JOURNALING, NON_PRIMARY = 1 << 1, 1 << 6, 1 << 10
HEADER = ("size", "order", "features", "snap_seq", "create_timestamp", "stripe_count", "parent")
IN_TRASH, OF_MIRROR = 2, 3  # cls_rbd_types.h, SnapshotNamespaceType
REMOVING = 3  # cls_rbd_types.h, TrashImageSource


class Failed(Exception):
    """What a tool ends with: its status, and what it says."""

    def __init__(self, status, said, stdout=b""):
        self.status, self.said, self.stdout, self.errno = status, said, stdout, status


class NotServed(Exception):
    """The tool itself is to be started. Nothing was changed."""


def failed(piece, number):
    number = abs(number or errno.EIO)
    return Failed(number, "%s: (%d) %s" % (piece, number, os.strerror(number)))


# Ceph's encoding (src/include/encoding.h): little endian, lengths before texts.

def text(value):
    value = value.encode() if isinstance(value, str) else value
    return struct.pack("<I", len(value)) + value


def versioned(content):
    return struct.pack("<BBI", 1, 1, len(content)) + content


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values if len(values) > 1 else values[0]

    def bytes(self):
        length = self.take("I")
        self.at += length
        return self.data[self.at - length:self.at]

    def text(self):
        return self.bytes().decode("utf-8", "surrogateescape")

    def struct(self):
        """The content of a versioned structure, of which later versions have more."""
        self.take("BB")
        return Reader(self.bytes())


class Connection(rados.Rados):
    """A connection to a cluster, which ends with the last pool that was opened by it."""

    def __del__(self):
        self.shutdown()


class Cluster:
    """A user of a cluster: its connection, and the threads that wait for it."""

    def __init__(self, conf, options):
        self.conf, self.options = conf, options
        self.lock, self.lanes = threading.Lock(), [threading.Lock() for _ in range(LANES)]
        self.connections, self.files = [None] * CLIENTS, None
        self.failure, self.failed_at, self.renewed_at = None, 0, -A_WHILE
        self.work, self.monitors, self.manager = Crew(WORKERS), Crew(MONITOR_WORKERS), Crew(MANAGER_WORKERS)

    def connected(self, client=0):
        with self.lock:
            if self.connections[client] is None:
                if self.failure and time.monotonic() < self.failed_at + JUST_NOW:
                    raise self.failure  # While this one waited.
                self.connections[client] = self.connect()
            return self.connections[client]

    def connect(self):
        try:
            connection = Connection(rados_id=self.options["id"], conffile=self.conf, conf={})
            for name, value in self.options.items():
                if name != "id":
                    connection.conf_set(name, value)
            connection.connect()
            return connection
        except rados.Error as error:
            if error.errno == errno.ETIMEDOUT:
                self.failure, self.failed_at = failed("couldn't connect to cluster", error.errno), time.monotonic()
                raise self.failure
            raise NotServed()  # The tool says what is wrong with the user, the key or the file.

    def reconnect(self, refused):
        """Makes new connections in place of those that are refused, if they are not new already. A host that is shut out as a whole
        would make some for each request."""
        with self.lock:
            if self.connections is refused and time.monotonic() >= self.renewed_at + A_WHILE:
                self.connections, self.files, self.renewed_at = [None] * CLIENTS, None, time.monotonic()

    def tell(self, target, command):
        """A command for a metadata server, which only the library of CephFS sends."""
        import cephfs
        connection = self.connected()
        with self.lock:
            if self.files is None:
                self.files = cephfs.LibCephFS(rados_inst=connection)
                self.files.init()
            files = self.files
        return files.mds_command(target.replace("mds.", "", 1), command, "")

    def pool(self, name, namespace="", client=0):
        return Pool(self, name, namespace, client)

    def pool_of(self, options, of=""):
        """The pool that a command line names; that of what it makes has options that begin with `dest-`."""
        return self.pool(options[of + "pool"], options.get(of + "namespace", ""))

    def end(self):
        self.work.end()
        self.monitors.end()
        self.manager.end()
        for connection in self.connections:
            if connection is not None:
                connection.shutdown()


class Crew:
    """Threads that do what is in a queue, in its order."""

    def __init__(self, size):
        self.queue = queue.Queue()
        self.threads = [threading.Thread(target=self.go_on, daemon=True) for _ in range(size)]
        for thread in self.threads:
            thread.start()

    def go_on(self):
        for work in iter(self.queue.get, None):
            work()

    def end(self):
        """Ends the threads once they have done what is in the queue."""
        for _ in self.threads:
            self.queue.put(None)
        for thread in self.threads:
            thread.join()


class Pool:
    """A pool and namespace. Opened for each request: one that is kept never learns that its pool was made anew."""

    def __init__(self, cluster, name, namespace, client):
        self.cluster, self.name, self.namespace = cluster, name, namespace
        self.connection = cluster.connected(client)
        try:
            self.io = self.connection.open_ioctx(name)
        except rados.Error as error:
            raise failed("error opening pool '%s'" % name, error.errno)
        self.io.set_namespace(namespace)
        self.io.set_osdmap_full_try()  # A full pool refuses at once, instead of holding the request.

    def check(self):
        """After something was absent: the pool or the namespace may be."""
        self.check_pool()
        self.check_namespace()

    def check_pool(self):
        if self.connection.pool_lookup(self.name) != self.io.get_pool_id():
            raise StalePool()

    def check_namespace(self):
        if self.namespace and not rbd.RBD().namespace_exists(self.io, self.namespace):
            raise Failed(errno.ENOENT, "namespace '%s' does not exist." % self.namespace)

    def method(self, name, method, data=b"", kind="rbd", length=8192):
        """A class method of an object; None where it or what is asked of it is absent."""
        try:
            return Reader(self.io.execute(name, kind, method, data, length)[1])
        except rados.ObjectNotFound:
            return None
        except rados.OSError as error:
            if error.errno == errno.ERANGE and length < LONGEST_VALUE:
                return self.method(name, method, data, kind, LONGEST_VALUE)
            raise

    def methods(self, calls):
        """What class methods of objects answer; None for what is absent. Some are in flight together, and no more are in memory."""
        calls = iter(calls)
        for some in iter(lambda: list(itertools.islice(calls, IN_FLIGHT)), []):
            yield from self.together(some)

    def together(self, calls):
        answers, failures, done = [None] * len(calls), [], threading.Semaphore(0)
        for number, (name, method, data) in enumerate(calls):
            def complete(completion, answer, number=number):
                code = completion.get_return_value()
                if code >= 0:
                    answers[number] = Reader(answer)
                elif code != -errno.ENOENT:
                    failures.append(code)
                done.release()

            # librados writes a longer answer beyond the buffer. Only this one has no bound; its pages are taken as they are written.
            length = LONGEST_VALUE if method == "get_snapcontext" else 8192
            self.io.aio_execute(name, "rbd", method, data, length, complete, None)
        for _ in calls:
            done.acquire()
        if failures:
            raise rados.OSError("class method", errno=-failures[0])
        return answers

    def id_of(self, name):
        found = self.method("rbd_id." + name, "get_id")
        if found is None:
            self.check()
            raise failed("error opening image " + name, errno.ENOENT)
        return found.text()

    def values(self, image_id):
        """What the header of an image says of it (cls_rbd.cc, image_create): one operation, where each class method would be one."""
        with rados.ReadOpCtx() as op:
            rows, _ = self.io.get_omap_vals_by_keys(op, HEADER)
            try:
                self.io.operate_read_op(op, header(image_id))
            except rados.ObjectNotFound:
                return {}
            return {key: Reader(value) for key, value in rows}

    def is_watched(self, name):
        """Whether a client watches an object, or may do so. A notification ends once every watcher has answered: without watchers at
        once, and with no answers. It is of a kind that no client knows, so clients only answer. librados sets it no timeout."""
        told = queue.Queue()
        self.io.aio_notify(name, lambda _, *answer: told.put(answer), OF_NO_KIND, JUST_NOW * 1000)
        return told.get(timeout=int(self.cluster.options["rados_osd_op_timeout"])) != (0, [], [])

    def pages(self, name, method, value):
        """What a class method lists in pages."""
        after = b""
        while True:
            found = self.method(name, method, text(after) + struct.pack("<Q", PAGE), length=LONGEST_VALUE)
            rows = [] if found is None else [(found.text(), value(found)) for _ in range(found.take("I"))]
            yield from rows
            if len(rows) < PAGE:
                return
            after = rows[-1][0].encode("utf-8", "surrogateescape")

    @contextlib.contextmanager
    def lane(self, image):
        """One change of an image at a time: an open for writing makes the removal by another thread say EBUSY. The call of one that
        has waited for long may have lost its right to begin; cephlet looks at that before it starts the tool."""
        lane = self.cluster.lanes[hash((self.name, self.namespace, image)) % LANES]
        if not lane.acquire(timeout=SHORTLY):
            raise NotServed()
        try:
            yield
        finally:
            lane.release()

    def image(self, name=None, image_id=None, read_only=False):
        try:
            return rbd.Image(self.io, name=name, image_id=image_id, read_only=read_only)
        except (rbd.Error, rados.Error) as error:
            if error.errno == errno.ENOENT:
                self.check()
            raise failed("error opening image %s" % (name or image_id), error.errno)


class StalePool(Exception):
    """The pool of this name is another one than was opened, or is gone."""


def header(image_id):
    return "rbd_header." + image_id


def printed(value):
    return json.dumps(value).encode()


def ctime(seconds):
    return time.asctime(time.gmtime(seconds))


class Parents:
    """The names of parents, each looked up once a request."""

    def __init__(self, pool):
        self.pool, self.known = pool, {}

    def named(self, spec):
        """What `parent_get` says, as rbd prints it; None where there is no parent."""
        if spec is None:
            return None
        spec = spec.struct()
        key = pool_id, namespace, image_id, snapshot = spec.take("q"), spec.text(), spec.text(), spec.take("Q")
        if pool_id < 0:
            return None
        if key not in self.known:
            self.known[key] = self.look_up(*key)
        return self.known[key]

    def look_up(self, pool_id, namespace, image_id, snapshot):
        pool = self.pool.connection.pool_reverse_lookup(pool_id)
        if pool is None:
            raise NotServed()
        theirs = self.pool.cluster.pool(pool, namespace)
        name, trash = theirs.method("rbd_directory", "dir_get_name", text(image_id)), False
        name = name and name.text()
        if name is None:
            spec, trash = theirs.method("rbd_trash", "trash_get", text(image_id)), True
            if spec is None:
                raise NotServed()
            name = trashed(spec)["name"]
        taken = theirs.method(header(image_id), "snapshot_get", struct.pack("<Q", snapshot))
        if taken is None:
            raise NotServed()
        return {"pool": theirs.name, "pool_namespace": namespace, "image": name, "id": image_id, "trash": trash,
                "snapshot": snapshot_row(taken)["stored_name"]}


def snapshot_row(found):
    """A snapshot (cls_rbd_types.h, SnapshotInfo) as `rbd snap ls --all` shows it."""
    found = found.struct()
    number, namespace = found.take("Q"), found.struct()
    kind = namespace.take("I")
    row = {"id": number, "namespace": {"type": {0: "user", 1: "group", IN_TRASH: "trash", OF_MIRROR: "mirror"}.get(kind, "")}}
    if kind == IN_TRASH:
        row["namespace"]["original_name"] = namespace.text()
    row["kind"] = kind
    row["name"] = row["stored_name"] = found.text()
    row["size"] = found.take("Q")
    row["timestamp"] = ctime(found.take("II")[0])
    return row


def trashed(spec):
    spec = spec.struct()
    source, name = spec.take("B"), spec.text()
    return {"name": name, "source": source}


def info(pool, options, words, stdin):
    if "image-id" in options:
        image_id = options["image-id"]
        name = pool.method("rbd_directory", "dir_get_name", text(image_id))
        if name is None:
            raise NotServed()  # In the trash, or absent: the tool tells which.
        name = name.text()
    else:
        name = options["image"]
        image_id = pool.id_of(name)
    said = pool.values(image_id)
    if "size" not in said:
        pool.check()
        raise failed("error opening image " + name, errno.ENOENT)
    if pool.method("rbd_mirroring", "mirror_image_get", text(image_id)) is not None:
        raise NotServed()
    return printed(described(pool, name, image_id, said))


def described(pool, name, image_id, said):
    """An image that is not mirrored, by the values of its header."""
    bits, at = said["features"].take("Q"), header(image_id)
    row = {"name": name, "id": image_id, "size": said["size"].take("Q"), "object_size": 1 << said["order"].take("B"),
           "snapshot_count": 0, "features": [feature for bit, feature in enumerate(FEATURES) if bits >> bit & 1],
           "create_timestamp": ctime(said["create_timestamp"].take("II")[0] if "create_timestamp" in said else 0)}
    if bits & STRIPING:
        row["stripe_count"] = said["stripe_count"].take("Q")
    if said["snap_seq"].take("Q"):
        row["snapshot_count"] = len(numbers_of(pool.method(at, "get_snapcontext")))
    parent = Parents(pool).named(pool.method(at, "parent_get") if "parent" in said else None)
    if parent is not None:
        row["parent"] = parent
    return row


def metadata_get(pool, options, words, stdin):
    found = pool.method(header(pool.id_of(options["image"])), "metadata_get", text(words[0]))
    if found is None:
        raise failed("getting metadata failed", errno.ENOENT)
    return found.bytes() + b"\n"


def metadata_list(pool, options, words, stdin):
    at = header(pool.id_of(options["image"]))
    if pool.method(at, "get_size", SNAPSHOT) is None:
        raise failed("error opening image " + options["image"], errno.ENOENT)
    return printed(dict(pool.pages(at, "metadata_list", Reader.text)))


def metadata_set(pool, options, words, stdin):
    """Written directly: that takes no lock of the image, which would last for half a minute after a kill."""
    (key, value), at = words, header(pool.id_of(options["image"]))
    features = pool.method(at, "get_features", SNAPSHOT + b"\1")
    if features is None or features.take("QQ")[0] & (JOURNALING | NON_PRIMARY) or key.startswith("conf_"):
        raise NotServed()
    pool.method(at, "metadata_set", metadata([(key, value)]))
    return b""


def metadata(pairs):
    return struct.pack("<I", len(pairs)) + b"".join(text(key) + text(value) for key, value in pairs)


def directory(pool):
    rows = list(pool.pages("rbd_directory", "dir_list", Reader.text))
    if not rows:
        pool.check()
    return rows


def names(pool, options, words, stdin):
    going = pool.pages("rbd_trash", "trash_list", trashed)
    broken_off = [entry["name"] for _, entry in going if entry["source"] == REMOVING]
    return printed(sorted([name for name, _ in directory(pool)] + broken_off))


def list_images(pool, options, words, stdin):
    images = directory(pool)
    asked = (call for name, image_id in images for call in (
        ("rbd_id." + name, "get_id", b""), (header(image_id), "get_size", SNAPSHOT), (header(image_id), "get_snapcontext", b""),
        (header(image_id), "parent_get", b"")))
    answers, rows, snapshots, parents = pool.methods(asked), [], [], Parents(pool)
    for name, image_id in images:
        named, size, context, parent = next(answers), next(answers), next(answers), next(answers)
        if named is None or size is None:
            continue  # It is half made, or just going.
        row = {"image": name, "id": image_id, "size": size.take("BQ")[1]}
        try:
            parent = parents.named(parent)
        except (Failed, rados.Error):
            raise NotServed()  # It cannot be read. The tool leaves such a clone out.
        if parent:
            row["parent"] = {key: parent[key] for key in ("pool", "pool_namespace", "image", "snapshot")}
        rows.append(row)
        snapshots += [(row, number) for number in numbers_of(context)]
    taken = pool.methods([(header(row["id"]), "snapshot_get", struct.pack("<Q", number)) for row, number in snapshots])
    for (row, number), found in zip(snapshots, taken):
        snapshot = found and snapshot_row(found)
        if snapshot and snapshot["kind"] not in (IN_TRASH, OF_MIRROR):
            rows.append(dict(row, size=snapshot["size"], snapshot=snapshot["name"], snapshot_id=number))
    return printed(rows)


def numbers_of(context):
    """The numbers of an image's snapshots, from the oldest to the newest."""
    if context is None:
        return []
    count = context.take("QI")[1]
    return sorted(context.take("Q") for _ in range(count))


def snapshots(pool, options, words, stdin):
    image_id = options.get("image-id") or pool.id_of(options["image"])
    context = pool.method(header(image_id), "get_snapcontext", length=LONGEST_VALUE)
    if context is None:
        pool.check()
        raise failed("error opening image", errno.ENOENT)
    found = pool.methods([(header(image_id), "snapshot_get", struct.pack("<Q", number)) for number in numbers_of(context)])
    rows = [snapshot_row(row) for row in found if row is not None]
    if any(row["kind"] == OF_MIRROR for row in rows):
        raise NotServed()
    return printed(rows)


def status(pool, options, words, stdin):
    """The bindings list the watchers of an open image only. To open it costs twenty times as much as to see that there are none."""
    image_id = pool.id_of(options["image"])
    if "size" in pool.values(image_id) and not pool.is_watched(header(image_id)):
        return printed({"watchers": []})
    with pool.image(options["image"], read_only=True) as image:
        return printed({"watchers": [{"address": row["addr"], "client": row["id"], "cookie": row["cookie"]}
                                     for row in image.watchers_list()]})


def children(pool, options, words, stdin):
    """An image without snapshots is not opened: librbd 16.2 may abort when a clone is closed at once after it was opened."""
    context = pool.method(header(pool.id_of(options["image"])), "get_snapcontext", length=LONGEST_VALUE)
    if context is not None and not numbers_of(context):
        return printed([])
    with pool.image(options["image"], read_only=True) as image:
        return printed([{"image": row["image"]} for row in image.list_children2()])


def pool_options(cluster, options, words, stdin):
    pool = cluster.pool(words[0])
    source = {0: "config", 1: "pool", 2: "image"}
    return printed([{"name": row["name"], "value": row["value"], "source": source.get(row["source"], "")}
                    for row in rbd.RBD().config_list(pool.io)])


def mirror_pool(pool, options, words, stdin):
    """`info` and `status` of a pool that is not mirrored."""
    if rbd.RBD().mirror_mode_get(pool.io) != rbd.RBD_MIRROR_MODE_DISABLED:
        raise NotServed()
    if "verbose" in options:
        raise Failed(errno.EINVAL, "mirroring not enabled on the pool")
    return printed({"mode": "disabled"})


def namespaces(pool, options, words, stdin):
    return printed([{"name": name} for name in rbd.RBD().namespace_list(pool.io)])


def trash(pool, options, words, stdin):
    rows = [(image_id, entry) for image_id, entry in pool.pages("rbd_trash", "trash_list", trashed) if entry["source"] != REMOVING]
    if not rows:
        pool.check_namespace()
    return printed([{"id": image_id, "name": entry["name"]} for image_id, entry in rows])


def stream(stdin):
    """The size and the metadata in the stream of an empty image (doc/dev/rbd-export.rst), as cephlet writes it."""
    reader, pairs = Reader(stdin), []
    reader.at = stdin.index(b"\n") + 1
    while True:
        tag = reader.take("c")
        if tag == b"E":
            reader.at = stdin.index(b"rbd diff v2\ns") + 13
            return reader.take("QQ")[1], pairs
        length = reader.take("Q")
        field = Reader(stdin[reader.at:reader.at + length])
        reader.at += length
        pairs.append((field.bytes(), field.bytes()))


def layout(options):
    """As keyword arguments of `create` and `clone`; what is not said is the cluster's default."""
    given = {}
    if "image-feature" in options:
        given["features"] = sum(1 << FEATURES.index(name) for name in options["image-feature"].split(",") if name)
    if "object-size" in options:
        given["order"] = int(options["object-size"].rstrip("B")).bit_length() - 1
    if "stripe-unit" in options:
        given["stripe_unit"], given["stripe_count"] = int(options["stripe-unit"].rstrip("B")), int(options["stripe-count"])
    if "data-pool" in options:
        given["data_pool"] = options["data-pool"]
    return given


def create(cluster, options, words, stdin):
    pool, name = cluster.pool_of(options, "dest-"), options["dest"]
    size, pairs = stream(stdin)
    try:
        rbd.RBD().create(pool.io, name, size, old_format=False, **layout(options))
    except (rbd.Error, rados.Error) as error:
        if error.errno == errno.ENOENT:
            pool.check()
            raise NotServed()  # A data pool is missing: the tool names it.
        raise failed("import failed", error.errno)
    image_id = pool.id_of(name)
    if pairs:
        write_first(pool, image_id, pairs)
    return just_made(pool, name, image_id)


def just_made(pool, name, image_id):
    """What `rbd info` says of a new image, to save that question; nothing if it needs a closer look: it is gone, or perhaps mirrored."""
    said = pool.values(image_id)
    row = described(pool, name, image_id, said) if "size" in said else {"features": ["journaling"]}
    return b"" if "journaling" in row["features"] else printed(row)


def write_first(pool, image_id, pairs):
    """Writes the metadata of an image that was just made, unless it has some already: another controller that met it without has made
    it the image of its own request."""
    with rados.WriteOpCtx() as op:
        op.execute("rbd", "get_size", SNAPSHOT)  # The image is there. A removed one would get a header again.
        op.omap_cmp("metadata_" + pairs[0][0].decode(), "", rados.LIBRADOS_CMPXATTR_OP_EQ)
        op.execute("rbd", "metadata_set", metadata(pairs))
        try:
            pool.io.operate_write_op(op, header(image_id))
        except rados.ObjectNotFound:
            pass  # Another controller has removed it. The next look shows that.
        except rados.OSError as error:
            raise failed("import failed", errno.EEXIST if error.errno == errno.ECANCELED else error.errno)


def changed(piece, change, *arguments, **options):
    """What librbd answers when it is made to change something, or to look before that."""
    try:
        return change(*arguments, **options)
    except (rbd.Error, rados.Error) as error:
        raise failed(piece, error.errno)


def changed_by_name(pool, name, piece, change, *arguments):
    """The same of a change that opens the image by itself, and says only that something is absent."""
    with pool.lane(name):
        try:
            changed(piece, change, pool.io, name, *arguments)
        except Failed as failure:
            if failure.status == errno.ENOENT:
                pool.check()
                if pool.method("rbd_id." + name, "get_id") is not None:
                    raise NotServed()  # It is there: the pool may be full. The tool says so.
            raise
    return b""


def remove(pool, options, words, stdin):
    return changed_by_name(pool, options["image"], "delete error", rbd.RBD().remove)


def rename(pool, options, words, stdin):
    return changed_by_name(pool, options["image"], "rename error", rbd.RBD().rename, options["dest"])


def of_open_image(change):
    """Serves a change for which the image is opened, one at a time."""
    def serve(pool, options, words, stdin):
        name, image_id = options.get("image"), options.get("image-id")
        with pool.lane(name or image_id), pool.image(name, image_id) as image:
            change(image, options, words)
        return b""
    return serve


@of_open_image
def resize(image, options, words):
    present, size = image.size(), int(options["size"].rstrip("B"))
    if present > size:
        raise Failed(errno.EINVAL, "shrinking an image is only allowed with the --allow-shrink flag")
    if present < size:
        changed("resize error", image.resize, size, False)


@of_open_image
def set_limit(image, options, words):
    changed("setting config failed", image.config_set, *words)


@of_open_image
def remove_limit(image, options, words):
    try:
        changed("removing config failed", image.config_remove, *words)
    except KeyError:
        pass  # It was not set.


@of_open_image
def create_snapshot(image, options, words):
    changed("failed to create snapshot", image.create_snap, options["snap"])


@of_open_image
def remove_snapshot(image, options, words):
    if "snap" not in options:
        try:
            image.remove_snap_by_id(int(options["snap-id"]))
        except rbd.ImageBusy:
            raise Failed(errno.EBUSY, "snapshot is protected from removal")  # It has clones.
        except rbd.Error as error:
            raise failed("failed to remove snapshot", error.errno)
    elif changed("failed to remove snapshot", image.is_protected_snap, options["snap"]):
        raise Failed(errno.EBUSY, "snapshot is protected from removal")
    else:
        changed("failed to remove snapshot", image.remove_snap, options["snap"])


def clone(cluster, options, words, stdin):
    pool, to = cluster.pool_of(options), cluster.pool_of(options, "dest-")
    try:
        rbd.RBD().clone(pool.io, options["image"], options["snap"], to.io, options["dest"], **layout(options))
    except (rbd.Error, rados.Error) as error:
        if error.errno == errno.EEXIST:
            raise failed("clone error", errno.EEXIST)
        raise NotServed()  # What is missing or refused, the tool names.
    return b""


# Locks of objects. `rados` ends with 1, whatever went wrong.

def lock(pool, options, words, stdin):
    """A lock belongs to a client and a cookie, and every process of the tool is another client. So a lock that this client has already
    is taken by a second one, and after that by the tool."""
    name, lock_name = words
    tag, cookie, seconds = options.get("lock-tag"), options["lock-cookie"], int(options.get("lock-duration", 0)) or None
    for client in range(CLIENTS):
        io = pool.io if client == 0 else pool.cluster.pool(pool.name, pool.namespace, client).io
        try:
            if tag is None:
                io.lock_exclusive(name, lock_name, cookie, options["lock-description"], seconds)
            else:
                io.lock_shared(name, lock_name, cookie, tag, options["lock-description"], seconds)
            return b""
        except (rados.ObjectBusy, rados.ObjectExists) as error:
            if tag is None or error.errno == errno.EBUSY:
                raise rados_failed("failed locking", errno.EBUSY)
    raise NotServed()


def rados_failed(piece, number):
    failure = failed(piece, number)
    failure.status = 1
    return failure


def lock_of(pool, name, lock_name, piece="rados_lock_get_lock_info()"):
    found = pool.method(name, "get_info", versioned(text(lock_name)), kind="lock")
    if found is None:
        pool.check_pool()
        raise rados_failed(piece, errno.ENOENT)
    found, lockers = found.struct(), []
    for _ in range(found.take("I")):
        locker = found.struct()
        entity, number = locker.take("Bq")
        cookie, holder = locker.text(), found.struct()
        holder.take("II")
        lockers.append({"name": "%s.%d" % ({1: "mon", 2: "mds", 4: "osd", 8: "client", 16: "mgr"}[entity], number),
                        "cookie": cookie, "addr": address(holder), "description": holder.text()})
    kind = {1: "exclusive", 2: "shared"}.get(found.take("B"), "none")
    return {"name": lock_name, "type": kind, "tag": found.text(), "lockers": lockers}


def address(reader):
    """entity_addr_t (msg/msg_types.h), in the old form or in the one that begins with a 1."""
    if reader.data[reader.at] == 1:
        reader.take("B")
        reader = reader.struct()
        reader.take("I")
        nonce = reader.take("I")
        where = reader.bytes()
        family = struct.unpack_from("<H", where)[0] if where else 0
    else:
        reader.take("I")
        nonce = reader.take("I")
        where = reader.data[reader.at:reader.at + 128]
        reader.at += 128
        family = struct.unpack_from(">H", where)[0]
    if family == socket.AF_INET6:
        return "[%s]:%d/%d" % (socket.inet_ntop(family, where[8:24]), struct.unpack_from(">H", where, 2)[0], nonce)
    if family != socket.AF_INET:
        return ":/%d" % nonce
    return "%s:%d/%d" % (socket.inet_ntop(family, where[4:8]), struct.unpack_from(">H", where, 2)[0], nonce)


def lock_info(pool, options, words, stdin):
    return printed(lock_of(pool, *words))


def unlock(pool, options, words, stdin):
    """Breaks a lock if it has this description still: its client may have released it since, and taken it again for something else."""
    name, lock_name, client = words
    kind, number = client.split(".")
    if kind != "client":
        raise NotServed()
    cookie = options["lock-cookie"]
    of_client = struct.pack("<Bq", 8, int(number)) + text(cookie)
    for _ in range(ATTEMPTS):
        found = lock_of(pool, name, lock_name, "failed breaking lock")["lockers"]
        version = pool.io.get_last_version()
        if (client, cookie, stdin.decode()) not in [(it["name"], it["cookie"], it["description"]) for it in found]:
            raise rados_failed("failed breaking lock", errno.ENOENT)
        with rados.WriteOpCtx() as op:
            op.assert_version(version)
            op.execute("lock", "break_lock", versioned(text(lock_name) + of_client))
            try:
                pool.io.operate_write_op(op, name)
                return b""
            except rados.ObjectNotFound:
                raise rados_failed("failed breaking lock", errno.ENOENT)
            except rados.OSError as error:
                if error.errno not in (errno.ERANGE, errno.EOVERFLOW):  # Another version.
                    raise
    raise NotServed()


def remove_object(pool, options, words, stdin):
    try:
        pool.io.remove_object(words[0])
    except rados.ObjectNotFound:
        raise rados_failed("error removing " + words[0], errno.ENOENT)
    return b""


def object_keys(pool, options, words, stdin):
    with rados.ReadOpCtx() as op:
        rows, _ = pool.io.get_omap_keys(op, "", 1)
        try:
            pool.io.operate_read_op(op, words[0])
        except rados.ObjectNotFound:
            raise rados_failed("error getting omap key set " + words[0], errno.ENOENT)
        return b"".join(key.encode() + b"\n" for key, _ in rows)


def dumped(value):
    """A value as `rados` prints it (hexdump -C, without folding)."""
    lines = ["value (%d bytes) :" % len(value)]
    for at in range(0, len(value), 16):
        digits = ["%02x" % byte for byte in value[at:at + 16]]
        lines.append("%08x  %-24s %-24s |" % (at, " ".join(digits[:8]), " ".join(digits[8:])))
    return "\n".join(lines + ["%08x" % len(value), "", ""]).encode()


def read_entries(pool, name, piece, read):
    """What an operation reads from the omap of an object."""
    with rados.ReadOpCtx() as op:
        rows, _ = read(op)
        try:
            pool.io.operate_read_op(op, name)
        except rados.ObjectNotFound:
            pool.check_pool()
            raise rados_failed(piece, errno.ENOENT)
        return list(rows)


def all_entries(pool, options, words, stdin):
    rows, after = [], ""
    while True:
        page = read_entries(pool, words[0], "error getting omap keys " + words[0], lambda op: pool.io.get_omap_vals(op, after, "", PAGE))
        rows += page
        # The cluster may allow fewer entries an answer than were asked for.
        if not page:
            return b"".join(key.encode() + b"\n" + dumped(value) for key, value in rows)
        after = page[-1][0]


def entry(pool, options, words, stdin):
    name, key = words
    rows = read_entries(pool, name, "error getting omap value " + name, lambda op: pool.io.get_omap_vals_by_keys(op, (key,)))
    if not rows:
        raise Failed(1, "", b"No such key: " + key.encode() + b"\n")
    return dumped(rows[0][1])


def change_entries(pool, name, piece, change):
    with rados.WriteOpCtx() as op:
        change(op)
        try:
            pool.io.operate_write_op(op, name)
        except rados.Error as error:
            raise rados_failed(piece, error.errno)
    return b""


def set_entry(pool, options, words, stdin):
    pool.check_pool()
    return change_entries(pool, words[0], "error setting omap value", lambda op: pool.io.set_omap(op, (words[1],), (stdin,)))


def remove_entry(pool, options, words, stdin):
    return change_entries(pool, words[0], "error removing omap key ", lambda op: pool.io.remove_omap_keys(op, (words[1],)))


# By the words that a command line begins with: what serves it, and whether that opens pools of its own.
COMMANDS = {
    "rbd info": info, "rbd ls": names, "rbd ls --long": list_images, "rbd status": status, "rbd children": children,
    "rbd image-meta get": metadata_get, "rbd image-meta ls": metadata_list, "rbd image-meta set": metadata_set,
    "rbd snap ls": snapshots, "rbd snap create": create_snapshot, "rbd snap rm": remove_snapshot,
    "rbd rm": remove, "rbd rename": rename, "rbd resize": resize, "rbd trash ls": trash,
    "rbd config image set": set_limit, "rbd config image remove": remove_limit, "rbd namespace ls": namespaces,
    "rbd mirror pool info": mirror_pool, "rbd mirror pool status": mirror_pool,
    "rados lock get": lock, "rados lock info": lock_info, "rados lock break": unlock, "rados rm": remove_object,
    "rados listomapkeys": object_keys, "rados listomapvals": all_entries, "rados getomapval": entry, "rados setomapval": set_entry,
    "rados rmomapkey": remove_entry,
}
OF_CLUSTER = {"rbd import": create, "rbd clone": clone, "rbd config pool ls": pool_options}


def parse(argv):
    """A command line: what serves it, its options by name, and its further words."""
    words, options, rest = [argv[0]], {}, []
    arguments = iter(argv[1:])
    for argument in arguments:
        if argument == "--":
            rest = list(arguments)
        elif argument.startswith("--"):
            name, _, value = argument[2:].partition("=")
            options[name] = value
        else:
            words.append(argument)
    for count in range(min(len(words), 4), 1, -1):
        name = " ".join(words[:count])
        name += " --long" if name == "rbd ls" and "long" in options else ""
        serve = COMMANDS.get(name) or OF_CLUSTER.get(name)
        if serve:
            return serve, options, words[count:] + rest
    raise NotServed()


def carry_out(cluster, argv, stdin):
    serve, options, words = parse(argv)
    for is_last in (False, True):
        connections = cluster.connections
        try:
            if serve in OF_CLUSTER.values():
                return serve(cluster, options, words, stdin)
            return serve(cluster.pool_of(options), options, words, stdin)
        except StalePool:
            if is_last:
                raise Failed(errno.EAGAIN, "the pool is made anew again and again")
        except (Failed, rbd.Error, rados.Error) as error:
            if error.errno == errno.ESHUTDOWN:
                cluster.reconnect(connections)
            raise error if isinstance(error, Failed) else failed(type(error).__name__, error.errno)


def ask(cluster, commands, is_of_manager):
    """Commands for the monitors or the manager, as `ceph` sends them. Of several each is tried."""
    connection, printed_all, said_all = cluster.connected(), b"", []
    send = connection.mgr_command if is_of_manager else connection.mon_command
    for command in commands:
        target = command.pop("target", None)
        if target:
            code, printed_now, said = cluster.tell(target, json.dumps(command))
        else:
            code, printed_now, said = send(json.dumps(command), b"")
        printed_all += printed_now
        if code:
            said = "Error %s: %s" % (errno.errorcode.get(-code, code), said)
            if len(commands) == 1:
                raise Failed(-code, said, printed_all)
        said_all.append(said)
    return printed_all, "\n".join(said_all)


class Session:
    def __init__(self):
        self.socket, self.sending = socket.socket(fileno=0), threading.Lock()
        self.clusters, self.has_ended = {}, False

    def send(self, header_, body=b""):
        line = json.dumps(header_).encode()
        with self.sending:
            self.socket.sendall(struct.pack(">II", len(line), len(body)) + line + body)

    def frames(self):
        file = self.socket.makefile("rb")

        def read(length):
            data = file.read(length)
            if len(data) < length:
                raise EOFError
            return data

        while True:
            try:
                head, body = struct.unpack(">II", read(8))
                head, body = read(head), read(body)
            except (EOFError, OSError):
                return  # The daemon has died, perhaps in the middle of a frame, or has left answers unread (ECONNRESET).
            yield json.loads(head.decode()), body

    def serve(self):
        fcntl.lockf(int(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)  # By this the next daemon knows which process to kill.
        self.send({"protocol": PROTOCOL, "python": "%d.%d" % sys.version_info[:2], "rbd": "%d.%d.%d" % rbd.RBD().version()})
        for request, body in self.frames():
            if "forget" in request:
                gone = self.clusters.pop(request["forget"], None)
                if gone:
                    threading.Thread(target=gone.end).start()
            elif "options" in request:
                options = dict(request["options"], **({"key": body.decode()} if body else {}))
                self.clusters[request["cluster"]] = Cluster(request["conf"], options)
            else:
                cluster = self.clusters[request["cluster"]]
                crew = cluster.manager if request.get("manager") else cluster.monitors if "commands" in request else cluster.work
                crew.queue.put(lambda request=request, body=body, cluster=cluster: self.answer(cluster, request, body))
        self.has_ended = True
        for cluster in self.clusters.values():
            cluster.end()

    def answer(self, cluster, request, stdin):
        if self.has_ended:
            return
        status, said, stdout = 0, "", b""
        try:
            if "argv" in request:
                stdout = carry_out(cluster, request["argv"], stdin)
            else:
                stdout, said = ask(cluster, request["commands"], request.get("manager"))
        except NotServed:
            status = None
        except Failed as failure:
            status, said, stdout = failure.status, failure.said, failure.stdout
        except Exception as error:  # A defect here, or bindings of another version: the tool may do better.
            status, said = None, "%s: %s" % (type(error).__name__, error)
        try:
            self.send({"id": request["id"], "status": status, "said": said}, stdout)
        except OSError:
            pass  # The daemon is gone.


Session().serve()
