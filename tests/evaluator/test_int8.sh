#!/usr/bin/env bash
# How far --precision int8 moves embeddings and pseudo-perplexity of small models that were trained.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus
small_fasta s.fasta 40 3
for architecture in transformer patch_unet; do
  small_config $architecture.yaml $architecture
  plm-pipeline up $architecture.yaml trainer packer --set run=$architecture --set trainer.steps=60 \
    --set trainer.checkpoint.every=60 --set trainer.schedule.cooldown_steps=20 --set trainer.precision=fp32 -q 2>up.log ||
    fail "training: $(cat up.log)"
done

# moved FP32 INT8: the least cosine of the rows of two files of 40 x 64 floats (npy)
moved() {
  python3 - "$1" "$2" <<'END'
import array, math, sys

def rows(path):
    values = array.array("f", open(path, "rb").read()[128:])
    assert len(values) == 40 * 64
    return [values[i : i + 64] for i in range(0, len(values), 64)]

def cosine(a, b):
    dot = lambda x, y: math.fsum(p * q for p, q in zip(x, y))
    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))

pairs = list(zip(rows(sys.argv[1]), rows(sys.argv[2])))
assert all(a != b for a, b in pairs), "both precisions give the same"
print(min(cosine(a, b) for a, b in pairs))
END
}

tokens=${PLM_TEST_FEWER:+300}
for architecture in transformer patch_unet; do
  checkpoint=$architecture/checkpoints/latest
  for precision in fp32 int8; do
    expect 0 plm-pipeline embed --checkpoint $checkpoint --precision $precision --output $precision.npy s.fasta
    expect 0 plm-pipeline evaluate --checkpoint $checkpoint --corpus corpus --max-tokens "${tokens:-800}" --precision $precision \
      --pseudo-perplexity exact --json
    jq .pseudo_perplexity out >$precision.ppl
  done
  says err 'int8 '
  cosine=$(moved fp32.npy int8.npy) || fail "$architecture: embeddings"
  jq -en "$cosine >= 0.999 and $cosine <= 1" >/dev/null || fail "$architecture: the cosine is $cosine"
  echo "$architecture: cosine $cosine, pseudo-perplexity $(cat fp32.ppl) and $(cat int8.ppl)"
  jq -en "($(cat int8.ppl) / $(cat fp32.ppl) - 1 | fabs) < 0.01" >/dev/null ||
    fail "$architecture: pseudo-perplexity $(cat int8.ppl) instead of $(cat fp32.ppl)"
done

expect 2 plm-trainer -c transformer.yaml --dry-run --set trainer.precision=int8
says err 'trainer.precision.*expected auto, fp32 or bf16, found "int8"'
