//! Network block devices: `/sys/block/nbdN` (drivers/block/nbd.c), and the processes behind them.
//!
//! A device carries the cookie it was connected with (`--cookie` of rbd-nbd(8)): in its attribute `backend`
//! since Linux 5.14, before that on the command line of its process. A device without a cookie is not
//! cephlet's and is not listed. This module opens no device and starts no process.

use std::fs;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::block::DeviceNumber;

/// A connected device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectedDevice {
    /// N of `/dev/nbdN`.
    pub number: u32,
    /// The cookie it was connected with.
    pub cookie: String,
    /// Whether it is read-only.
    pub read_only: bool,
    /// Its size in bytes.
    pub size: u64,
    /// The process that connected it, even if that was killed and another process took over.
    pub process: u32,
}

impl ConnectedDevice {
    /// The path of its node.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/nbd{}", self.number))
    }
}

/// Where the kernel shows devices and processes.
#[derive(Clone, Debug)]
pub struct Table {
    sysfs: PathBuf,
    procfs: PathBuf,
}

impl Default for Table {
    fn default() -> Self {
        Self::at("/sys", "/proc")
    }
}

impl Table {
    /// The devices and processes that these directories show.
    pub fn at(sysfs: impl Into<PathBuf>, procfs: impl Into<PathBuf>) -> Self {
        Self { sysfs: sysfs.into(), procfs: procfs.into() }
    }

    /// Whether the driver is loaded.
    pub fn is_loaded(&self) -> bool {
        self.sysfs.join("module/nbd").is_dir()
    }

    /// Every connected device that has a cookie, in the order of the numbers.
    ///
    /// # Errors
    /// Those of reading sysfs; a kernel without the driver has no such devices.
    pub fn connected(&self) -> io::Result<Vec<ConnectedDevice>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.sysfs.join("block"))? {
            let name = entry?.file_name();
            let number = name
                .to_str()
                .and_then(|name| name.strip_prefix("nbd"))
                .and_then(|number| number.parse().ok());
            if let Some(number) = number {
                found.extend(self.read(number)?);
            }
        }
        found.sort_unstable_by_key(|device| device.number);
        Ok(found)
    }

    /// The device of this number, if it is connected and has a cookie.
    ///
    /// # Errors
    /// Those of reading sysfs.
    pub fn read(&self, number: u32) -> io::Result<Option<ConnectedDevice>> {
        // This file exists only while the device is connected.
        let Some(process) = self.attribute(number, "pid")?.and_then(|pid| pid.parse().ok()) else {
            return Ok(None);
        };
        let on_command_line = || self.cookie_of(process);
        let Some(cookie) = self.attribute(number, "backend")?.or_else(on_command_line) else {
            return Ok(None);
        };
        let read_only = self.attribute(number, "ro")?.is_some_and(|value| value != "0");
        let sectors: u64 =
            self.attribute(number, "size")?.and_then(|sectors| sectors.parse().ok()).unwrap_or(0);
        Ok(Some(ConnectedDevice { number, cookie, read_only, size: sectors * 512, process }))
    }

    /// Whether the device is still connected with its cookie. Another process may have taken over.
    ///
    /// # Errors
    /// Those of reading sysfs.
    pub fn is_connected(&self, device: &ConnectedDevice) -> io::Result<bool> {
        Ok(self.read(device.number)?.is_some_and(|now| now.cookie == device.cookie))
    }

    /// Major and minor number of a device; None when it is gone.
    ///
    /// # Errors
    /// Those of reading sysfs.
    pub fn device_number(&self, number: u32) -> io::Result<Option<DeviceNumber>> {
        Ok(self.attribute(number, "dev")?.as_deref().and_then(DeviceNumber::parse))
    }

    /// Whether a process serves the device: the one that connected it, or one that took over.
    ///
    /// # Errors
    /// Those of reading the list of processes.
    pub fn is_served(&self, device: &ConnectedDevice) -> io::Result<bool> {
        if self.serves(device.process, device) {
            return Ok(true);
        }
        let mut processes = fs::read_dir(&self.procfs)?
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Ok(processes.any(|process| self.serves(process, device)))
    }

    /// Whether this process serves the device. A serving process has the device open itself.
    pub fn serves(&self, process: u32, device: &ConnectedDevice) -> bool {
        self.cookie_of(process).is_some_and(|cookie| cookie == device.cookie)
    }

    /// The value after `--cookie` in the arguments of a process. Unlike its name, they are read from the
    /// memory of the process, and that can hang.
    fn cookie_of(&self, process: u32) -> Option<String> {
        let about = self.procfs.join(process.to_string());
        if fs::read_to_string(about.join("comm")).ok()?.trim_end() != "rbd-nbd" {
            return None;
        }
        let line = fs::read(about.join("cmdline")).ok()?;
        let mut arguments = line.split(|byte| *byte == 0);
        arguments.find(|argument| *argument == b"--cookie")?;
        String::from_utf8(arguments.next()?.to_vec()).ok()
    }

    fn attribute(&self, number: u32, attribute: &str) -> io::Result<Option<String>> {
        match fs::read_to_string(self.sysfs.join(format!("block/nbd{number}/{attribute}"))) {
            Ok(text) => Ok(Some(text.trim_end_matches('\n').to_owned())),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    struct Machine {
        dir: tempfile::TempDir,
        table: Table,
    }

    impl Machine {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            for name in ["sys/block/loop0", "sys/block/nbd7", "proc/self"] {
                fs::create_dir_all(dir.path().join(name)).unwrap();
            }
            let table = Table::at(dir.path().join("sys"), dir.path().join("proc"));
            Self { dir, table }
        }

        fn connect(&self, number: u32, process: u32, backend: Option<&str>) {
            let device = self.dir.path().join(format!("sys/block/nbd{number}"));
            fs::create_dir_all(&device).unwrap();
            let process = process.to_string();
            for (name, value) in
                [("pid", process.as_str()), ("ro", "0"), ("size", "131072"), ("dev", "43:16")]
            {
                fs::write(device.join(name), format!("{value}\n")).unwrap();
            }
            if let Some(backend) = backend {
                fs::write(device.join("backend"), format!("{backend}\n")).unwrap();
            }
        }

        fn run(&self, process: u32, arguments: &[&str]) {
            let directory = self.dir.path().join(format!("proc/{process}"));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("cmdline"), arguments.join("\0") + "\0").unwrap();
            let name = arguments[0].rsplit('/').next().unwrap();
            fs::write(directory.join("comm"), format!("{name}\n")).unwrap();
        }
    }

    #[test]
    fn connected_devices_are_told_by_their_cookies() {
        let machine = Machine::new();
        machine.connect(10, 40, Some("b"));
        machine.connect(2, 41, Some("a"));
        machine.connect(3, 42, None);
        let found = machine.table.connected().unwrap();
        let device = |number, cookie: &str, process| ConnectedDevice {
            number,
            cookie: cookie.into(),
            read_only: false,
            size: 64 << 20,
            process,
        };
        assert_eq!(found, [device(2, "a", 41), device(10, "b", 40)]);
        assert_eq!(machine.table.device_number(2).unwrap(), Some(DeviceNumber { major: 43, minor: 16 }));
        assert_eq!((machine.table.read(7).unwrap(), machine.table.read(99).unwrap()), (None, None));
    }

    #[test]
    fn an_older_kernel_leaves_the_cookie_to_the_process() {
        let machine = Machine::new();
        machine.connect(0, 40, None);
        machine.run(40, &["rbd-nbd", "map", "--cookie", "a", "rbd/x"]);
        machine.connect(1, 41, None);
        machine.run(41, &["cat", "--cookie", "b"]);
        let found = machine.table.connected().unwrap();
        assert_eq!(found.iter().map(|device| device.cookie.as_str()).collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn who_took_over_serves_the_device() {
        let machine = Machine::new();
        machine.connect(0, 40, Some("a"));
        let device = machine.table.read(0).unwrap().unwrap();
        assert!(!machine.table.is_served(&device).unwrap());
        machine.run(50, &["/usr/bin/rbd-nbd", "attach", "--cookie", "other"]);
        assert!(!machine.table.is_served(&device).unwrap());
        machine.run(51, &["/usr/bin/rbd-nbd", "attach", "--cookie", "a", "--device", "/dev/nbd0", "rbd/x"]);
        assert!(machine.table.is_served(&device).unwrap());
    }
}
