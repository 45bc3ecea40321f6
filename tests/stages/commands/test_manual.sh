#!/usr/bin/env bash
# man formats all pages of `plm-pipeline manual` without a warning, and shows their words.
. "$PLM_ROOT/tests/support/shell/lib.sh"
command -v man >/dev/null && command -v groff >/dev/null || { echo "no man and groff: the pages were not formatted"; exit 77; }
expect 0 plm-pipeline manual --all pages
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
