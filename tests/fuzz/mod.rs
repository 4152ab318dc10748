//! Input from other programs is read without harm: the table of mounts, superblocks, IDs, the tools' answers,
//! the clusters file, the journal.
//!
//! Each target changes samples at random and reads them: briefly before each change, and for a minute in
//! `tests/run --full` (the ignored ones). A failure shows the input.
#![allow(clippy::unwrap_used)]

mod input;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use self::input::{for_a_minute, rounds};
use crate::backend::ceph::{ClusterAccess, PoolRef, Programs};
use crate::backend::rbd::tool::cli::CommandTool;
use crate::backend::rbd::tool::*;
use crate::clusters::{Cluster, ClusterSource, Clusters};
use crate::config::HostCluster;
use crate::dispatch::Call;
use crate::exec::{Cmd, CommandError, Output, Runner, Tool};
use crate::ids::{SnapshotId, VolumeId};
use crate::journal::ram::RamDisk;
use crate::journal::{Journal, Table};
use crate::secrets::Secrets;
use crate::sys::mountinfo::Mounts;
use crate::sys::superblock::classify;

/// Two tests of a target: a brief one, and one that takes a minute.
macro_rules! target {
    ($name:ident, $samples:expr, $read:expr) => {
        mod $name {
            #[test]
            fn briefly() {
                super::rounds(2_000, &$samples, $read);
            }

            #[test]
            #[ignore = "long: tests/run --full"]
            fn for_a_minute() {
                super::for_a_minute(&$samples, $read);
            }
        }
    };
}

target!(mounts, super::mount_tables(), super::read_mounts);
target!(superblocks, super::superblocks(), super::read_superblock);
target!(ids, super::ids(), super::read_ids);
target!(tools, super::answers(), super::read_answer);
target!(clusters_file, super::clusters_files(), super::read_clusters);
target!(journal, super::journals(), super::read_journal);

fn mount_tables() -> Vec<Vec<u8>> {
    let own = std::fs::read("/proc/self/mountinfo").unwrap();
    let escaped = b"36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n37 36 0:5 / /a rw - tmpfs  rw\n";
    vec![own, escaped.to_vec()]
}

fn read_mounts(table: &[u8]) {
    let Ok(mounts) = Mounts::parse(table) else { return };
    for path in ["/", "/mnt 2", "/proc", "/a"] {
        let found = mounts.find_at(Path::new(path));
        assert!(found.is_none_or(|mount| mount.mount_point == Path::new(path)));
    }
}

/// The first 72 KiB of a device with each file system, and of two others.
fn superblocks() -> Vec<Vec<u8>> {
    const HEAD: usize = 72 << 10;
    let directory = tempfile::tempdir().unwrap();
    let head = |(number, words): (usize, &[&str])| {
        let path = directory.path().join(number.to_string());
        std::fs::File::create(&path).unwrap().set_len(512 << 20).unwrap();
        let made = std::process::Command::new(words[0]).args(&words[1..]).arg(&path).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let mut head = vec![0; HEAD];
        std::io::Read::read_exact(&mut std::fs::File::open(&path).unwrap(), &mut head).unwrap();
        head
    };
    let tools: [&[&str]; 5] = [
        &["mkfs.ext4", "-q", "-F"],
        &["mkfs.ext2", "-q", "-F"],
        &["mkfs.xfs", "-q"],
        &["mkfs.btrfs", "-q"],
        &["mkswap"],
    ];
    tools.into_iter().enumerate().map(head).chain([vec![0; HEAD]]).collect()
}

fn read_superblock(head: &[u8]) {
    let _ = classify(head, &head[head.len() / 2..], head.len() as u64);
}

fn ids() -> Vec<Vec<u8>> {
    let texts = [
        "rbd:ceph:rbd::csi-vol-web-abcdefghijklm:10309e725270",
        "rbd:a%3Ab:p%2F:n:x:1",
        "local:node-1:::csi-vol-abcdefghijklm:0123456789abcdef",
        "local:node-1:::csi-vol-abcdefghijklm",
        "rbd:ceph:rbd:team:csi-vol-x:10309e725270@0123456789abcdef:4",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// An ID that parses is printed as a text that means the same.
fn read_ids(text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    if let Some(id) = VolumeId::parse(&text) {
        assert_eq!(VolumeId::parse(&id.to_string()), Some(id));
    }
    if let Some(id) = SnapshotId::parse(&text) {
        assert_eq!(SnapshotId::parse(&id.to_string()), Some(id));
    }
}

fn answers() -> Vec<Vec<u8>> {
    let texts = [
        r#"{"name":"web","id":"10309e725270","size":1073741824,"objects":256,"order":22,"object_size":4194304,
            "snapshot_count":1,"block_name_prefix":"rbd_data.1","format":2,"features":["layering","exclusive-lock"],
            "op_features":[],"flags":[],"create_timestamp":"Fri Nov 27 18:00:00 2026",
            "parent":{"pool":"rbd","pool_namespace":"","image":"a","id":"1","snapshot":"s","trash":false,"overlap":1},
            "mirroring":{"mode":"snapshot","global_id":"g","state":"enabled","primary":true}}"#,
        r#"[{"image":"web","id":"1","size":4096,"format":2},{"image":"web","id":"1","snapshot":"s","size":4096}]"#,
        r#"[{"id":4,"name":"csi-snap-1","size":4096,"protected":"false","timestamp":"Fri Nov 27 18:00:00 2026",
            "namespace":{"type":"user"}}]"#,
        r#"{"watchers":[{"address":"10.0.0.7:0/3","client":4123,"cookie":18446462598732840961}]}"#,
        r#"{"cephlet.request":"{\"version\":1}","conf_rbd_qos_iops_limit":"5"}"#,
        r#"[{"pool":"rbd","pool_namespace":"","image":"b","id":"2","trash":false}]"#,
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// A tool that prints this for every command.
struct Says(Mutex<Vec<u8>>);

impl Runner for Says {
    fn run(&self, _: &Call, _: &Cmd) -> Result<Output, CommandError> {
        Ok(Output { stdout: self.0.lock().clone(), stderr_tail: String::new() })
    }

    fn has(&self, _: Tool) -> Result<(), CommandError> {
        Ok(())
    }
}

fn read_answer(said: &[u8]) {
    let runner = Arc::new(Says(Mutex::new(said.to_vec())));
    let tool = CommandTool::new(
        Programs::new(runner, None),
        Duration::from_secs(1),
        "/nonexistent/promotions".into(),
    );
    let cluster = Cluster { credentials: Some(input::credentials()), ..Cluster::named("ceph") };
    let access = ClusterAccess::new(Arc::new(cluster), &Secrets::default()).unwrap();
    let (call, at) =
        (Call::internal("fuzz"), PoolRef { access, pool: "rbd".into(), namespace: String::new() });
    let pool = tool.bind(&call, &at);
    let _ = pool.info(ImageRef::Name("web"));
    let _ = pool.list();
    let _ = pool.snapshots(ImageRef::Name("web"));
    let _ = pool.watchers("web");
    let _ = pool.all_metadata("web");
}

fn clusters_files() -> Vec<Vec<u8>> {
    let texts = [
        "[cluster.main]\nmonitors = '10.0.0.1,[v2:10.0.0.2:3300,v1:10.0.0.2:6789]'\nuser = 'web'\nfsid = \
         '3a1b7c9e-0000-4000-8000-000000000001'\npools = ['rbd', 'ssd']\nnamespaces = ['', 'team']\nremoved_pools = \
         ['old']\n\n[cluster.other]\nconf = '/nonexistent/ceph.conf'\nread_affinity = true\n",
        "[cluster.a]\nmonitors = 'mon.example:6789'\n[cluster.a.peers]\nsite-b = 'b'\n",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn read_clusters(text: &[u8]) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("clusters.toml");
    std::fs::write(&path, text).unwrap();
    let host = HostCluster { conf: "/nonexistent/ceph.conf".into(), ..HostCluster::default() };
    let clusters = Clusters::load(ClusterSource { file: Some(path), credentials: None, host });
    let _ = (clusters.trouble(), clusters.entries());
}

fn journals() -> Vec<Vec<u8>> {
    let disk = RamDisk::default();
    let journal = open(&disk).unwrap();
    for number in 0..6 {
        let change = crate::journal::Change::put(
            Table::Volumes,
            format!("v{number}"),
            serde_json::json!({ "n": number }),
        );
        journal.write(&[change]).unwrap();
    }
    vec![disk.files()["journal"].clone(), Vec::new()]
}

fn open(disk: &RamDisk) -> crate::error::Result<Journal> {
    Journal::open(Arc::new(disk.clone()), |_| {})
}

/// A journal that is accepted has the same content when it is opened again.
fn read_journal(content: &[u8]) {
    let disk = RamDisk::with_files(&BTreeMap::from([(String::from("journal"), content.to_vec())]));
    if let Ok(first) = open(&disk) {
        let before = first.entries(Table::Volumes);
        drop(first);
        assert_eq!(open(&disk).unwrap().entries(Table::Volumes), before);
    }
}
