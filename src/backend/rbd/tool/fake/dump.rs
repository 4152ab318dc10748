//! What exists, as text to compare: sorted lines, without ids where a name tells the same.
//!
//! ```text
//! claim rbd/abcdefghij234: tag "description" shared "pool"
//! client of rbd/b: 10.0.0.7:0/1 "description" shared "tag"
//! half-made rbd/a
//! image rbd/b 1024
//! image rbd/c 1024 of rbd/b@s
//! lock image rbd/b: node-1 "description" shared "tag"
//! object header rbd/1000000009e37: node-1 "description"      (of an image that is gone)
//! object name rbd/abcdefghij234: tag "description" shared "image@snapshot"
//! second name rbd/f of rbd/g                                  ("of nothing" where the image is gone)
//! snapshot rbd/b@s 1024                                       ("trashed" if in the image's trash)
//! trash rbd/e 1024                                            ("unseen", "not yet" if broken off)
//! ```

use super::object::Object;
use super::state::{Disk, Path, Place, State};
use crate::backend::rbd::tool::{LockHolder, Parent, SnapshotInfo};
use crate::ids::is_hex;

/// A name with its pool and namespace.
fn at(pool: &str, namespace: &str, name: &str) -> String {
    if namespace.is_empty() { format!("{pool}/{name}") } else { format!("{pool}/{namespace}/{name}") }
}

fn of_disk(disk: &Disk) -> String {
    at(&disk.pool, &disk.namespace, &disk.name)
}

fn image(state: &State, disk: &Disk) -> String {
    let (kind, remark) = match disk.place {
        Place::Directory => ("image", ""),
        Place::Trash => ("trash", ""),
        Place::Removing => ("trash", " unseen"),
        Place::Moving => ("trash", " not yet"),
    };
    let of = |parent: Parent| {
        format!(" of {}@{}", at(&parent.pool, &parent.namespace, &parent.image), parent.snapshot)
    };
    let parent = state.parent(disk).map(of).unwrap_or_default();
    format!("{kind} {} {}{parent}{remark}", of_disk(disk), disk.size)
}

fn snapshots(disk: &Disk) -> impl Iterator<Item = String> {
    let line = |snap: &SnapshotInfo| {
        let remark = if snap.trashed { " trashed" } else { "" };
        format!("snapshot {}@{} {}{remark}", of_disk(disk), snap.name, snap.size)
    };
    disk.snapshots.iter().map(move |shot| line(&shot.snap))
}

/// A holder. Of the cookie of a claim only the controller's tag is shown, without the drawn digits.
fn holder(holder: &LockHolder) -> String {
    let claimant = holder.cookie.split_once('-').filter(|(tag, _)| tag.len() == 8 && is_hex(tag));
    let cookie = claimant.map_or(holder.cookie.as_str(), |(tag, _)| tag);
    let shared = holder.shared.as_ref().map(|tag| format!(" shared {tag:?}")).unwrap_or_default();
    format!("{cookie} {:?}{shared}", holder.description)
}

/// The lines of an object: one for each lock; one at least if it does not belong to an image.
fn object(state: &State, pool: &str, namespace: &str, object: &Object, holders: &[String]) -> Vec<String> {
    let (subject, bare) = match object {
        Object::Header(id) => match state.images.get(id) {
            Some(disk) => (format!("lock image {}", of_disk(disk)), false),
            None => (format!("object header {}", at(pool, namespace, id)), true),
        },
        Object::Clients(id) => (
            state
                .images
                .get(id)
                .map_or(format!("clients {id}"), |disk| format!("client of {}", of_disk(disk))),
            false,
        ),
        Object::Owner(id) => (
            state.images.get(id).map_or(format!("owner {id}"), |disk| format!("owner of {}", of_disk(disk))),
            false,
        ),
        Object::BareName(name) => (format!("bare name {}", at(pool, namespace, name)), false),
        Object::Name(digits) => (format!("object name {}", at(pool, namespace, digits)), true),
        Object::Claim(digits) => (format!("claim {}", at(pool, namespace, digits)), true),
    };
    match holders {
        [] if bare => vec![subject],
        holders => holders.iter().map(|holder| format!("{subject}: {holder}")).collect(),
    }
}

fn second_name(state: &State, (pool, namespace, name): &Path, id: &str) -> String {
    let own = state.images.get(id).map_or("nothing".to_string(), of_disk);
    format!("second name {} of {own}", at(pool, namespace, name))
}

/// The dump of everything that exists.
pub(super) fn text(state: &State) -> String {
    let mut lines: Vec<String> = state.images.values().map(|disk| image(state, disk)).collect();
    lines.extend(state.images.values().flat_map(snapshots));
    lines.extend(
        state
            .half_made
            .iter()
            .map(|(pool, namespace, name)| format!("half-made {}", at(pool, namespace, name))),
    );
    lines.extend(state.second_names.iter().map(|(path, id)| second_name(state, path, id)));
    for ((pool, namespace, it), locks) in &state.objects {
        let holders: Vec<String> = locks.iter().map(|lock| holder(&lock.holder)).collect();
        lines.extend(object(state, pool, namespace, it, &holders));
    }
    lines.sort();
    lines.join("\n")
}
