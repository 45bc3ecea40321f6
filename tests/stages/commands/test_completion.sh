#!/usr/bin/env bash
# plm-pipeline completion, for itself and the stages' programs: asks zsh and fish themselves what they would offer,
# the same words as bash (test_completion_bash.sh); one that is not installed is skipped.
. "$PLM_ROOT/tests/support/shell/lib.sh"
pipeline=$PLM_BIN/plm-pipeline
echo 'seed: 7' >pipeline.yaml

# all_scripts SHELL: those of the four programs
all_scripts() {
  local program
  for program in plm-pipeline plm-packer plm-trainer plm-evaluator; do
    "$pipeline" completion "$1" "$program" || fail "completion $1 $program"
  done
}

# An interactive zsh with the script, in which TAB is pressed at the end of a line. It prints what
# compadd is given.
cat >offers.zsh <<'Z'
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z "PS1=; unsetopt zle_bracketed_paste; stty -echo cols 999; source <(print -r - '
  autoload -U compinit; $1; bindkey \"^I\" complete-word; setopt extended_glob
  compadd() { # with -O, -A or -D it only looks
    if (( \${@[1,(i)(-|--)][(I)-[a-zA-Z]#[OAD]*]} )); then builtin compadd \"\$@\"; return; fi
    local -a offered; builtin compadd -A offered \"\$@\"
    (( \$#offered )) && print -rl - \"offer:\"\${^offered}
    builtin compadd \"\$@\"
  }
  finish() { print; print END-OF-OFFERS; exit }
  compprefuncs=() comppostfuncs=(finish); print READY
')"
while zpty -r z line; do [[ $line == READY* ]] && break; done
zpty -w -n z "$2"$'\t'
while zpty -r z line; do
  line=${line//$'\r'/}
  [[ $line == *offer:* ]] && print -r - ${${line##*offer:}%$'\n'}
  [[ $line == *END-OF-OFFERS* ]] && break
done
zpty -d z
Z
offers_zsh() { timeout 60 zsh -f offers.zsh "${2:-compinit -u -D; source completion.zsh}" "$1"; }
offers_fish() { timeout 60 fish -N -c "source completion.fish; complete -C '$1'" | cut -f 1 | tr -d /; }

# offers LINE WANTED: checks the words that are offered at the end of LINE, sorted
offers() {
  local got
  got=$("offers_$shell" "$1" | LC_ALL=C sort -u | xargs)
  [ "$got" = "$2" ] || fail "$shell completes '$1' to '$got'"
}

mkdir here functions home
export HOME=$PWD/home
commands=$("$pipeline" -h | sed -n '/^commands:/,/^$/s/^  \([a-z0-9]\+\) .*/\1/p' | LC_ALL=C sort | xargs)
# offers_of SHELL: checks all that it offers
offers_of() {
  local shell=$1
  if ! command -v "$shell" >/dev/null; then
    echo "$shell is not installed: its script was not tried"
    return
  fi
  all_scripts "$shell" >"completion.$shell"
  offers 'plm-pipeline ' "$commands"
  offers 'plm-pipeline val' validate
  offers 'plm-pipeline -c pipeline.yaml val' validate
  offers 'plm-pipeline --run=here --json met' metrics
  offers 'plm-pipeline -c pipeline.yaml ps --wa' --watch
  offers 'plm-pipeline ps --wa' --watch
  offers 'plm-pipeline up --wa' --wait
  offers 'plm-pipeline up ps --wa' --wait
  offers 'plm-pipeline ps --co' '--color --config'
  offers 'plm-pipeline ps --color ' 'always auto never'
  offers 'plm-pipeline up --set trainer.ste' 'trainer.steps='
  offers 'plm-pipeline --set trainer.ste' 'trainer.steps='
  offers 'plm-pipeline up --resume au' auto
  offers 'plm-pipeline up --resume he' here
  offers 'plm-pipeline up --run h' 'here home'
  offers 'plm-pipeline ingest --clusters pip' pipeline.yaml
  offers 'plm-pipeline metrics ' 'evaluator packer trainer'
  offers 'plm-pipeline logs -f ' 'evaluator packer trainer'
  offers 'plm-pipeline scale ' packer=
  offers 'plm-pipeline completion ' 'bash fish plm-evaluator plm-packer plm-trainer zsh'
  offers 'plm-packer --corpus pip' pipeline.yaml
  offers 'plm-packer --threads 2 --al' --allow-remote
  offers 'plm-trainer -c pipeline.yaml --dr' --dry-run
  offers 'plm-trainer --set trainer.ste' 'trainer.steps='
  offers 'plm-evaluator ' 'embed evaluate generate predict probe score'
  offers 'plm-evaluator --prom' --prometheus
  offers 'plm-evaluator embed --poo' --pooling
  offers 'plm-evaluator embed pip' pipeline.yaml
  offers 'plm-pipeline up pip' pipeline.yaml
  offers 'plm-pipeline up tra' trainer
  offers 'plm-pipeline embed pip' pipeline.yaml
  offers 'plm-pipeline score --masking ' ''
}
offers_of zsh & # at the same time, because starting these shells takes long
zsh=$!
offers_of fish
wait "$zsh"
if [ -f completion.zsh ]; then # as a file among zsh's functions
  "$pipeline" completion zsh >functions/_plm-pipeline
  "$pipeline" completion zsh plm-evaluator >functions/_plm-evaluator
  for words in 'plm-pipeline val' 'plm-evaluator evalu'; do
    got=$(offers_zsh "$words" "fpath=($PWD/functions \$fpath); compinit -u -D" | xargs)
    case $got in validate | evaluate) ;; *) fail "zsh, from \$fpath: '$got'" ;; esac
  done
fi
if [ -f completion.fish ]; then
  fish -N -c "source completion.fish; complete -C 'plm-pipeline checkp'" >out
  says out "run's checkpoints"
fi
