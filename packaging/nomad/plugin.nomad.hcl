# cephlet as a CSI plugin of Nomad: one copy on every client, controller and node service in one.
#
#   nomad job run plugin.nomad.hcl
#
# It runs under raw_exec, beside the agent instead of in a container: mounts are made where every task driver sees them, and
# there is nothing to privilege. The clients need
#
#   plugin "raw_exec" { config { enabled = true } }
#
# in the agent's configuration, and an agent that runs as root. Stopping, restarting and updating this job leaves volumes
# mounted; stop the jobs that use volumes first all the same, as Nomad gives volumes back through it.
#
# The command line of cephlet asks the copy on a client through its allocation:
#
#   nomad alloc exec -task cephlet ALLOCATION /usr/bin/cephlet volume list

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
  description = "Where cephlet keeps its journal and the files of local volumes, on every client. It must outlive the job."
  default     = "/var/lib/cephlet"
}

job "cephlet" {
  type = "system"
  # Plugins come before what needs them, and are the last to go when a client is drained.
  priority = 90

  group "plugin" {
    # Storage that comes late finds a plugin that still tries.
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
        # CSI_ENDPOINT is set by Nomad. The node's ID stands in the IDs of its local volumes: it must never change.
        CEPHLET_NODE_ID = "${node.unique.name}"
        # Both are said here, as a task inherits what systemd says to the agent ($STATE_DIRECTORY). Devices are mounted below the
        # runtime directory: like the state, it must be the same for the next allocation.
        CEPHLET_STATE_DIR   = var.state_dir
        CEPHLET_RUNTIME_DIR = "/run/cephlet"
      }

      csi_plugin {
        id   = "cephlet"
        type = "monolith"
        # Without a container, the path the plugin is told must be the one the agent means: <data_dir>/client/csi/<type>/<id>.
        stage_publish_base_dir = "${var.nomad_data_dir}/client/csi/monolith/cephlet"
      }

      # Calls under way get 20 s to end, their processes 5 s more.
      kill_timeout = "30s"

      resources {
        cpu    = 50
        memory = 64
      }
    }
  }
}
