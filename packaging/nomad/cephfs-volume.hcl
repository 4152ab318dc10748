# A volume on CephFS: a subvolume, which tasks on any number of clients write at once. Their jobs ask for it with
#
#   access_mode     = "multi-node-multi-writer"
#   attachment_mode = "file-system"
#
#   nomad volume create cephfs-volume.hcl
#
# To make it larger, raise capacity_min and run the same command again, also while it is in use. A subvolume that exists already is
# taken in by `nomad volume register`: external_id = "cephfs:ceph:FS:GROUP:NAME" in place of capacity_min.

id        = "shared"
name      = "shared"
type      = "csi"
plugin_id = "cephlet-cephfs"

capacity_min = "10GiB"

capability {
  access_mode     = "multi-node-multi-writer"
  attachment_mode = "file-system"
}

capability {
  access_mode     = "multi-node-reader-only"
  attachment_mode = "file-system"
}

mount_options {
  mount_flags = ["noatime"]
}

# All of them may be left out; cephlet-cephfs(7) has the whole list.
parameters {
  cluster = "ceph"
  # Who owns the root: exec runs its tasks as nobody.
  uid = "65534"
  gid = "65534"
  # fsName         = "cephfs"
  # subvolumeGroup = "csi"
}

# Only where the cluster has no user of its own in the plugin's settings.
#
# secrets {
#   userID  = "cephlet"
#   userKey = "…"
# }
