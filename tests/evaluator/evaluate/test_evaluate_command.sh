#!/usr/bin/env bash
# `plm-pipeline evaluate` at the command line: the whole text and the whole JSON object, and what it refuses.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus
small_config pipeline.yaml patch_unet
expect 0 plm-pipeline up pipeline.yaml --set trainer.steps=4 --set trainer.ema=0.9
checkpoint=run/checkpoints/step_00000004
evaluate() { plm-pipeline evaluate --checkpoint "$checkpoint" --corpus corpus --threads 1 "$@"; }

# text_of JSON: what is printed for people, from the numbers of the object, without the time
text_of() {
  python3 - "$1" "$checkpoint" <<'END'
import json, sys

line, checkpoint = json.load(open(sys.argv[1])), sys.argv[2]
if "step" in line:
    print(f"checkpoint   {checkpoint} (step {line['step']}, weights: {line['weights']})")
else:
    print(f"model        {checkpoint}")
cut = f", {line['cut']} documents cut" if line["cut"] > 0 else ""
print(f"split        {line['split']} of corpus, {line['tokens']} tokens predicted{cut}")
print(f"loss         {line['loss']:.6f} nats (composition only: {line['baseline_entropy']:.4f})")
print(f"perplexity   {line['perplexity']:.4f}")
print("accuracy     {accuracy:.4f}   precision {precision:.4f}   recall {recall:.4f}   f1 {f1:.4f}   mcc {mcc:.4f}".format(**line))
if "elbo" in line:
    print(f"elbo         {line['elbo']:.6f} nats per residue")
if "pseudo_perplexity" in line:
    print(f"pseudo-perplexity  {line['pseudo_perplexity']:.4f}")
if "pseudo_perplexity_fast" in line:
    print(f"pseudo-perplexity  {line['pseudo_perplexity_fast']:.4f} (estimated from one pass)")
print("by length    " + "".join(f"{name}: {loss:.4f}  " for name, loss in line["loss_by_length"].items()))
layers = {value: name for name, value in line["attention_entropy"].items()}
least, most = min(layers), max(layers)
print(f"attention    entropy {least:.3f} nats ({layers[least]}) to {most:.3f} ({layers[most]})")
END
}
# both OPTIONS…: the text says what the object says
both() {
  expect 0 evaluate "$@" --json
  cp out object.json
  text_of object.json >wanted
  expect 0 evaluate "$@"
  tail -n 1 out | matches -xE 'time         [0-9]+\.[0-9]{2} s' || fail "no time: $(cat out)"
  head -n -1 out | cmp - wanted || fail "the text differs from the object: $(cat out wanted)"
}
is() { jq -e "$1" object.json >/dev/null || fail "not $1: $(cat object.json)"; }

both
identity=$(xxhsum -H2 $checkpoint/model.safetensors 2>/dev/null | cut -d' ' -f1) || identity=
is '.v == 1 and .step == 4 and .set == "corpus" and .split == "valid" and .weights == "ema"'
is ".checkpoint == \"$checkpoint\" and (.identity | test(\"^[0-9a-f]{32}\$\"))"
[ -z "$identity" ] || is ".identity == \"$identity\""
is '(.loss_by_mask_rate | keys) == ["0.15"] and .loss == .loss_by_mask_rate["0.15"] and (has("elbo") | not)'
is '(has("pseudo_perplexity") or has("pseudo_perplexity_fast")) | not'
is '(.perplexity - (.loss | exp)) | fabs < 1e-9'
says err 'split without clusters: homologues may be shared$'
tokens=$(jq .tokens object.json) loss=$(jq .loss object.json)

both --split test --mask-rate 0.5 --seed 3
is '.split == "test" and (.loss_by_mask_rate | keys) == ["0.5"]'
is ".tokens > 2 * $tokens and .loss != $loss"
both --max-tokens 1500
is ".tokens < $tokens and .tokens <= 1500 * 0.3"
both --max-length 32 # documents are cut
is '.cut == 41'
is ".tokens < $tokens and .loss != $loss"
both --max-length 512 # longer chunks hold the same documents, of which none is longer than the model's
is "(.tokens - $tokens | fabs) < 1 and (.loss - $loss | fabs) < 1e-3"
expect 2 evaluate --max-length 100
says err '\-\-max-length 100 is not a power of two'
expect 0 plm-pipeline up pipeline.yaml --run deep --set trainer.steps=1 --set model.num_unet_layers=8
expect 2 plm-pipeline evaluate --checkpoint deep/checkpoints/step_00000001 --corpus corpus --max-length 4
says err '\-\-max-length 4 is too short .* groups of 8 tokens'
both --elbo-rates 2 --max-tokens 1500
is '.elbo > 1 and .elbo < 8'
both --max-tokens 600 --pseudo-perplexity both --random-fraction 0.1 --keep-fraction 0.1
is '.pseudo_perplexity > 1 and .pseudo_perplexity_fast > 1'
both --max-tokens 600 --pseudo-perplexity exact
is 'has("pseudo_perplexity") and (has("pseudo_perplexity_fast") | not)'
both --max-tokens 600 --pseudo-perplexity fast --random-fraction 0.1 --keep-fraction 0
is 'has("pseudo_perplexity_fast") and (has("pseudo_perplexity") | not)'
# nothing is masked for the estimate, so the rate of masks does not matter; the fractions do
fast() { expect 0 evaluate --max-tokens 600 --pseudo-perplexity fast --json "$@" && jq .pseudo_perplexity_fast out; }
estimate=$(fast --random-fraction 0.1 --keep-fraction 0.1)
[ "$(fast --mask-rate 0.4 --random-fraction 0.1 --keep-fraction 0.1)" = "$estimate" ] || fail "the rate of masks counts"
[ "$(fast --random-fraction 0.2 --keep-fraction 0.1)" != "$estimate" ] || fail "the random fraction does not count"
[ "$(fast --random-fraction 0.1 --keep-fraction 0.2)" != "$estimate" ] || fail "the kept fraction does not count"

# ---- another corpus than that of the run ----
! grep -q 'was not trained on' err || fail "a warning about the run's own corpus: $(cat err)"
small_fasta other.fasta 100 2
expect 0 plm-pipeline ingest other.fasta --corpus other --split train=0.5,valid=0.5,test=0 -q
expect 0 plm-pipeline evaluate --checkpoint "$checkpoint" --corpus other --max-tokens 600 --threads 1
says err "^plm-evaluator evaluate: warning: $checkpoint was not trained on other, so sequences of its split valid may be in what it was"

# an exported model has no step, and says the hash of its weights
expect 0 plm-pipeline export --checkpoint $checkpoint --output model
checkpoint=model
both --max-tokens 1500
is '(has("step") | not) and .checkpoint == "model" and .weights == "model"'
[ "$(jq -r .identity object.json)" != 00000000000000000000000000000000 ] || fail "no identity: $(cat object.json)"

# ---- what it refuses ----
refuses() { # CODE REGEX OPTIONS…
  local code=$1 regex=$2
  shift 2
  expect "$code" evaluate "$@"
  says err "$regex"
}
refuses 2 '--elbo-rates 1.5 is not a whole number' --elbo-rates 1.5
refuses 2 '--elbo-rates 0 ' --elbo-rates 0
refuses 2 '--elbo-rates 65 ' --elbo-rates 65
refuses 2 '--random-fraction 0 ' --random-fraction 0
refuses 2 '--keep-fraction 1.5 ' --keep-fraction 1.5
refuses 2 '--mask-rate 0 ' --mask-rate 0
refuses 2 'must be exact, fast or both, not "slow"' --pseudo-perplexity slow
for given in '' '--random-fraction 0.1' '--keep-fraction 0.1'; do
  for how in fast both; do
    # shellcheck disable=SC2086
    refuses 2 'fast needs --random-fraction and --keep-fraction' --pseudo-perplexity $how $given
  done
done
refuses 2 '"all"' --split all
expect 2 plm-pipeline evaluate --corpus corpus
says err '--checkpoint DIR is needed'
expect 2 plm-pipeline evaluate --checkpoint "$checkpoint"
says err '--corpus DIR is needed'
expect 0 plm-pipeline ingest corpus.fasta --corpus bytes --tokenizer byte -q
expect 2 plm-pipeline evaluate --checkpoint "$checkpoint" --corpus bytes
says err "the checkpoint has 33 tokens, the corpus's tokenizer 261"
expect 0 plm-pipeline ingest corpus.fasta --corpus whole --split train=1,valid=0,test=0 -q
expect 2 plm-pipeline evaluate --checkpoint "$checkpoint" --corpus whole
says err 'the corpus has no documents in split valid'
