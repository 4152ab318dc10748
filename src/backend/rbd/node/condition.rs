//! What the kernel says about the health of a mapping, without any I/O.
//!
//! krbd reports no health in sysfs. In debugfs it lists its watches. A writable mapping holds a watch on its
//! image's header. It loses the watch when the cluster blocklists this client (seen on Linux 6.1: the line is
//! gone, and every I/O fails with EIO until the image is mapped again), and for a moment while it changes to
//! another OSD. A read-only mapping has no watch, and an OSD that hangs does not end one. Without debugfs
//! nothing is known.

use super::Mapper;
use crate::backend::{BlockDevice, Condition, Fault, Reason};
use crate::kernel::Backing;
use crate::sys::rbd::MappedImage;

impl Mapper {
    /// What is wrong with a mapping, as the kernel reports it; None also if the kernel reports nothing.
    pub fn condition(&self, device: &BlockDevice) -> Condition {
        let path = device.path.display();
        let (reason, detail) = match &device.backing {
            Backing::Rbd(image) if image.read_only => None,
            Backing::Rbd(image) => self.bus.watches(image).is_some_and(|list| !has_watch(&list, image)).then(|| {
                let detail = format!(
                    "{path} has lost its watch on the image, and so fails or will fail all I/O: the cluster \
                     has blocklisted this node \
                     (`ceph osd blocklist ls`) or cannot be reached; unpublish and unstage the volume everywhere \
                     on this node, and stage it again"
                );
                (Reason::WatchLost, detail)
            }),
            Backing::Nbd(connected) => self.table.is_served(connected).is_ok_and(|served| !served).then(|| {
                let detail = format!(
                    "{path} has lost its rbd-nbd process and fails all I/O: unstage the volume and stage it again"
                );
                (Reason::ProcessEnded, detail)
            }),
            Backing::Loop(_) => None,
        }?;
        Some(Fault::new(reason, detail))
    }

    /// Whether debugfs lists the watches of this mapping's client.
    pub(super) fn sees_watch(&self, device: &BlockDevice) -> bool {
        matches!(&device.backing, Backing::Rbd(image) if self.bus.watches(image).is_some())
    }
}

/// Whether the list has a watch without error on the image's header. A line's fields: id, OSD, pool and
/// object hash, PG, up, acting, epoch, object (with its namespace in front), flags, attempts, and `W` for a
/// watch, `C` for registered, `/` and its last error.
fn has_watch(list: &str, image: &MappedImage) -> bool {
    let header = format!("rbd_header.{}", image.image_id);
    let object = if image.namespace.is_empty() { header } else { format!("{}/{header}", image.namespace) };
    let lingering =
        list.lines().skip_while(|line| *line != "LINGER REQUESTS").take_while(|line| *line != "BACKOFFS");
    lingering.map(|line| line.split('\t').collect::<Vec<_>>()).any(|fields| {
        fields.contains(&object.as_str())
            && fields.last().is_some_and(|state| state.starts_with('W') && state.ends_with("/0"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(namespace: &str, image_id: &str) -> MappedImage {
        MappedImage {
            number: 0,
            pool: "rbd".into(),
            namespace: namespace.into(),
            name: "a1".into(),
            image_id: image_id.into(),
            snapshot: "-".into(),
            fsid: String::new(),
            client: String::new(),
            address: String::new(),
            monitors: Vec::new(),
            has_own_client: true,
            read_only: false,
        }
    }

    /// Linux 6.1.
    const HEALTHY: &str = "REQUESTS 0 homeless 0\nLINGER REQUESTS\n\
        18446462598732840961\tosd0\t1.1979c13c\t1.4\t[0]/0\t[0]/0\te13\trbd_header.10317342a3d\t0x20\t0\tWC/0\n\
        18446462598732840963\tosd0\t1.ffc38860\t1.0\t[0]/0\t[0]/0\te13\tn1/rbd_header.1037658db35b\t0x20\t0\tWC/0\nBACKOFFS\n";

    #[test]
    fn a_watch_is_a_good_sign() {
        assert!(has_watch(HEALTHY, &image("", "10317342a3d")));
        assert!(has_watch(HEALTHY, &image("n1", "1037658db35b")));
        assert!(!has_watch(HEALTHY, &image("", "1037658db35b")), "that one is in a namespace");
        assert!(!has_watch(HEALTHY, &image("", "10317342")));
    }

    #[test]
    fn a_blocklisted_client_has_none() {
        let after = "REQUESTS 0 homeless 0\nLINGER REQUESTS\nBACKOFFS\n";
        assert!(!has_watch(after, &image("", "10317342a3d")));
        assert!(!has_watch(&HEALTHY.replace("WC/0", "W/-108"), &image("", "10317342a3d")));
    }
}
