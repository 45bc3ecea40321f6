#!/bin/sh
# Before the programs are removed, what systemd runs with them is stopped. The trainer publishes a checkpoint. An
# upgrade stops nothing: a program that runs keeps its old file.
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
  deb-systemd-invoke stop plm-packer.service 'plm-pipeline@*.service' >/dev/null || true
fi
