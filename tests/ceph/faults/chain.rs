//! Chains of clones of the greatest length.

use cephlet::proto::csi_v1::CreateVolumeRequest;

use crate::support::client::Answer;
use crate::support::requests::*;
use crate::support::{Client, Corner, MIB};

/// The most parents that an image may have.
const DEEPEST: usize = 8;
const MIBS: i64 = 8;
/// Many small objects: a flatten that is killed has some of them half done.
const LAYOUT: [(&str, &str); 1] = [("objectSize", "64K")];

/// A chain of clones. A copy of its end is flattened while it is made.
pub struct Chain<'a> {
    corner: &'a Corner,
    pub volumes: Vec<String>,
    snapshots: Vec<String>,
}

impl<'a> Chain<'a> {
    /// A chain of the greatest length, with content.
    #[track_caller]
    pub fn grow(corner: &'a Corner, client: &Client) -> Self {
        let root = client.create(&corner.volume_with("root", MIBS, &LAYOUT)).expect("create").volume_id;
        // Every object has data, so that an object that a flatten loses is missed.
        let content: Vec<u8> = (0..MIBS * MIB).map(|at| (at >> 8) as u8 | 1).collect();
        corner.poke(&root, 0, &content);
        let mut chain = Self { corner, volumes: vec![root], snapshots: Vec::new() };
        chain.take_snapshot(client);
        for link in 1..=DEEPEST {
            let copy = chain.copy(client, &format!("link-{link}"));
            chain.volumes.push(copy);
            chain.take_snapshot(client);
        }
        chain
    }

    fn take_snapshot(&mut self, client: &Client) {
        let name = format!("snap-{}", self.volumes.len());
        let taken = client
            .create_snapshot(&snapshot(&name, self.volumes.last().expect("a volume")))
            .expect("snapshot");
        self.snapshots.push(taken.snapshot.snapshot_id.clone());
    }

    /// A copy of its end.
    #[track_caller]
    pub fn copy(&self, client: &Client, name: &str) -> String {
        self.try_copy(client, name).expect("copy")
    }

    /// The same, but it may be refused.
    pub fn try_copy(&self, client: &Client, name: &str) -> Answer<String> {
        client.create(&self.request(name)).map(|made| made.volume_id)
    }

    /// The request for such a copy.
    pub fn request(&self, name: &str) -> CreateVolumeRequest {
        let volume = self.corner.volume_with(name, MIBS, &LAYOUT);
        from_snapshot(volume, self.snapshots.last().expect("a snapshot"))
    }

    #[track_caller]
    pub fn delete(self, client: &Client) {
        for (id, snap) in self.volumes.iter().zip(&self.snapshots).rev() {
            client.delete_snapshot(&delete_snapshot(snap)).expect("delete the snapshot");
            client.delete_volume(&delete(id)).expect("delete");
        }
    }
}
