//! Which clusters answer this node. A monitor greets a client before the client has said anything
//! (`CEPH_BANNER` in Ceph's `include/msgr.h`), so a look takes no credentials, no tool and no quorum: nodes
//! without ceph-common can take it, too.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::iter;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use crate::backend::{Fault, Reason};
use crate::clusters::{Cluster, Clusters, Monitor};

/// How long the monitors may take: all of a node's storage is looked at within a second.
pub(crate) const PATIENCE: Duration = Duration::from_millis(700);

/// What a monitor says first, in both versions of Ceph's protocol.
const BANNER: &[u8; 6] = b"ceph v";

/// What is wrong with the clusters that are set up, as far as this node sees within `patience`: the name of
/// each cluster, and the fault.
pub(crate) fn faults(clusters: &Clusters, patience: Duration) -> Vec<(String, Fault)> {
    let until = Instant::now() + patience;
    let (mut faults, mut asked) = (Vec::new(), Vec::new());
    // All are asked before the first answer is awaited.
    for (name, entry) in clusters.entries() {
        match entry.cluster {
            Some(cluster) => asked.push((ask(&cluster.monitors, patience), cluster)),
            None => {
                let why = entry.trouble.unwrap_or_default();
                let detail = format!("cluster {name:?} cannot be used: {why}");
                faults.push((name, Fault::new(Reason::ClusterDisabled, detail)));
            }
        }
    }
    let judged = |(looks, cluster): &(Receiver<usize>, Arc<Cluster>)| {
        judge(cluster, greeted(looks, until)).map(|fault| (cluster.name.clone(), fault))
    };
    faults.extend(asked.iter().filter_map(judged));
    faults
}

/// The same without the names of the clusters.
pub(crate) fn storage_faults(clusters: &Clusters) -> Vec<Fault> {
    faults(clusters, PATIENCE).into_iter().map(|(_, fault)| fault).collect()
}

/// What is wrong with a cluster of which so many monitors have answered.
fn judge(cluster: &Cluster, answered: usize) -> Option<Fault> {
    let (name, all) = (&cluster.name, cluster.monitors.len());
    match answered {
        // Also where no monitor is known here: the tools find them in another way.
        _ if answered == all => None,
        0 => {
            let monitors = cluster.monitors_text();
            let detail = format!("no monitor of cluster {name:?} answers this node: {monitors}");
            Some(Fault::new(Reason::MonitorsUnreachable, detail))
        }
        _ => {
            let detail =
                format!("only {answered} of the {all} monitors of cluster {name:?} answer this node");
            Some(Fault::new(Reason::MonitorsMissing, detail))
        }
    }
}

/// Begins to connect to monitors, each at all of its addresses. The receiver gets the numbers of those that
/// answer. Each look is a thread, which ends by itself: soon, or when the name service has given up.
fn ask(monitors: &[Monitor], patience: Duration) -> Receiver<usize> {
    let (sender, looks) = mpsc::channel();
    for (number, monitor) in monitors.iter().enumerate() {
        for address in monitor.v2.iter().chain(&monitor.v1) {
            let (address, sender) = (address.clone(), sender.clone());
            let look = move || {
                if greets(&address, patience).unwrap_or(false) {
                    // The receiver of a late answer is gone.
                    let _ = sender.send(number);
                }
            };
            if let Err(error) = thread::Builder::new().name("reach".into()).spawn(look) {
                log::warn!("monitors cannot be looked for: {error}");
            }
        }
    }
    looks
}

/// How many monitors have answered, at the latest `until` then.
fn greeted(looks: &Receiver<usize>, until: Instant) -> usize {
    let next = || looks.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
    iter::from_fn(next).collect::<BTreeSet<_>>().len()
}

/// Whether a monitor answers at an address.
fn greets(address: &str, patience: Duration) -> io::Result<bool> {
    for at in address.to_socket_addrs()? {
        let Ok(mut stream) = TcpStream::connect_timeout(&at, patience) else { continue };
        stream.set_read_timeout(Some(patience))?;
        let mut heard = [0; BANNER.len()];
        if stream.read_exact(&mut heard).is_ok() && heard == *BANNER {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    /// A time that only a hang takes.
    const LONG: Duration = Duration::from_secs(300);

    /// A process that listens, and says this to a client, or nothing.
    fn listener(says: &'static [u8]) -> (Monitor, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (own, address) = (listener.try_clone().unwrap(), listener.local_addr().unwrap());
        if !says.is_empty() {
            thread::spawn(move || own.accept().unwrap().0.write_all(says));
        }
        (Monitor { v2: Some(address.to_string()), v1: None }, listener)
    }

    /// A monitor that has ended.
    fn gone() -> Monitor {
        listener(b"").0
    }

    fn answering(monitors: &[Monitor]) -> usize {
        greeted(&ask(monitors, LONG), Instant::now() + LONG)
    }

    fn judged(monitors: Vec<Monitor>, answered: usize) -> Option<Fault> {
        judge(&Cluster { monitors, ..Cluster::named("main") }, answered)
    }

    #[test]
    fn only_monitors_count_that_greet() {
        let (v2, _one) = listener(b"ceph v2\n");
        let (v1, _two) = listener(b"ceph v027");
        let (stranger, _three) = listener(b"SSH-2.0");
        assert_eq!(answering(&[v2, gone(), stranger]), 1);
        let both = Monitor { v1: v1.v2, v2: gone().v2 };
        assert_eq!(answering(&[both]), 1, "one address is enough");
        assert_eq!(answering(&[]), 0);
    }

    #[test]
    fn a_monitor_that_hangs_is_not_awaited() {
        let (silent, _listener) = listener(b"");
        let looks = ask(&[silent], Duration::from_millis(1));
        assert_eq!(greeted(&looks, Instant::now()), 0);
    }

    #[test]
    fn a_cluster_is_judged_by_the_monitors_that_answer() {
        let three = || vec![gone(), gone(), gone()];
        assert_eq!(judged(three(), 3), None);
        assert_eq!(judged(Vec::new(), 0), None, "its conf finds the monitors in another way");
        let told = judged(three(), 1).unwrap();
        assert!(told.reason == Reason::MonitorsMissing && told.detail.contains("1 of the 3"), "{told}");
        let told = judged(three(), 0).unwrap();
        assert!(told.reason == Reason::MonitorsUnreachable && told.detail.contains("127.0.0.1"), "{told}");
    }

    #[test]
    fn every_cluster_that_is_set_up_is_looked_at() {
        let (well, _listener) = listener(b"ceph v2\n");
        let cluster = |name, monitor| Cluster { monitors: vec![monitor], ..Cluster::named(name) };
        let clusters = [cluster("a", gone()), cluster("b", well), cluster("c", gone())];
        let told = faults(&Clusters::of(clusters), LONG);
        let reasons: Vec<_> = told.iter().map(|(_, fault)| fault.reason).collect();
        assert_eq!(reasons, [Reason::MonitorsUnreachable, Reason::MonitorsUnreachable], "{told:?}");
        assert_eq!(told.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a", "c"]);
    }
}
