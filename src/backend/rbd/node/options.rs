//! How an image is to be mapped: the parameters `mounter` and `mapOptions`.

use crate::error::{Error, Result};

/// What maps an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mounter {
    /// The kernel, asked through its own files.
    #[default]
    Kernel,
    /// `rbd-nbd`: every feature of librbd, a process for each device.
    Nbd,
}

/// Options of the kernel's driver that change neither the user nor the image (Documentation/admin-guide,
/// rbd(8) "KERNEL RBD OPTIONS").
const KERNEL: [&str; 25] = [
    "abort_on_full",
    "alloc_size",
    "cephx_require_signatures",
    "cephx_sign_messages",
    "compression_hint",
    "crc",
    "crush_location",
    "exclusive",
    "lock_on_read",
    "lock_timeout",
    "mount_timeout",
    "ms_mode",
    "nocephx_require_signatures",
    "nocephx_sign_messages",
    "nocrc",
    "noshare",
    "notcp_nodelay",
    "notrim",
    "osd_idle_ttl",
    "osd_request_timeout",
    "osdkeepalive",
    "queue_depth",
    "read_from_replica",
    "rxbounce",
    "tcp_nodelay",
];

/// Options of rbd-nbd(8) of the same kind. Others name files and programs that it would write or run as root.
const NBD: [&str; 4] = ["exclusive", "io-timeout", "reattach-timeout", "try-netlink"];

impl Mounter {
    /// Its name in parameters. The kernel has the name that users of ceph-csi know.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "rbd",
            Self::Nbd => "rbd-nbd",
        }
    }

    /// The mounter of this name; none means the kernel.
    ///
    /// # Errors
    /// An invalid argument, with the names there are.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "" | "rbd" | "krbd" => Ok(Self::Kernel),
            "rbd-nbd" => Ok(Self::Nbd),
            _ => Err(Error::invalid(format!(
                "the parameter \"mounter\" is {name:?}: allowed are rbd (the kernel) and rbd-nbd"
            ))),
        }
    }

    /// The prefix of its options in a text that may have options of other mounters, too.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Kernel => "krbd",
            Self::Nbd => "nbd",
        }
    }

    fn known(self) -> &'static [&'static str] {
        match self {
            Self::Kernel => &KERNEL,
            Self::Nbd => &NBD,
        }
    }

    /// The options for this mounter in a text like `krbd:queue_depth=64,notrim;nbd:io-timeout=60`. Without a
    /// prefix they are the kernel's.
    ///
    /// # Errors
    /// An invalid argument for an option that is unknown, or could be read as several; also if it is another
    /// mounter's.
    pub fn parse_options(self, text: &str) -> Result<Vec<String>> {
        let mut mine = Vec::new();
        for part in text.split(';').filter(|part| !part.is_empty()) {
            let (mounter, options) = match part.split_once(':') {
                Some(("krbd", options)) => (Self::Kernel, options),
                Some(("nbd", options)) => (Self::Nbd, options),
                _ => (Self::Kernel, part),
            };
            let options: Vec<&str> = options.split(',').filter(|option| !option.is_empty()).collect();
            options.iter().try_for_each(|option| mounter.check(option))?;
            if mounter.prefix() == self.prefix() {
                mine.extend(options.into_iter().map(str::to_owned));
            }
        }
        Ok(mine)
    }

    /// Checks that `option` is a single option that this mounter permits.
    pub(super) fn check(self, option: &str) -> Result<()> {
        let (name, value) = option.split_once('=').unwrap_or((option, "-"));
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:|".contains(c);
        if self.known().contains(&name) && !value.is_empty() && value.chars().all(plain) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "the parameter 'mapOptions' has {option:?}: for {} there are {}",
            self.prefix(),
            self.known().join(", ")
        )))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn mounters_have_names() {
        let named = ["", "rbd", "krbd", "rbd-nbd"].map(|name| Mounter::parse(name).unwrap());
        assert_eq!(named, [Mounter::Kernel, Mounter::Kernel, Mounter::Kernel, Mounter::Nbd]);
        assert!(Mounter::parse("fuse").unwrap_err().message().contains("rbd-nbd"));
    }

    #[test]
    fn each_mounter_gets_its_own_options() {
        let text = "krbd:queue_depth=64,notrim;nbd:io-timeout=60;lock_on_read";
        assert_eq!(
            Mounter::Kernel.parse_options(text).unwrap(),
            ["queue_depth=64", "notrim", "lock_on_read"]
        );
        assert_eq!(Mounter::Nbd.parse_options(text).unwrap(), ["io-timeout=60"]);
        assert_eq!(
            Mounter::Kernel.parse_options("crush_location=rack:r1|host:h2").unwrap(),
            ["crush_location=rack:r1|host:h2"]
        );
        assert!(Mounter::Nbd.parse_options("").unwrap().is_empty());
    }

    #[test]
    fn nobody_smuggles() {
        for text in [
            "secret=x",
            "name=admin",
            "key=client.admin",
            "_pool_ns=other",
            "ro",
            "rw",
            "fsid=1",
            "queue_depth=1 secret=x",
        ] {
            assert_eq!(
                Mounter::Kernel.parse_options(text).unwrap_err().kind(),
                Kind::InvalidArgument,
                "{text}"
            );
        }
        for text in [
            "queue_depth=1\n",
            "queue_depth=",
            "queue_depth=1=2",
            "notrim\tro",
            "nbd:quiesce-hook=/bin/x",
            "nbd:log-file=/x",
        ] {
            assert_eq!(
                Mounter::Kernel.parse_options(text).unwrap_err().kind(),
                Kind::InvalidArgument,
                "{text}"
            );
        }
    }
}
