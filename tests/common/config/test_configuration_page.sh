#!/usr/bin/env bash
# doc/configuration.md is what `plm-pipeline config --reference` prints.
set -uo pipefail
cd "$PLM_TMP" || exit 1
"$PLM_BIN/plm-pipeline" config --reference >printed || exit 1
diff -u "$PLM_ROOT/doc/configuration.md" printed || {
  echo "doc/configuration.md is out of date; print it again with"
  echo "    build/bin/plm-pipeline config --reference >doc/configuration.md"
  exit 1
}
