//! The commands: what each takes, in the order in which the help shows them.

use crate::cli::syntax::{Action, Command, Opt, SNAPSHOT, VOLUME, flag, option, repeated};
use crate::cli::values::SECRETS;
use crate::cli::{
    completion, doctor, fence, identity, jobs, node, publish, replication, settings, snapshot, values, volume,
};

const MUTABLE: Opt = repeated("mutable", "KEY=VALUE", "a setting that can be changed later; may be repeated");
const BLOCK: Opt = flag("block", "as a block device instead of a file system");
const FILE_SYSTEM: Opt = option(
    "fs",
    "TYPE",
    "file system: ext4, xfs or btrfs; ext2 or ext3 where it is there (default: as created, else ext4)",
)
.one_of(&["ext4", "xfs", "btrfs", "ext2", "ext3"]);
const MODE: Opt = option("mode", "MODE", "access mode (default: single-node-writer)").one_of(&values::MODES);
const SIZES: &str =
    "Sizes are bytes, or a number with K, M, G, T or P: powers of 1024 (10G and 10Gi are both 10 GiB).";

const MODES: &str = "\
Access modes: single-node-writer, single-node-reader-only, multi-node-reader-only, multi-node-single-writer,
multi-node-multi-writer, single-node-single-writer, single-node-multi-writer.";

const VOLUME_JSON: &str = "\
name or null, id, size_bytes, context {}, source {kind, id} or null, topology [{}], published_nodes [],
condition {abnormal, message, reason, status} or null";

const VOLUMES: &str = "an array of volumes, each as in volume create";
const SNAPSHOTS: &str = "an array of snapshots, each as in snapshot show";

const VOLUME_HERE: &str = "\
as in volume create, and targets [] (where it is published on this node),
usage {total_bytes, used_bytes, available_bytes} or null";

const SNAPSHOT_JSON: &str = "id, volume_id, size_bytes, created (UTC, ISO 8601) or null, ready";

/// A command without words or options of its own.
const fn plain(
    name: &'static str,
    about: &'static str,
    notes: &'static [&'static str],
    json: &'static str,
    action: Action,
) -> Command {
    Command { name, about, words: &[], options: &[], notes, json, action }
}

/// All commands.
pub static COMMANDS: &[Command] = &[
    plain(
        "serve",
        "run the daemon; so does cephlet without a command",
        &["All its settings come from the environment: see cephlet config."],
        "",
        Action::Serve,
    ),
    settings::CONFIG,
    doctor::DOCTOR,
    plain("version", "show the version of this program", &[], "", Action::Version),
    node::RENAME,
    plain(
        "probe",
        "ask whether the daemon can work",
        &["The exit status is 5 if the daemon says that it cannot."],
        "ready",
        Action::Ask(identity::probe),
    ),
    plain(
        "info",
        "show who the daemon is and what it offers",
        &[],
        "name, version, node_id or null, topology {}, taken_over [],
plugin [], controller [], node [] (capabilities by their CSI names)",
        Action::Ask(identity::info),
    ),
    Command {
        name: "capacity",
        about: "show the room for new volumes",
        words: &[],
        options: &[
            repeated("parameter", "KEY=VALUE", "of volumes with this parameter; may be repeated"),
            option("domain", "LABEL=VALUE", "of volumes in this domain: zone=eu-1, or region=eu,zone=eu-1"),
        ],
        notes: &[],
        json: "available_bytes; largest_bytes and smallest_bytes (of one volume) or null",
        action: Action::Ask(identity::capacity),
    },
    jobs::JOBS,
    Command {
        name: "volume create",
        about: "make a volume and print its ID",
        words: &["NAME"],
        options: &[
            option(
                "size",
                "SIZE",
                "at least this large (default: as its source, else what the storage gives)",
            ),
            option("limit", "SIZE", "at most this large"),
            FILE_SYSTEM,
            BLOCK,
            MODE,
            repeated("parameter", "KEY=VALUE", "a setting of the storage; may be repeated"),
            MUTABLE,
            repeated("domain", "LABEL=VALUE", "in this domain: zone=eu-1; repeated, in one of these"),
            repeated("prefer", "LABEL=VALUE", "in this domain if it has a pool; repeated, in this order"),
            option("from-snapshot", SNAPSHOT, "begin as a copy of this snapshot"),
            option("from-volume", VOLUME, "begin as a copy of this volume"),
            SECRETS,
        ],
        notes: &[
            SIZES,
            MODES,
            "The same name with the same settings is the same volume: a repeated create prints the same ID.",
        ],
        json: VOLUME_JSON,
        action: Action::Ask(volume::create),
    },
    Command {
        name: "volume list",
        about: "list the volumes",
        words: &[],
        options: &[flag("wide", "with their IDs")],
        notes: &[
            "A volume whose name is not known is listed by the name of its object, which commands accept, too.\n\
             Clusters that cannot be reached are reported; the exit status is 6 then.",
        ],
        json: VOLUMES,
        action: Action::Ask(volume::list),
    },
    Command {
        name: "volume show",
        about: "show a volume",
        words: &[VOLUME],
        options: &[],
        notes: &[
            "While a call or a job has worked on the volume for a second or more, only that work and its progress \
                  are shown.\n\
                  JSON then: name or null, id, under_way [] (each as in jobs).",
        ],
        json: VOLUME_HERE,
        action: Action::Ask(volume::show),
    },
    Command {
        name: "volume expand",
        about: "make a volume larger, and its file system where it is mounted",
        words: &[VOLUME],
        options: &[
            option("size", "SIZE", "at least this large; required"),
            option("limit", "SIZE", "at most this large"),
            option("path", "PATH", "where it is published on this node (default: the first of its paths)"),
            SECRETS,
        ],
        notes: &[
            SIZES,
            "Where the volume is published nowhere here, device and file system follow when it is staged \
             next.",
        ],
        json: "id, size_bytes, expanded_at (the path where the node has followed) or null",
        action: Action::Ask(volume::expand),
    },
    Command {
        name: "volume modify",
        about: "change settings of a volume, also while it is used",
        words: &[VOLUME],
        options: &[MUTABLE, SECRETS],
        notes: &[
            "For RBD these are limits: iops, readIops, writeIops, bps, readBps, writeBps; 0 takes one away.",
        ],
        json: "id",
        action: Action::Ask(volume::modify),
    },
    Command {
        name: "volume publish",
        about: "attach a volume to this node and mount it at a path",
        words: &[VOLUME, "PATH"],
        options: &[
            flag("read-only", "only for reading"),
            BLOCK,
            FILE_SYSTEM,
            MODE,
            option("flags", "FLAG,…", "mount options, separated by commas"),
            flag("at-boot", "and again after each boot: needs systemd"),
            flag("retry", "try again every 10 seconds while the reason for a failure may pass"),
            SECRETS,
        ],
        notes: &[
            "What an orchestrator does in several steps is one here; if it fails, what was begun is undone.\n\
             With --block, PATH becomes a device file. A volume may be published at several paths, if its \
             mode allows it.",
            MODES,
        ],
        json: "id, node_id, target_path",
        action: Action::Ask(publish::publish),
    },
    Command {
        name: "volume unpublish",
        about: "unmount a volume from a path and, if that was its last use on this node, detach it",
        words: &[VOLUME, "PATH"],
        options: &[
            flag("keep-at-boot", "publish it again after the next boot, as --at-boot has said"),
            SECRETS,
        ],
        notes: &["Unpublishing a path where the volume is not published succeeds, also after a reboot."],
        json: "id, target_path, detached (whether nothing on this node uses the volume any more)",
        action: Action::Ask(publish::unpublish),
    },
    Command {
        name: "volume reclaim",
        about: "take a volume back from a node, where its orchestrator does not",
        words: &[VOLUME, "NODE"],
        options: &[SECRETS],
        notes: &[
            "This is ControllerUnpublishVolume. It unmounts nothing: unpublish the volume on the node first, if \
             that is alive.\n\
             The client of a volume that a node still has mapped or mounted is shut out of the cluster \
             (CEPHLET_FENCE).",
        ],
        json: "id, node_id",
        action: Action::Ask(publish::reclaim),
    },
    Command {
        name: "volume delete",
        about: "delete a volume that nobody uses",
        words: &[VOLUME],
        options: &[SECRETS],
        notes: &["Deleting a volume that does not exist succeeds."],
        json: "id",
        action: Action::Ask(volume::delete),
    },
    Command {
        name: "snapshot create",
        about: "take a snapshot of a volume and print its ID",
        words: &[VOLUME, "NAME"],
        options: &[SECRETS],
        notes: &["The same name and volume is the same snapshot: a repeated create prints the same ID."],
        json: SNAPSHOT_JSON,
        action: Action::Ask(snapshot::create),
    },
    Command {
        name: "snapshot list",
        about: "list the snapshots",
        words: &[],
        options: &[option("volume", VOLUME, "only those of this volume"), SECRETS],
        notes: &[],
        json: SNAPSHOTS,
        action: Action::Ask(snapshot::list),
    },
    Command {
        name: "snapshot show",
        about: "show a snapshot",
        words: &[SNAPSHOT],
        options: &[SECRETS],
        notes: &[],
        json: SNAPSHOT_JSON,
        action: Action::Ask(snapshot::show),
    },
    Command {
        name: "snapshot delete",
        about: "delete a snapshot",
        words: &[SNAPSHOT],
        options: &[SECRETS],
        notes: &["Deleting a snapshot that does not exist succeeds."],
        json: "id",
        action: Action::Ask(snapshot::delete),
    },
    fence::ADD,
    fence::REMOVE,
    fence::LIST,
    fence::CLIENTS,
    Command {
        name: "replication enable",
        about: "copy a volume to the other site from now on",
        words: &[VOLUME],
        options: &[
            option(
                "mode",
                "MODE",
                "snapshot (default): in steps; journal: write by write, not mapped by the kernel",
            )
            .one_of(&["snapshot", "journal"]),
            option("interval", "TIME", "how often a snapshot is copied: 5m, 12h, 1d (default: only at once)"),
            option("start", "TIME", "from which time of the day on: 02:00, 14:00:00-05:00"),
            flag(
                "flatten",
                "if it is a clone of a volume that is not replicated, copy the shared data into it first",
            ),
            SECRETS,
        ],
        notes: &["Pool and peers have to be set up: see cephlet-replication(7)."],
        json: "id",
        action: Action::Ask(replication::enable),
    },
    Command {
        name: "replication disable",
        about: "copy a volume no more, and delete the copy",
        words: &[VOLUME],
        options: &[
            flag("force", "make a copy that is cut off from its primary a volume of its own"),
            SECRETS,
        ],
        notes: &[
            "On the primary, this deletes the copy at the other site. A copy is removed when the replication of its primary ends.",
        ],
        json: "id",
        action: Action::Ask(replication::disable),
    },
    Command {
        name: "replication promote",
        about: "take a volume over: make the copy here the primary",
        words: &[VOLUME],
        options: &[
            flag("force", "although the other site has not demoted the volume: it is lost"),
            flag("accept-loss", "with --force: also if the newest complete copy cannot be used"),
            SECRETS,
        ],
        notes: &[
            "Waits for the demotion at the other site to arrive, for --timeout at the most, and shows what it waits \
             for.",
        ],
        json: "id",
        action: Action::Ask(replication::promote),
    },
    Command {
        name: "replication demote",
        about: "give a volume up here, so that it can be promoted at the other site",
        words: &[VOLUME],
        options: &[
            flag(
                "force",
                "although it is in use (it is taken from its nodes, whose writes fail), or was not copied yet",
            ),
            SECRETS,
        ],
        notes: &[
            "Waits until the other site has begun to copy it, for --timeout at the most, and shows what it waits \
             for.",
        ],
        json: "id",
        action: Action::Ask(replication::demote),
    },
    Command {
        name: "replication resync",
        about: "ask whether a copy is up to date, or make one anew that cannot follow",
        words: &[VOLUME],
        options: &[flag("force", "throw away what is here, and copy it anew from the primary"), SECRETS],
        notes: &["With --force it may be repeated until the copy is up to date: it is begun only once."],
        json: "id, ready",
        action: Action::Ask(replication::resync),
    },
    Command {
        name: "replication status",
        about: "show how the copying of a primary volume is doing",
        words: &[VOLUME],
        options: &[SECRETS],
        notes: &[],
        json: "status (healthy, degraded, error), message; last_sync (UTC, ISO 8601), last_sync_seconds and \
               last_sync_bytes or null",
        action: Action::Ask(replication::status),
    },
    Command {
        name: "replication destination",
        about: "print the ID that a volume has at the other site",
        words: &[VOLUME],
        options: &[SECRETS],
        notes: &[],
        json: "id",
        action: Action::Ask(replication::destination),
    },
    plain(
        "replication list",
        "list the replicated volumes, with their roles and how they are doing",
        &[],
        "an array of: id, role (primary, secondary or unknown), and as in replication status; status may be unknown",
        Action::Ask(replication::list),
    ),
    completion::BASH,
    completion::ZSH,
    completion::FISH,
    completion::NAMES,
];
