#!/bin/sh
# A purge removes the configuration and what systemd made for the units. Runs are kept: only their owner can know
# whether they may go. While there are runs, the user plm, who owns them, is kept too.
set -e
if [ "$1" = purge ]; then
  rm -rf /etc/plm-pipeline /var/cache/plm-pipeline /var/cache/private/plm-pipeline
  rm -f /etc/systemd/system/multi-user.target.wants/plm-packer.service \
    /etc/systemd/system/multi-user.target.wants/plm-pipeline@*.service
  if [ -d /var/lib/plm-pipeline ]; then rmdir --ignore-fail-on-non-empty /var/lib/plm-pipeline; fi
  if [ -d /var/lib/plm-pipeline ]; then
    echo "plm-pipeline: the runs in /var/lib/plm-pipeline and the user plm were kept"
  elif command -v userdel >/dev/null; then
    case $(getent passwd plm) in *:/var/lib/plm-pipeline:*) userdel plm ;; esac # and not a person of this name
  fi
fi
if [ -d /run/systemd/system ]; then systemctl --system daemon-reload >/dev/null || true; fi
