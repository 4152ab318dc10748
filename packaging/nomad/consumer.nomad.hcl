# A job that writes to the volume of volume.hcl:  nomad job run consumer.nomad.hcl

job "web" {
  group "web" {
    # One allocation at a time has a volume in mode single-node-writer.
    count = 1

    volume "data" {
      type            = "csi"
      source          = "web-data"
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"
    }

    task "writer" {
      # exec, docker, podman and java mount volumes into their tasks; raw_exec does not.
      driver = "exec"

      volume_mount {
        volume      = "data"
        destination = "/data"
      }

      config {
        command = "/bin/sh"
        args    = ["-c", "while true; do date >> /data/log; sleep 10; done"]
      }

      # As root in the task: a new file system belongs to root. Once its top directory belongs to another user, run as that one.
      user = "root"

      resources {
        cpu    = 50
        memory = 32
      }
    }
  }
}
