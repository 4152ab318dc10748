# A volume on Ceph: an image of a pool.
#
#   nomad volume create rbd-volume.hcl
#
# To make it larger, raise capacity_min and run the same command again, also while it is in use. An image that exists already is
# taken in by `nomad volume register`: external_id = "rbd:ceph:rbd::NAME" (cluster, pool, namespace, image) in place of capacity_min,
# and a block `context` with uid and gid in place of the parameters.

id        = "web"
name      = "web"
type      = "csi"
plugin_id = "cephlet-rbd"

capacity_min = "10GiB"

capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}

capability {
  access_mode     = "multi-node-reader-only"
  attachment_mode = "file-system"
}

mount_options {
  # ext4, xfs or btrfs
  fs_type     = "xfs"
  mount_flags = ["noatime"]
}

# Nodes with CEPHLET_TOPOLOGY: in which domain the volume is to be. It chooses the pool, so leave `pool` out below.
#
# topology_request {
#   required {
#     topology { segments { "org.cephlet.csi/zone" = "eu-1" } }
#   }
# }

# All of them may be left out; cephlet-rbd(7) has the whole list.
parameters {
  cluster = "ceph"
  pool    = "rbd"
  # Who owns the root of the new file system: exec runs its tasks as nobody.
  uid = "65534"
  gid = "65534"
  # namespace  = "team"
  # dataPool   = "erasure-coded"
  # mounter    = "rbd-nbd"
  # mapOptions = "krbd:queue_depth=64"
}

# Only where the cluster has no user of its own in the plugin's settings.
#
# secrets {
#   userID  = "cephlet"
#   userKey = "…"
# }
