# cephlet as the controller of volumes on CephFS: two copies, on two clients that have /etc/ceph and the tools of Ceph
# (Debian: ceph-common). Any of them answers; both at once make one subvolume of one request.
#
#   nomad job run cephfs-controller.nomad.hcl
#   nomad job run cephfs-node.nomad.hcl
#
# Both need raw_exec, as plugin.nomad.hcl says. The user needs the rights of `client.cephlet` in cephlet-cephfs(7).

variable "binary" {
  type        = string
  description = "Where cephlet is on every client."
  default     = "/usr/bin/cephlet"
}

variable "state_dir" {
  type        = string
  description = "Where this copy keeps its journal. It must outlive the job, and be another one than that of the node's copy."
  default     = "/var/lib/cephlet/cephfs-controller"
}

variable "ceph_user" {
  type        = string
  description = "The user of the cluster, without 'client.'; its keyring is /etc/ceph/ceph.client.NAME.keyring on every client."
  default     = "cephlet"
}

job "cephlet-cephfs-controller" {
  type     = "service"
  priority = 90

  group "controller" {
    count = 2

    # Two copies on one client would want the same state directory.
    constraint {
      operator = "distinct_hosts"
      value    = "true"
    }

    restart {
      interval = "5m"
      attempts = 10
      delay    = "5s"
      mode     = "delay"
    }

    task "cephlet" {
      driver = "raw_exec"

      config {
        command = var.binary
        args    = ["serve"]
      }

      env {
        CEPHLET_SERVICES    = "controller"
        CEPHLET_BACKENDS    = "cephfs"
        CEPHLET_NODE_ID     = "${node.unique.name}"
        CEPHLET_STATE_DIR   = var.state_dir
        CEPHLET_RUNTIME_DIR = "/run/cephlet/cephfs-controller"
        # For several clusters, or clients without /etc/ceph: CEPHLET_CLUSTERS in place of this.
        CEPHLET_CEPH_USER = var.ceph_user
      }

      csi_plugin {
        id   = "cephlet-cephfs"
        type = "controller"
      }

      kill_timeout = "30s"

      # The daemon takes 13 MB, each of the CEPHLET_TOOLS (4) commands that run at once for a cluster 35 MB.
      resources {
        cpu    = 200
        memory = 192
      }
    }
  }
}
