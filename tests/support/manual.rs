//! The manual's examples: what a user copies and pastes.

const CEPHFS: &str = include_str!("../../packaging/man/cephlet-cephfs.7");
const FENCE: &str = include_str!("../../packaging/man/cephlet-fence.7");
const RBD: &str = include_str!("../../packaging/man/cephlet-rbd.7");
const REPLICATION: &str = include_str!("../../packaging/man/cephlet-replication.7");

/// The literal blocks of cephlet-cephfs(7), in their order.
pub fn cephfs() -> Vec<String> {
    blocks(CEPHFS)
}

/// The literal blocks of cephlet-fence(7), in their order.
pub fn fence() -> Vec<String> {
    blocks(FENCE)
}

/// The literal blocks of cephlet-rbd(7), in their order.
pub fn rbd() -> Vec<String> {
    blocks(RBD)
}

/// The literal blocks of cephlet-replication(7), in their order.
pub fn replication() -> Vec<String> {
    blocks(REPLICATION)
}

/// The clusters files of the first and of the second site, as cephlet-replication(7) has them.
pub fn clusters_files() -> [String; 2] {
    let files = replication().into_iter().filter(|block| block.starts_with("[cluster."));
    files.collect::<Vec<_>>().try_into().expect("a file for each site")
}

/// Literal text as it is shown: mdoc(7) escapes hyphens and backslashes.
fn blocks(page: &str) -> Vec<String> {
    let bodies = page.split(".Bd -literal -offset indent\n").skip(1);
    bodies
        .map(|body| body.split(".Ed").next().unwrap_or_default().replace("\\-", "-").replace("\\e", "\\"))
        .collect()
}
