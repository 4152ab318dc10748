//! Objects of a pool, by the tool `rados`: locks, indexes, removal. `rados` always fails with 1, and its text
//! has the errno.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use super::locks::{BindLocks, LockHolder, LockRequest, LockState, LockTarget, LockTool, Locked};
use super::{Failure, PoolRef, Programs, read};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::exec::{Class, Cmd, Output, Tool};
use crate::sys::byte_lock::number_of;

/// How the tools say ENOENT.
pub(crate) const ABSENT: &str = "(2) No such file or directory";

/// Whether both of these were written.
pub(crate) fn says(failure: &Failure, what: &str, why: &str) -> bool {
    failure.says(what) && failure.says(why)
}

/// The tool `rados`, for a call in a pool and namespace.
pub(crate) trait Rados {
    /// The pool and namespace.
    fn at(&self) -> &PoolRef;

    /// Runs a command.
    fn run(&self, cmd: Cmd) -> Result<Output, Failure>;

    /// The error for a failure of `doing`.
    fn error(&self, failure: Failure, doing: &str) -> Error;

    /// `rados` with its words, in the pool and namespace.
    fn rados(&self, class: Class, words: &[&str]) -> Cmd {
        let PoolRef { access, pool, namespace } = self.at();
        let cmd = access.osd_command(Tool::Rados, class).arg(format!("--pool={pool}"));
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        cmd.args(namespace.map(|namespace| format!("--namespace={namespace}"))).args(words)
    }

    /// `pool/namespace/name`, for messages.
    fn path(&self, name: impl fmt::Display) -> String {
        let PoolRef { pool, namespace, .. } = self.at();
        if namespace.is_empty() { format!("{pool}/{name}") } else { format!("{pool}/{namespace}/{name}") }
    }

    /// `rados rm`; a missing object is no error.
    fn remove_object(&self, object: &str) -> Result<()> {
        match self.run(self.rados(Class::Change, &["rm", object])) {
            Ok(_) => Ok(()),
            Err(failure) if says(&failure, "error removing ", ABSENT) => Ok(()),
            Err(failure) => Err(self.error(failure, &format!("remove {}", self.path(object)))),
        }
    }
}

/// Objects that map keys to values (omap).
pub(crate) trait IndexTool {
    /// Everything in an index; nothing if there is no such object.
    fn entries(&self, object: &str) -> Result<BTreeMap<String, Vec<u8>>>;

    /// The value of a key.
    fn entry(&self, object: &str, key: &str) -> Result<Option<Vec<u8>>>;

    /// Sets the value of a key; makes the object if there is none.
    fn set_entry(&self, object: &str, key: &str, value: &[u8]) -> Result<()>;

    /// Removes a key. A missing key or object is no error.
    fn remove_entry(&self, object: &str, key: &str) -> Result<()>;
}

/// Locks and indexes.
pub(crate) trait ObjectTool: LockTool + IndexTool {}

impl<T: LockTool + IndexTool> ObjectTool for T {}

/// Gives access to the objects of a pool and namespace, within a call.
pub(crate) trait BindObjects: BindLocks + Send + Sync {
    /// The objects at this place.
    fn objects<'a>(&'a self, call: &'a Call, at: &'a PoolRef) -> Box<dyn ObjectTool + 'a>;

    /// Checks that this machine has the tool; the error says what is missing.
    fn has_rados(&self) -> Result<()>;
}

impl BindLocks for Programs {
    fn locks<'a>(&'a self, call: &'a Call, at: &'a PoolRef) -> Box<dyn LockTool + 'a> {
        Box::new(Objects { programs: self, call, at })
    }
}

impl BindObjects for Programs {
    fn objects<'a>(&'a self, call: &'a Call, at: &'a PoolRef) -> Box<dyn ObjectTool + 'a> {
        Box::new(Objects { programs: self, call, at })
    }

    fn has_rados(&self) -> Result<()> {
        self.has(Tool::Rados)
    }
}

/// The tool `rados`, by itself.
struct Objects<'a> {
    programs: &'a Programs,
    call: &'a Call,
    at: &'a PoolRef,
}

impl Rados for Objects<'_> {
    fn at(&self) -> &PoolRef {
        self.at
    }

    fn run(&self, cmd: Cmd) -> Result<Output, Failure> {
        self.programs.run(self.call, &self.at.access, &cmd)
    }

    fn error(&self, failure: Failure, doing: &str) -> Error {
        failure.into_fs_error(doing)
    }
}

/// The name of a lock: other programs may have their own locks on the same object.
fn name(target: LockTarget<'_>) -> Cow<'static, str> {
    match target {
        LockTarget::Header(_)
        | LockTarget::Subvolume(_)
        | LockTarget::SnapshotName(_)
        | LockTarget::VolumeName(_) => "cephlet".into(),
        LockTarget::Clients(_) => "cephlet.clients".into(),
        // The name of an attribute has at most 100 bytes (osd_max_attr_name_len).
        LockTarget::BareName(name) => format!("cephlet.bare.{:016x}", number_of(name)).into(),
        // RBD_LOCK_NAME of librbd.
        LockTarget::Owner(_) => "rbd_lock".into(),
    }
}

/// How `rados` says EBUSY.
const BUSY: &str = "(16) Device or resource busy";

/// `rados lock info --format=json`
#[derive(Deserialize)]
struct LockOutput {
    #[serde(rename = "type")]
    kind: String,
    tag: String,
    lockers: Vec<LockHolder>,
}

impl<T: Rados> LockTool for T {
    /// `rados lock get`: a true compare-and-swap. It makes the object if there is none.
    fn lock(&self, target: LockTarget<'_>, request: &LockRequest) -> Result<Locked> {
        let cmd = self.rados(Class::Change, &["lock", "get", &target.object(), &name(target)]);
        let cmd = cmd
            .arg(format!("--lock-cookie={}", request.cookie))
            .arg(format!("--lock-description={}", request.description));
        let shared = request
            .shared
            .iter()
            .flat_map(|tag| ["--lock-type=shared".to_string(), format!("--lock-tag={tag}")]);
        let seconds = request.seconds.map(|seconds| format!("--lock-duration={seconds}"));
        match self.run(cmd.args(shared).args(seconds)) {
            Ok(_) => Ok(Locked::Now),
            Err(failure) if says(&failure, "failed locking: ", BUSY) => Ok(Locked::Held),
            Err(failure) => Err(self.error(failure, &format!("lock {}", self.path(target.object())))),
        }
    }

    /// `rados lock info`, which omits locks whose time is over. A lock that was released keeps its type.
    fn lock_state(&self, target: LockTarget<'_>) -> Result<LockState> {
        match self.run(
            self.rados(Class::Question, &["lock", "info", &target.object(), &name(target), "--format=json"]),
        ) {
            Ok(output) => {
                let LockOutput { kind, tag, lockers } = read("rados lock info", &output.stdout)?;
                let shared = (kind == "shared").then_some(tag);
                let holder = |it| LockHolder { shared: shared.clone(), ..it };
                let holders = lockers.into_iter().map(holder).collect();
                Ok(LockState { is_known: kind != "none", holders })
            }
            Err(failure) if says(&failure, "rados_lock_get_lock_info(): ", ABSENT) => {
                Ok(LockState::default())
            }
            Err(failure) => {
                Err(self.error(failure, &format!("look who has locked {}", self.path(target.object()))))
            }
        }
    }

    /// `rados lock break`, which releases a lock that another process took. A session takes several locks as
    /// one client: it tells them apart by the description on stdin, which the program ignores.
    fn unlock(&self, target: LockTarget<'_>, holder: &LockHolder) -> Result<()> {
        let cmd =
            self.rados(Class::Change, &["lock", "break", &target.object(), &name(target), &holder.client]);
        let cmd = cmd.arg(format!("--lock-cookie={}", holder.cookie)).stdin(holder.description.as_bytes());
        match self.run(cmd) {
            Ok(_) => Ok(()),
            Err(failure) if says(&failure, "failed breaking lock: ", ABSENT) => Ok(()),
            Err(failure) => Err(self.error(failure, &format!("unlock {}", self.path(target.object())))),
        }
    }

    /// Removes an object that carries a lock. An image's header is read first: to remove one with content
    /// would lose all data of the image. Ids are never given twice, so an empty header stays empty.
    fn remove_lockable(&self, target: LockTarget<'_>) -> Result<()> {
        let doing = || format!("remove {}", self.path(target.object()));
        let is_ours = matches!(
            target,
            LockTarget::Subvolume(_) | LockTarget::SnapshotName(_) | LockTarget::VolumeName(_)
        );
        if !is_ours {
            match self.run(self.rados(Class::Question, &["listomapkeys", &target.object()])) {
                Ok(output) if output.stdout.is_empty() => {}
                Ok(_) => {
                    return Err(Error::precondition(format!("{}: it is the header of an image", doing())));
                }
                Err(failure) if says(&failure, "error getting omap key set ", ABSENT) => return Ok(()),
                Err(failure) => return Err(self.error(failure, &doing())),
            }
        }
        self.remove_object(&target.object())
    }
}

impl<T: Rados> IndexTool for T {
    /// `rados listomapvals`
    fn entries(&self, object: &str) -> Result<BTreeMap<String, Vec<u8>>> {
        match self.run(self.rados(Class::Listing, &["listomapvals", object])) {
            Ok(output) => dump::entries(&output.stdout),
            Err(failure) if says(&failure, "error getting omap keys ", ABSENT) => Ok(BTreeMap::new()),
            Err(failure) => Err(self.error(failure, &format!("list {}", self.path(object)))),
        }
    }

    /// `rados getomapval`, which prints to stdout that there is no such key.
    fn entry(&self, object: &str, key: &str) -> Result<Option<Vec<u8>>> {
        match self.run(self.rados(Class::Question, &["getomapval", object, key])) {
            Ok(output) => dump::value(&output.stdout).map(Some),
            Err(failure) if failure.stdout().starts_with(b"No such key: ") => Ok(None),
            Err(failure) if says(&failure, "error getting omap value ", ABSENT) => Ok(None),
            Err(failure) => Err(self.error(failure, &format!("read {key} of {}", self.path(object)))),
        }
    }

    /// `rados setomapval`, which reads the value from stdin.
    fn set_entry(&self, object: &str, key: &str, value: &[u8]) -> Result<()> {
        match self.run(self.rados(Class::Change, &["setomapval", object, key]).stdin(value)) {
            Ok(_) => Ok(()),
            Err(failure) => Err(self.error(failure, &format!("write {key} to {}", self.path(object)))),
        }
    }

    /// `rados rmomapkey`
    fn remove_entry(&self, object: &str, key: &str) -> Result<()> {
        match self.run(self.rados(Class::Change, &["rmomapkey", object, key])) {
            Ok(_) => Ok(()),
            Err(failure) if says(&failure, "error removing omap key ", ABSENT) => Ok(()),
            Err(failure) => Err(self.error(failure, &format!("remove {key} from {}", self.path(object)))),
        }
    }
}

/// Values as `rados` prints them: `value (30 bytes) :`, and a hexadecimal dump with 16 bytes a line.
mod dump {
    use std::collections::BTreeMap;

    use crate::error::{Error, Result};

    const UNREADABLE: &str = "`rados` printed a value in a form that cephlet cannot read";

    /// All keys with their values: a line with the key, the value, an empty line.
    pub(super) fn entries(printed: &[u8]) -> Result<BTreeMap<String, Vec<u8>>> {
        let printed = text(printed)?;
        let (mut lines, mut found) = (printed.lines(), BTreeMap::new());
        while let Some(key) = lines.next() {
            found.insert(key.to_string(), next_value(&mut lines)?);
        }
        Ok(found)
    }

    /// A value alone.
    pub(super) fn value(printed: &[u8]) -> Result<Vec<u8>> {
        next_value(&mut text(printed)?.lines())
    }

    fn text(printed: &[u8]) -> Result<&str> {
        std::str::from_utf8(printed).map_err(|_| Error::internal(UNREADABLE))
    }

    /// The next value, up to an empty line. A `*` in the dump stands for lines that are the same as the
    /// one before.
    fn next_value<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Result<Vec<u8>> {
        let bad = || Error::internal(UNREADABLE);
        let head = lines.next().and_then(|line| line.strip_prefix("value (")?.split_once(" bytes) :"));
        let length: usize = head.and_then(|(length, _)| length.parse().ok()).ok_or_else(bad)?;
        let mut bytes = Vec::with_capacity(length);
        for line in lines.take_while(|line| !line.is_empty()).filter(|line| *line != "*") {
            // The offset, two groups of eight bytes, the same as text.
            let offset = line.get(..8).and_then(|digits| usize::from_str_radix(digits, 16).ok());
            let offset = offset.filter(|offset| *offset <= length).ok_or_else(bad)?;
            while bytes.len() < offset {
                let last = bytes.len().checked_sub(16).ok_or_else(bad)?;
                bytes.extend_from_within(last..);
            }
            let dumped = line.get(10..58).unwrap_or_default();
            let digits = dumped.split_whitespace().map(|digits| u8::from_str_radix(digits, 16));
            bytes.extend(digits.collect::<Result<Vec<u8>, _>>().map_err(|_| bad())?);
        }
        if bytes.len() == length { Ok(bytes) } else { Err(bad()) }
    }

    #[cfg(test)]
    #[allow(clippy::unwrap_used)]
    mod tests {
        use super::*;

        const PRINTED: &str = "csi/b\nvalue (13 bytes) :\n\
            00000000  7b 22 76 22 3a 22 73 74  64 69 6e 22 7d           |{\"v\":\"stdin\"}|\n0000000d\n\n\
            csi/csi-vol-a\nvalue (17 bytes) :\n\
            00000000  7b 22 76 65 72 73 69 6f  6e 22 3a 31 2c 22 73 74  |{\"version\":1,\"st|\n\
            00000010  7d                                                |}|\n00000011\n\n";

        #[test]
        fn entries_are_read_as_rados_prints_them() {
            let found = entries(PRINTED.as_bytes()).unwrap();
            assert_eq!(found["csi/b"], br#"{"v":"stdin"}"#);
            assert_eq!(found["csi/csi-vol-a"], br#"{"version":1,"st}"#);
            assert_eq!(found.len(), 2);
            let one = PRINTED.split_once('\n').unwrap().1;
            assert_eq!(value(one.as_bytes()).unwrap(), br#"{"v":"stdin"}"#);
        }

        #[test]
        fn lines_that_repeat_are_read() {
            let printed = "value (50 bytes) :\n\
                00000000  61 61 61 61 61 61 61 61  61 61 61 61 61 61 61 61  |aaaaaaaaaaaaaaaa|\n*\n\
                00000030  7d 7d                                             |}}|\n00000032\n\n";
            assert_eq!(value(printed.as_bytes()).unwrap(), [&[b'a'; 48][..], b"}}"].concat());
        }

        #[test]
        fn a_value_that_is_not_whole_is_refused() {
            for cut in
                ["", "value (2 bytes) :\n00000000  7b    |{|\n00000001\n\n", "value (x bytes) :\n", "other"]
            {
                assert!(value(cut.as_bytes()).is_err(), "{cut}");
            }
        }
    }
}
