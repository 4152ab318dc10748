# A volume of cephlet's local backend: a file on the node that makes it.
#
#   nomad volume create volume.hcl
#
# To make it larger, raise capacity_min and run the same command again, also while it is in use.

id        = "demo"
name      = "demo"
type      = "csi"
plugin_id = "cephlet"

capacity_min = "256MiB"

# Single-node modes only: a local volume is reachable from its own node.
capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}

capability {
  access_mode     = "single-node-reader-only"
  attachment_mode = "file-system"
}

mount_options {
  # ext4, xfs or btrfs
  fs_type     = "ext4"
  mount_flags = ["noatime"]
}

parameters {
  backend = "local"
  # Who owns the root of the new file system: exec runs its tasks as nobody.
  uid = "65534"
  gid = "65534"
}

# On which client. Without it, Nomad asks the client whose ID sorts first. The value is the client's name (nomad node status).
#
# topology_request {
#   required {
#     topology {
#       segments {
#         "org.cephlet.csi/node" = "client-1"
#       }
#     }
#   }
# }
