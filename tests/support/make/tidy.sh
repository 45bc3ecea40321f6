#!/usr/bin/env bash
# The project's rules that no compiler checks: formatting, who may include whom, unique file
# names, line and file lengths, numbers of parameters, references to the manual, no unfinished marks.
# Prints each offence; exit 1 if there is one.
set -uo pipefail
cd "$(dirname "$0")/../../.." || exit 1
offences=0
complain() {
  echo "tidy: $*"
  offences=$((offences + 1))
}

mapfile -t sources < <(git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cc')
mapfile -t scripts < <(git ls-files '*.sh' '.ci/run')

if command -v clang-format >/dev/null; then
  while IFS= read -r line; do complain "$line"; done < <(
    printf '%s\n' "${sources[@]}" | xargs -P "$(nproc)" -n 100 clang-format --dry-run -Werror 2>&1 |
      grep -oE '^[^:]+:[0-9]+:[0-9]+: error' | sed 's/: error/: not formatted (clang-format -i)/' | sort -u -t: -k1,1)
else
  echo "tidy: clang-format is not installed; formatting was not checked" >&2
fi

# Three layers: common/ includes nobody above it, kernels/ includes common/, a stage includes both but no other stage.
includes() { # FOLDER REGEX-OF-FORBIDDEN
  while IFS= read -r line; do complain "an include against the layers: $line"; done < <(
    git grep -nE "#include \"($2)/" -- "$1" || true)
}
includes common 'kernels|packer|trainer|evaluator|stages|tests'
includes kernels 'packer|trainer|evaluator|stages|tests'
includes packer 'kernels|trainer|evaluator|stages|tests'
includes trainer 'kernels|packer|evaluator|stages|tests'
includes evaluator 'kernels|packer|trainer|stages|tests'
includes stages 'kernels|packer|trainer|evaluator|tests'
# Folders of the stages: nothing includes the commands, and the evaluator's tasks do not include each other.
for room in supervisor ingest export slurm kubernetes doctor overlap views; do includes "stages/$room" 'stages/commands'; done
for room in embed generate score; do
  includes "evaluator/$room" "$(printf 'evaluator/%s\n' embed generate score evaluate watch | grep -v "/$room" | paste -sd'|')"
done
# The folders of common depend on each other without circles.
while IFS= read -r line; do complain "a circle of folders in common: ${line#tsort: }"; done < <(
  git grep -oE '#include "common/[a-z]+/' -- common |
    sed -nE 's|^common/([a-z]+)/[^:]*:#include "common/([a-z]+)/|\1 \2|p' |
    awk '$1 != $2' | sort -u | tsort 2>&1 >/dev/null)

# So do the rooms of a folder, which may all include its own headers. (trainer/ranks and others use each other.)
for hall in common/base kernels/cuda stages/supervisor tests/support trainer; do
  while IFS= read -r line; do complain "a circle of rooms in $hall: ${line#tsort: }"; done < <(
    git grep -oE "#include \"$hall/[a-z0-9]+/" -- "$hall" ':!trainer/ranks' | grep -v '"trainer/ranks/' |
      sed -nE "s|^$hall/([a-z0-9]+)/[^:]*:#include \"$hall/(.*)/|\1 \2|p" |
      awk '$1 != $2' | sort -u | tsort 2>&1 >/dev/null)
done

# The top level has only what a reader expects there, and nothing that a test left behind.
while IFS= read -r name; do complain "not a name for the top level: $name"; done < <(
  git ls-files | sed 's|/.*||' | sort -u | grep -vxE \
    'common|doc|evaluator|kernels|packer|stages|tests|trainer|Makefile|LICENSE|[A-Z]+\.md|pipeline\.yaml|\.(ci|clang-format|clang-tidy|gitignore|gitattributes|ruff\.toml|editorconfig)')

# Compiled files do not belong here; sequences and the fuzzers' inputs do.
while IFS= read -r line; do complain "a binary file: $line"; done < <(
  git ls-files --eol | awk '$1 == "i/-text" {print $4}' | grep -vE '^tests/(data|fuzz/corpus)/')

while IFS= read -r name; do complain "two files are called $name"; done < <(
  printf '%s\n' "${sources[@]##*/}" | sort | uniq -d)

while IFS= read -r line; do complain "longer than 100 columns: $line"; done < <(
  awk 'length($0) > 100 {print FILENAME ":" FNR}' "${sources[@]}")

while read -r count file; do
  [ "$file" != total ] && [ "$count" -gt 500 ] && complain "$file has $count lines: find its second subject"
done < <(wc -l "${sources[@]}")

while IFS= read -r line; do complain "unfinished: $line"; done < <(
  git grep -nwE 'TODO|FIXME|XXX' -- '*.c' '*.h' '*.cu' '*.cuh' '*.cc' '*.py' Makefile README.md || true)

while IFS= read -r line; do complain "$line"; done < <(
  printf '%s\n' "${sources[@]}" | grep -v '^tests/emulation/' | xargs awk -f tests/support/make/tidy_parameters.awk)

. tests/support/make/tidy_manual.sh
. tests/support/make/tidy_architectures.sh

while IFS= read -r line; do complain "use matches of lib.sh, because grep -q may kill the writer: $line"; done < <(
  git grep -nE '\| *grep +-[a-zA-Z]*q' -- '*.sh' .ci/run Makefile ':!tests/support/make/tidy.sh' || true)

while IFS= read -r name; do complain "$name: its first line does not say why it exists"; done < <(
  awk 'FNR == 1 && /^(\/\*|\/\/)/ { says[FILENAME] }
    END { for (i = 1; i < ARGC; i++) if (!(ARGV[i] in says)) print ARGV[i] }' "${sources[@]}")

ruff=${PLM_VENV:-build/venv}/bin/ruff
if [ -x "$ruff" ]; then
  while IFS= read -r line; do complain "$line"; done < <(
    "$ruff" check --quiet --no-cache --output-format concise common tests || true)
  # its exit status, because its words differ between versions
  "$ruff" format --quiet --no-cache --check common tests >/dev/null ||
    complain "Python files are not formatted ($ruff format common tests)"
else
  echo "tidy: no Python environment (make venv); Python files were not checked" >&2
fi

if command -v shellcheck >/dev/null; then
  while IFS= read -r line; do complain "$line"; done < <(
    printf '%s\n' "${scripts[@]}" | xargs -P "$(nproc)" -n 4 shellcheck -x -S warning -f gcc 2>&1 || true)
fi

[ "$offences" -eq 0 ] && echo "tidy: ${#sources[@]} source files are in order"
[ "$offences" -eq 0 ]
