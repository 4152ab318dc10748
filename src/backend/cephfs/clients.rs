//! The clients of a volume, as the metadata servers know them. Each mount has a session with a metadata
//! server, which has the path of the mount's root. A client that has mounted a directory above or below the
//! volume does not show.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::backend::ceph::{Failure, read};
use crate::backend::cephfs::context::Fs;
use crate::backend::cephfs::names::{CLIENT, client_name};
use crate::backend::cephfs::subvolumes::ask;
use crate::error::{Error, Result};
use crate::exec::Class;

/// The states of metadata servers that know all sessions of their rank. One in standby-replay has the rank,
/// too, and none of its sessions.
const ANSWERING: [&str; 2] = ["up:active", "up:stopping"];

/// A client that has a volume mounted.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct FsClient {
    /// Its number: `client.ID`.
    id: u64,
    entity: Entity,
    #[serde(rename = "client_metadata")]
    about: About,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Entity {
    addr: Address,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Address {
    /// `10.0.0.7:0`
    addr: String,
    nonce: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
struct About {
    #[serde(default)]
    root: String,
    #[serde(default)]
    hostname: String,
    #[serde(default)]
    entity_id: String,
}

impl FsClient {
    /// Its address, as the blocklist names it: `10.0.0.7:0/1234567`.
    pub fn address(&self) -> String {
        let Address { addr, nonce } = &self.entity.addr;
        format!("{addr}/{nonce}")
    }

    /// Whether cephlet has mounted it for this node.
    pub fn is_of(&self, node: &str) -> bool {
        self.about.hostname == client_name(node)
    }

    /// Whether cephlet has mounted it, for any node.
    pub fn is_ours(&self) -> bool {
        self.about.hostname.starts_with(CLIENT)
    }
}

impl fmt::Display for FsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} (client.{}, user {:?})", self.about.hostname, self.id, self.about.entity_id)
    }
}

/// The clients that have this path mounted; None if the user may not ask for them.
pub(crate) fn find(fs: &Fs<'_>, path: &str) -> Result<Option<Vec<FsClient>>> {
    let mut found = Vec::new();
    for rank in ranks(fs)? {
        match sessions(fs, rank, path) {
            Ok(printed) => {
                let all = read::<Vec<FsClient>>("ceph tell mds session ls", &printed)?;
                found.extend(all.into_iter().filter(|client| client.about.root == path));
            }
            Err(failure) if failure.status() == Some(libc::EACCES) => return Ok(None),
            // Its server has ended since it was listed, and the sessions go on with the next one.
            Err(failure) if failure.status() == Some(libc::ENOENT) => return Err(no_server(fs, rank)),
            Err(failure) => return Err(failure.into_error("ask which clients have it mounted")),
        }
    }
    Ok(Some(found))
}

/// The error for a volume that these clients have mounted.
pub(crate) fn is_mounted(fs: &Fs<'_>, clients: &[FsClient]) -> Error {
    let named: Vec<String> = clients.iter().map(FsClient::to_string).collect();
    Error::precondition(format!(
        "it is mounted on {}: unmount it there; a client that is dead ends by itself within minutes, or by `ceph tell \
         mds.{}:0 client evict id=ID`",
        named.join(", "),
        fs.place.pool
    ))
}

/// The ranks that have sessions with clients.
///
/// # Errors
/// Unavailable: one of them has no metadata server that could say which. Its clients wait for the next one.
fn ranks(fs: &Fs<'_>) -> Result<Vec<u32>> {
    let Map { r#in: ranks, info } = map(fs)?;
    let serves = |rank: u32| info.values().any(|it| it.serves(rank));
    match ranks.iter().find(|rank| !serves(**rank)) {
        Some(rank) => Err(no_server(fs, *rank)),
        None => Ok(ranks),
    }
}

/// The rank of the file system whose clients wait, if there is one: it has no active metadata server, or one
/// from which the monitors have not heard lately.
pub(crate) fn silent_rank(fs: &Fs<'_>) -> Result<Option<u32>> {
    let Map { r#in: ranks, info } = map(fs)?;
    let answers = |rank: u32| info.values().any(|it| it.serves(rank) && it.laggy_since.is_none());
    Ok(ranks.into_iter().find(|rank| !answers(*rank)))
}

/// `ceph fs get`
#[derive(Deserialize)]
struct Map {
    r#in: Vec<u32>,
    info: BTreeMap<String, Server>,
}

#[derive(Deserialize)]
struct Server {
    rank: i64,
    state: String,
    #[serde(default)]
    laggy_since: Option<IgnoredAny>,
}

impl Server {
    fn serves(&self, rank: u32) -> bool {
        self.rank == i64::from(rank) && ANSWERING.contains(&self.state.as_str())
    }
}

fn map(fs: &Fs<'_>) -> Result<Map> {
    #[derive(Deserialize)]
    struct Shown {
        mdsmap: Map,
    }
    let named = vec![("fs_name", fs.place.pool.as_str().into())];
    let printed = ask(&fs.monitors(), Class::Question, "fs get", named).map_err(|failure| {
        failure.into_error(format_args!("look for the metadata servers of {:?}", fs.place.pool))
    })?;
    Ok(read::<Shown>("ceph fs get", &printed)?.mdsmap)
}

fn no_server(fs: &Fs<'_>, rank: u32) -> Error {
    let name = &fs.place.pool;
    Error::unavailable(format!(
        "which clients have it mounted is not known, as rank {rank} of file system {name:?} has no active metadata \
         server: look at `ceph fs status {name}`; after `ceph fs fail`, `ceph fs set {name} joinable true` starts it \
         again"
    ))
}

fn sessions(fs: &Fs<'_>, rank: u32, path: &str) -> Result<Vec<u8>, Failure> {
    let command = vec![
        ("target", format!("mds.{}:{rank}", fs.place.pool).into()),
        ("prefix", "session ls".into()),
        ("filters", vec![format!("client_metadata.root={path}")].into()),
        ("format", "json".into()),
    ];
    fs.monitors().ask(Class::Question, &[command]).map(|output| output.stdout)
}
