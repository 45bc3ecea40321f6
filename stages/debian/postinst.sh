#!/bin/sh
# The unit plm-pipeline@.service runs as the user plm. Without systemd it is not used, and there is no user to make.
set -e
if [ "$1" = configure ]; then
  if command -v systemd-sysusers >/dev/null; then systemd-sysusers plm-pipeline.conf; fi
  if [ -d /run/systemd/system ]; then systemctl --system daemon-reload >/dev/null || true; fi
fi
