//! A disk in memory for tests. It knows what has been synced and what has not, stops after a given number of
//! operations, fails on demand, and shows what a crash would leave.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::disk::{Disk, DiskFile};

/// What happens to operations that were not synced when the machine stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// All reached the disk, as after the end of a killed process.
    Kept,
    /// None did.
    Dropped,
    /// The first `n` did; for data, counted in bytes.
    First(usize),
    /// The first `n` bytes did; the file has its full length, the rest reads as zeros.
    Zeroed(usize),
    /// All but operation `n` did.
    Without(usize),
}

/// Called before each operation, with its name and file; nothing is locked.
type Hook = Box<dyn Fn(&str, &str) -> io::Result<()> + Send + Sync>;

/// A directory in memory.
#[derive(Clone, Default)]
pub(crate) struct RamDisk(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<Ram>,
    hook: Mutex<Option<Arc<Hook>>>,
}

#[derive(Clone, Default)]
struct Ram {
    files: Vec<RamFile>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    unsynced_names: Vec<NameOp>,
    operations: Vec<String>,
    power_for: Option<usize>,
}

#[derive(Clone, Default)]
struct RamFile {
    content: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<DataOp>,
}

#[derive(Clone)]
enum NameOp {
    Create(String, usize),
    Rename(String, String),
}

#[derive(Clone)]
enum DataOp {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

impl RamDisk {
    /// Lets `count` more operations happen; all later ones fail.
    pub(crate) fn power_off_after(&self, count: usize) {
        let mut ram = self.0.state.lock();
        ram.power_for = Some(ram.operations.len() + count);
    }

    /// Calls `hook` before each operation from now on.
    pub(crate) fn hook(&self, hook: impl Fn(&str, &str) -> io::Result<()> + Send + Sync + 'static) {
        *self.0.hook.lock() = Some(Arc::new(Box::new(hook)));
    }

    /// Every operation so far that changed something: "sync journal".
    pub(crate) fn operations(&self) -> Vec<String> {
        self.0.state.lock().operations.clone()
    }

    /// The names and contents, as a process sees them.
    pub(crate) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let ram = self.0.state.lock();
        ram.names.iter().map(|(name, file)| (name.clone(), ram.files[*file].content.clone())).collect()
    }

    /// A disk with these files, all synced.
    pub(crate) fn with_files(files: &BTreeMap<String, Vec<u8>>) -> Self {
        let disk = Self::default();
        let mut ram = disk.0.state.lock();
        for (number, (name, content)) in files.iter().enumerate() {
            ram.files.push(RamFile {
                content: content.clone(),
                durable: content.clone(),
                unsynced: Vec::new(),
            });
            ram.names.insert(name.clone(), number);
        }
        ram.durable_names = ram.names.clone();
        drop(ram);
        disk
    }

    /// The disk after the process was killed: nothing is lost, and nothing has been synced either.
    pub(crate) fn after_kill(&self) -> Self {
        let state = self.0.state.lock().clone();
        let state = Mutex::new(Ram { power_for: None, operations: Vec::new(), ..state });
        Self(Arc::new(Shared { state, hook: Mutex::new(None) }))
    }

    /// The disk after a crash of the machine.
    pub(crate) fn after_crash(&self, data: Fate, names: Fate) -> Self {
        let ram = self.0.state.lock();
        let mut found = BTreeMap::new();
        for (name, file) in ram.names_after(names) {
            found.insert(name, ram.files[file].after(data));
        }
        Self::with_files(&found)
    }

    fn change<T>(
        &self,
        what: &str,
        name: &str,
        act: impl FnOnce(&mut Ram) -> io::Result<T>,
    ) -> io::Result<T> {
        self.call_hook(what, name)?;
        self.operate(what, name, act)
    }

    fn call_hook(&self, what: &str, name: &str) -> io::Result<()> {
        let hook = self.0.hook.lock().clone();
        hook.map_or(Ok(()), |hook| hook(what, name))
    }

    fn operate<T>(
        &self,
        what: &str,
        name: &str,
        act: impl FnOnce(&mut Ram) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut ram = self.0.state.lock();
        if ram.power_for.is_some_and(|limit| ram.operations.len() >= limit) {
            return Err(errno(libc::EIO));
        }
        ram.operations.push(format!("{what} {name}"));
        act(&mut ram)
    }
}

impl Ram {
    fn names_after(&self, fate: Fate) -> BTreeMap<String, usize> {
        let mut names = self.durable_names.clone();
        for (n, op) in self.unsynced_names.iter().enumerate() {
            if fate.keeps(n) {
                apply_name_op(&mut names, op);
            }
        }
        names
    }
}

impl Fate {
    fn keeps(self, n: usize) -> bool {
        match self {
            Fate::Kept => true,
            Fate::Dropped => false,
            Fate::First(count) | Fate::Zeroed(count) => n < count,
            Fate::Without(lost) => n != lost,
        }
    }
}

impl RamFile {
    fn after(&self, fate: Fate) -> Vec<u8> {
        let mut content = self.durable.clone();
        let mut left = match fate {
            Fate::First(bytes) | Fate::Zeroed(bytes) => bytes,
            _ => usize::MAX,
        };
        for (n, op) in self.unsynced.iter().enumerate() {
            match op {
                _ if matches!(fate, Fate::Dropped | Fate::Without(_)) && !fate.keeps(n) => {}
                DataOp::Truncate(length) => content.truncate(*length),
                DataOp::Write(at, bytes) => {
                    let count = left.min(bytes.len());
                    left -= count;
                    if count > 0 {
                        write(&mut content, *at, &bytes[..count]);
                    }
                }
            }
        }
        if let Fate::Zeroed(_) = fate
            && content.len() < self.content.len()
        {
            content.resize(self.content.len(), 0);
        }
        content
    }
}

fn apply_name_op(names: &mut BTreeMap<String, usize>, op: &NameOp) {
    match op {
        NameOp::Create(name, file) => drop(names.insert(name.clone(), *file)),
        NameOp::Rename(from, to) => {
            if let Some(file) = names.remove(from) {
                names.insert(to.clone(), file);
            }
        }
    }
}

fn apply_data_op(content: &mut Vec<u8>, op: &DataOp) {
    match op {
        DataOp::Write(at, bytes) => write(content, *at, bytes),
        DataOp::Truncate(length) => content.truncate(*length),
    }
}

fn write(content: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    content.resize(content.len().max(at + bytes.len()), 0);
    content[at..at + bytes.len()].copy_from_slice(bytes);
}

/// An error of the operating system.
pub(crate) fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

impl Disk for RamDisk {
    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("/ram").join(name)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let number = self.change("create", name, |ram| {
            ram.files.push(RamFile::default());
            let number = ram.files.len() - 1;
            ram.names.insert(name.to_owned(), number);
            ram.unsynced_names.push(NameOp::Create(name.to_owned(), number));
            Ok(number)
        })?;
        Ok(Arc::new(Handle { disk: self.clone(), name: name.to_owned(), number }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let number = self.0.state.lock().names.get(name).copied().ok_or_else(|| errno(libc::ENOENT))?;
        let file = Handle { disk: self.clone(), name: name.to_owned(), number };
        file.sync()?;
        Ok(Arc::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change("rename", from, |ram| {
            let op = NameOp::Rename(from.to_owned(), to.to_owned());
            apply_name_op(&mut ram.names, &op);
            ram.unsynced_names.push(op);
            Ok(())
        })
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.change("sync", "directory", |ram| {
            ram.durable_names = ram.names.clone();
            ram.unsynced_names.clear();
            Ok(())
        })
    }
}

struct Handle {
    disk: RamDisk,
    name: String,
    number: usize,
}

impl Handle {
    fn change(&self, what: &str, act: impl FnOnce(&mut RamFile)) -> io::Result<()> {
        self.disk.change(what, &self.name, |ram| {
            act(&mut ram.files[self.number]);
            Ok(())
        })
    }
}

impl DiskFile for Handle {
    fn read(&self) -> io::Result<Vec<u8>> {
        self.disk.call_hook("read", &self.name)?;
        Ok(self.disk.0.state.lock().files[self.number].content.clone())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        // A write that fails on demand has written half of its bytes first.
        let allowed = self.disk.call_hook("write", &self.name);
        let written = if allowed.is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
        self.disk.operate("write", &self.name, |ram| {
            let file = &mut ram.files[self.number];
            write(&mut file.content, offset as usize, written);
            file.unsynced.push(DataOp::Write(offset as usize, written.to_vec()));
            allowed
        })
    }

    /// Changes nothing that a crash could undo.
    fn keep_room(&self, _offset: u64, _length: u64) -> io::Result<()> {
        self.disk.call_hook("keep room", &self.name)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.change("truncate", |file| {
            file.content.truncate(length as usize);
            file.unsynced.push(DataOp::Truncate(length as usize));
        })
    }

    /// Covers the operations before the call, and none that come while it is at work.
    fn sync(&self) -> io::Result<()> {
        let covered = self.disk.0.state.lock().files[self.number].unsynced.len();
        self.change("sync", |file| {
            let covered: Vec<_> = file.unsynced.drain(..covered.min(file.unsynced.len())).collect();
            covered.iter().for_each(|op| apply_data_op(&mut file.durable, op));
        })
    }
}
