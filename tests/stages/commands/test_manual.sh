#!/usr/bin/env bash
# `plm-pipeline manual`: there is a page for every program and command and for pipeline.yaml, with every
# option and key, and man formats all of them without a warning.
. "$PLM_ROOT/tests/support/lib.sh"

expect 0 plm-pipeline manual --all pages
commands=$(plm-pipeline --help | sed -n '/^commands:/,/^$/s/^  \([a-z0-9]*\) .*/\1/p')
[ "$(wc -w <<<"$commands")" -gt 20 ] || fail "the overview lists only: $commands"
for name in plm-pipeline plm-packer plm-trainer plm-evaluator $(printf 'plm-pipeline-%s ' $commands); do
  [ -s "pages/man1/$name.1" ] || fail "$name(1) is missing"
done
[ "$(find pages -type f | wc -l)" -eq $(($(wc -w <<<"$commands") + 5)) ] || fail "other pages: $(find pages -type f)"

# one page on standard output is the file; names may be short or long
expect 0 plm-pipeline manual up
cmp out pages/man1/plm-pipeline-up.1
expect 0 plm-pipeline manual plm-pipeline-up
cmp out pages/man1/plm-pipeline-up.1
expect 0 plm-pipeline manual plm-trainer
cmp out pages/man1/plm-trainer.1
expect 0 plm-pipeline manual
cmp out pages/man1/plm-pipeline.1
expect 2 plm-pipeline manual upp
says err 'no manual page "upp"'
expect 2 plm-pipeline manual up --all pages

# the pages say what the help says
plain() { tr -d '\\' <"$1"; }
for option in $(plm-pipeline up --help | grep -oE '^ +(-., )?--[a-z-]+' | grep -oE -- '--[a-z-]+'); do
  plain pages/man1/plm-pipeline-up.1 | matches -F "fB$option" || fail "plm-pipeline-up(1) has no $option"
done
for option in $(plm-packer --help | grep -oE '^ +(-., )?--[a-z-]+' | grep -oE -- '--[a-z-]+'); do
  plain pages/man1/plm-packer.1 | matches -F "fB$option" || fail "plm-packer(1) has no $option"
done
plm-pipeline config --reference | sed -n 's/^| `\([a-z_.0-9]*\)` |.*/\1/p' >keys
[ "$(wc -l <keys)" -gt 60 ] || fail "the reference has few keys"
plain pages/man5/pipeline.yaml.5 >page
while read -r key; do
  grep -qxF "fB${key}fR" page || fail "pipeline.yaml(5) has no $key"
done <keys

# what roff would obey is text: a point or a quote at the beginning of a line
! grep -E "^\.[a-z]|^'" pages/man*/* | grep -vE ':\.(sp|nf|fi)$' || fail "a line that roff takes for a request"

# ---- man has nothing to complain about, and shows the words -----------------------------------------------
command -v man >/dev/null && command -v groff >/dev/null || { echo "no man and groff: the pages were not formatted"; exit 77; }
export LC_ALL=C.UTF-8 MANWIDTH=80 PAGER=cat
for page in pages/man*/*; do
  man --warnings -E UTF-8 -l -Tutf8 -Z "$page" >formatted 2>warnings || fail "man does not format $page: $(cat warnings)"
  [ ! -s warnings ] || fail "man about $page: $(cat warnings)"
  [ -s formatted ] || fail "$page is empty"
done
man -l pages/man1/plm-pipeline-completion.1 >shown
says shown 'source <\(plm-pipeline completion bash\)'
man -l pages/man5/pipeline.yaml.5 >shown
says shown '^ {9,}architecture: patch_unet$' # the indentation of the example is kept
says shown 'PLM_TRAINER_STEPS=100'
