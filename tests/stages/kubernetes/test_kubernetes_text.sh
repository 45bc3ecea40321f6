#!/usr/bin/env bash
# The documents of `plm-pipeline k8s` as texts: one node of GPUs with everything, and two nodes without GPUs, evaluator
# and autoscaler. Only the configuration, which `plm-pipeline config` prints as well, and the keys are left out. After a
# change that is meant, write the files anew:
#   PLM_WRITE_EXPECTED=1 tests/support/runner/run_tests.py test_kubernetes_text
. "$PLM_ROOT/tests/support/shell/lib.sh"
expected=$PLM_ROOT/tests/stages/kubernetes/expected
cat >pipeline.yaml <<'Y'
version: 1
run: runs/One_Run
corpus: corpora/one
packer: {instances: 3}
trainer: {device: cuda, ranks: 4, threads: 5, hosts: ['a:2', 'b:2']}
evaluator: {device: cuda, threads: 3, sets: [{name: other, corpus: corpora/other, split: test}]}
Y
expect 0 plm-pipeline keys keys --client packer

# writes NAME OPTION...: the documents but for what is left out are those of the file NAME.yaml
writes() {
  expect 0 plm-pipeline k8s --image registry/plm:1 --keys keys "${@:2}"
  sed -E '/^  pipeline.yaml: \|$/,/^---$/{/^    |^$/d}; s/^(  [a-z.]+\.(key|pub): ).*/\1.../' out >"$1.yaml"
  [ -z "${PLM_WRITE_EXPECTED-}" ] || cp "$1.yaml" "$expected/"
  diff "$expected/$1.yaml" "$1.yaml" || fail "k8s ${*:2} differs from $1.yaml"
}
writes one_node --namespace 7lab --claim disk.a --max-packers 9 --memory 100Gi
says err 'the volume of the claim disk.a must hold the corpus as one; the run folder will be runs/One_Run there$'
writes two_nodes --nodes 2 --cpus 6 --name other --max-packers 3 --no-evaluator --set trainer.device=cpu \
  --set trainer.stop_timeout_s=100 --set trainer.restart=no

# ---- both sides of each bound of what may be given ----
repeat() { printf "%${2}s" '' | tr ' ' "$1"; } # CHARACTER TIMES
k8s=(plm-pipeline k8s --keys keys --output stream.yaml)
takes() { # OPTION VALUE...: each of them
  for value in "${@:2}"; do
    expect 0 "${k8s[@]}" --image i "$1" "$value"
    rm stream.yaml
  done
}
refuses() { # MESSAGE OPTION VALUE...: each of them, which the message may name as @
  local message=$1 option=$2 value
  shift 2
  for value; do
    expect 2 "${k8s[@]}" --image i "$option" "$value"
    [ "$(head -n 1 err)" = "plm-pipeline: ${message//@/$(printf %.80s "$value")}" ] || fail "$option $value: $(cat err)"
  done
}
takes --name a a9 a-b "$(repeat a 40)"
refuses '--name "@" is not a name for Kubernetes' --name '' 9a -a a- aB a_b a.b "$(repeat a 41)"
takes --namespace a 9 7-b "$(repeat a 63)"
refuses '--namespace "@" is not a namespace of Kubernetes' --namespace '' -a a- aB a.b "$(repeat a 64)"
takes --claim a 9.b a-b.c "$(repeat a 253)" "$(repeat a 126).$(repeat b 126)"
refuses '--claim "@" is not the name of a PersistentVolumeClaim' --claim '' . a. .a a..b -a.b a.b- aB "$(repeat a 254)" \
  "$(repeat a 127).$(repeat b 126)"
takes --image i 9 "registry.example:5/Lab/a_b-c@sha256:0" "$(repeat a 500)"
refuses '--image "@" is not the name of an image' --image '' .a /a a#b 'a b' "$(repeat a 501)"
takes --memory 1 16Gi 100000000000Ti 1k 1M 1G 1T 1Ki 1Mi 999999999999
refuses '--memory "@" is not an amount of memory' --memory '' 0 01Gi 16gi 16GiB Gi 1.5Gi -1Gi 1000000000000
takes --nodes 1 2 4
refuses '--nodes @ does not divide trainer.ranks, which is 4' --nodes 3 8
takes --max-packers 3 4
refuses '--max-packers @ is below packer.instances, which is 3' --max-packers 2
cp pipeline.yaml before
refuses '--output @ is also the input' --output pipeline.yaml
cmp pipeline.yaml before
expect 2 plm-pipeline k8s --keys keys
says err '^plm-pipeline: --image is missing: the container image with the programs$'
expect 2 plm-pipeline k8s --image i
says err '^plm-pipeline: --keys is missing: pods reach each other over the network, which needs CURVE keys$'
expect 2 "${k8s[@]}" --image i --set corpus=null
says err '^plm-pipeline: corpus: is not set, and the packers need it$'

# ---- the name that a run folder gives ----
named() { # FOLDER NAME
  expect 0 plm-pipeline k8s --image i --keys keys --run "$1"
  says out "^  name: \"$2\"\$"
  [ "$(grep -m 1 '^  name: ' out)" = "  name: \"$2\"" ] || fail "$1 gives $(grep -m 1 '^  name: ' out)"
}
named runs/My_Run my-run
named "runs/__a..b  9__" a-b-9
named "$(repeat a 41)" "$(repeat a 40)"
named "$(repeat a 39)_b" "$(repeat a 39)"
for folder in runs/9a runs/__; do
  expect 2 plm-pipeline k8s --image i --keys keys --run "$folder"
  says err "^plm-pipeline: the run folder \"${folder#runs/}\" gives no name for Kubernetes\$"
done
