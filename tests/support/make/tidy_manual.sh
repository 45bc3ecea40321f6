# shellcheck shell=bash
# Sourced by tidy.sh. Every reference to the manual names a page, and if it names a section, one that the page has:
# doc/NAME.md or doc/NAME.md#section in sources, and links in the pages themselves.

while IFS= read -r line; do complain "$line"; done < <(
  awk -f tests/support/make/tidy_references.awk \
    <(find . \( -path ./.git -o -path ./build \) -prune -o -printf '%P\n' | sed 's|^$|.|') \
    <(git ls-files -z '*.md' | xargs -0 awk 'FNR == 1 { code = 0 } /^```/ { code = !code } !code && /^#+ / { # as GitHub makes them
        sub(/^#+ /, ""); gsub(/`/, ""); $0 = tolower($0); gsub(/[^a-z0-9 _-]/, ""); gsub(/ /, "-"); print FILENAME "#" $0 }') \
    <(git grep -noE '(^|[^a-z/])doc/[a-z_-]+\.md(#[a-z0-9_-]+)?' -- '*.c' '*.h' '*.cu' '*.cuh' '*.cc' '*.py' '*.sh' Makefile |
        sed -E 's/^([^:]+:[0-9]+):[^d]?/\1\t/'
      git grep -noE '\]\([^)]+' -- '*.md' | sed -E 's/^([^:]+:[0-9]+):\]\((.*)/\1\t\2\tlink/' | grep -vE $'\t(http|#)'))
while IFS= read -r line; do complain "a page that is not in the manual: $line"; done < <(
  git grep -nE '(^|[^a-z/_(.A-Z-])(model|data|attention|checkpoints|operations|performance|style|architecture|ranks)\.md([^a-z]|$)' -- '*.c' '*.h' '*.cu' '*.cuh' '*.cc' '*.py' '*.sh' Makefile || true)

# doc/environment.md names the variables that the sources use, settings aside, and no others. Test files are left out.
named=$({ git grep -hoE '"PLM_[A-Z0-9_]*[A-Z0-9]"' -- '*.c' '*.cc' '*.h' '*.cu' '*.cuh' '*.py' ':!tests/**/test_*' ':!tests/mutants/plant.py'
  git grep -hoE '\$\{?PLM_[A-Z0-9_]*[A-Z0-9]|(^|[^A-Z_])PLM_[A-Z0-9_]*[A-Z0-9]=' -- '*.sh' '*.py' '*.in' Makefile .ci ':!tests/**/test_*'; } |
  grep -oE 'PLM_[A-Z0-9_]+' | grep -vE '^PLM_(NETWORK|DATA|PACKER|MODEL|TRAINER|EVALUATOR|METRICS)_' | sort -u)
described=$(grep -oE '`PLM_[A-Z0-9_]*[A-Z0-9]`' doc/environment.md | tr -d '`' | sort -u)
while IFS= read -r name; do [ -z "$name" ] || complain "doc/environment.md does not describe $name"; done < <(
  comm -23 <(echo "$named") <(echo "$described"))
while IFS= read -r name; do [ -z "$name" ] || complain "doc/environment.md describes $name, which nothing uses"; done < <(
  comm -13 <(echo "$named") <(echo "$described"))
