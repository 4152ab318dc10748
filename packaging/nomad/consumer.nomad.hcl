# A task that writes into the volume of volume.hcl: each start adds a line to /data/starts.
#
#   nomad job run consumer.nomad.hcl

job "cephlet-demo" {
  group "demo" {
    volume "data" {
      type            = "csi"
      source          = "demo"
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"
    }

    task "writer" {
      # Any driver that mounts volumes: exec, docker, podman, java. raw_exec does not. This one runs the task as nobody, to whom
      # volume.hcl gives the volume.
      driver = "exec"

      config {
        command = "/bin/sh"
        args    = ["-c", "date >> /data/starts; cat /data/starts; exec sleep infinity"]
      }

      volume_mount {
        volume      = "data"
        destination = "/data"
      }

      resources {
        cpu    = 50
        memory = 32
      }
    }
  }
}
