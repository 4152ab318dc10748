//! A directory that is kept open, so that nothing it does depends on its path.

#![expect(clippy::disallowed_methods, reason = "what it writes is to be durable")]

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{self, Mode, OFlags};

use super::files::{failed, is_name};
use crate::error::{Error, Result};
use crate::sys::crash;

/// A directory kept open.
#[derive(Debug)]
pub(super) struct Directory {
    pub fd: OwnedFd,
    pub path: PathBuf,
}

impl Directory {
    /// Opens the directory, made with mode 0700 if it is missing. All its parents are made too.
    pub fn ensure(path: PathBuf) -> Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(|error| {
            Error::io(format_args!("make the directory {} of local volumes", path.display()), &error)
        })?;
        let fd = fs::open(&path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| failed(format_args!("open {}", path.display()), errno))?;
        Ok(Self { fd, path })
    }

    /// Makes every name in the directory durable.
    pub fn sync(&self) -> Result<()> {
        crash::point("sync directory");
        fs::fsync(&self.fd).map_err(|errno| failed(format_args!("sync {}", self.path.display()), errno))?;
        crash::point("directory synced");
        Ok(())
    }

    /// Every name in the directory, in no order.
    pub fn names(&self) -> Result<Vec<String>> {
        let fail = |errno| failed(format_args!("list {}", self.path.display()), errno);
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.fd).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            if let Ok(name) = entry.file_name().to_str()
                && is_name(name)
            {
                names.push(name.to_string());
            }
        }
        Ok(names)
    }
}
