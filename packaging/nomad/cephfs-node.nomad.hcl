# cephlet as the node's part of volumes on CephFS, on every client. The kernel mounts them: a client needs its driver
# (modprobe ceph), /etc/ceph/ceph.conf and the user's keyring, and no package of Ceph. See cephfs-controller.nomad.hcl.
#
#   nomad job run cephfs-node.nomad.hcl
#
# Stop the jobs that use volumes before this one: Nomad gives volumes back through it.

variable "binary" {
  type        = string
  description = "Where cephlet is on every client."
  default     = "/usr/bin/cephlet"
}

variable "nomad_data_dir" {
  type        = string
  description = "data_dir of the Nomad agents: volumes are mounted below it, at paths that the agent looks at too."
  default     = "/opt/nomad/data"
}

variable "state_dir" {
  type        = string
  description = "Where this copy keeps its journal. It must outlive the job, and be another one than that of the controller's copy."
  default     = "/var/lib/cephlet/cephfs-node"
}

variable "ceph_user" {
  type        = string
  description = "The user of the cluster, without 'client.'; its keyring is /etc/ceph/ceph.client.NAME.keyring on every client."
  default     = "cephlet-node"
}

job "cephlet-cephfs-node" {
  type     = "system"
  priority = 90

  group "node" {
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
        CEPHLET_SERVICES = "node"
        CEPHLET_BACKENDS = "cephfs"
        # Volumes are given to it by this name: it must never change.
        CEPHLET_NODE_ID     = "${node.unique.name}"
        CEPHLET_STATE_DIR   = var.state_dir
        CEPHLET_RUNTIME_DIR = "/run/cephlet/cephfs-node"
        CEPHLET_CEPH_USER   = var.ceph_user
      }

      csi_plugin {
        id   = "cephlet-cephfs"
        type = "node"
        # Without a container, the path the plugin is told must be the one the agent means: <data_dir>/client/csi/<type>/<id>.
        stage_publish_base_dir = "${var.nomad_data_dir}/client/csi/node/cephlet-cephfs"
      }

      kill_timeout = "30s"

      resources {
        cpu    = 50
        memory = 64
      }
    }
  }
}
