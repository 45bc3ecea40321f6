#!/usr/bin/env bash
# `plm-pipeline ingest` and `corpus`, run as programs: round trips, bad input, options, signals, a
# full disk.
. "$PLM_ROOT/tests/support/shell/lib.sh"
set +e # it looks at exit codes itself
pipeline=$PLM_BIN/plm-pipeline
sample=$PLM_ROOT/tests/data/sample.fasta.gz

# succeeds ARGS...: the output goes to out, the report to err
succeeds() { expect 0 "$pipeline" "$@"; }
# fails CODE PATTERN ARGS...: checks the exit code, the message, and that nothing is left behind
fails() {
  local code=$1 pattern=$2
  shift 2
  expect "$code" "$pipeline" "$@"
  says err "$pattern"
  compgen -G 'c.tmp*' >/dev/null && fail "'$*' left $(echo c.tmp*)"
  return 0
}
nothing_left() { [ -e c ] && fail "$1 left a corpus"; rm -rf c; }
sequences() { grep -v '^>' | sort; }

# ---- the sample comes back from every compression, with the same fingerprint ---------------------
zcat "$sample" >s.fasta
zstd -q s.fasta -o s.fa.zst
split -l 1000 --additional-suffix=.fasta s.fasta part.
for part in part.*; do gzip -c "$part"; done >many-members.faa.gz
awk '/^>/{print;next}{for(i=1;i<=length($0);i+=60)print substr($0,i,60)}' s.fasta | tr A-Z a-z |
  sed '/^>/!s/$/\r/' >folded.fas
awk '/^>/{name=substr($1,2);next}{printf "{\"name\":\"%s\",\"sequence\":\"%s\"}\n",name,$0}' \
  s.fasta >s.jsonl
awk 'BEGIN{print "length,sequence,id"}/^>/{name=substr($1,2);next}{printf "%d,\"%s\",%s\r\n",length($0),$0,name}' \
  s.fasta | gzip -c >s.csv.gz
zcat s.csv.gz | tr ',' '\t' | sed '1s/sequence/residues/' >s.table
grep -v '^>' s.fasta >s.txt
cp s.fasta no-extension
prints=()
for input in "$sample" s.fasta s.fa.zst many-members.faa.gz folded.fas s.jsonl s.csv.gz \
  "s.table --sequence-column residues" s.txt no-extension; do
  rm -rf c
  # shellcheck disable=SC2086 # a file and its options
  succeeds ingest $input --corpus c
  prints+=("$("$pipeline" corpus c --json 2>/dev/null | jq -r .fingerprint)")
done
rm -rf c
"$pipeline" ingest - --corpus c <"$sample" >out 2>err || fail "stdin: $(cat err)"
prints+=("$("$pipeline" corpus c --json 2>/dev/null | jq -r .fingerprint)")
[ "$(printf '%s\n' "${prints[@]}" | sort -u | wc -l)" -eq 1 ] || fail "fingerprints: ${prints[*]}"
[[ ${prints[0]} =~ ^[0-9a-f]{32}$ ]] || fail "fingerprint ${prints[0]}"

"$pipeline" corpus c --fasta 2>/dev/null >back.fasta
cmp -s <(sequences <back.fasta) <(sequences <s.fasta) || fail "the sequences came back otherwise"
cmp -s <(grep '^>' back.fasta | sort) <(grep '^>' s.fasta | awk '{print $1}' | sort) ||
  fail "the names came back otherwise"
for split in train valid test; do "$pipeline" corpus c --fasta --split $split 2>/dev/null; done |
  cmp -s - back.fasta || fail "the splits are not the whole"
succeeds corpus c --verify

# ---- files side by side, and standard input between them: the same bytes ---------------------------
succeeds ingest part.* s.fa.zst s.jsonl --corpus serial --jobs 1
succeeds ingest part.* s.fa.zst s.jsonl --corpus side --jobs 5
for file in data.mdb corpus.json; do cmp -s serial/$file side/$file || fail "--jobs 5 writes another $file"; done
for jobs in 1 3; do
  "$pipeline" ingest part.*a.fasta - part.*b.fasta --corpus piped.$jobs --jobs $jobs <s.txt >out 2>err ||
    fail "--jobs $jobs with stdin: $(cat err)"
done
cmp -s piped.1/data.mdb piped.3/data.mdb || fail "--jobs 3 with stdin writes another data.mdb"
rm -rf serial side piped.*
fails 2 '--jobs must be from 1 to 256' ingest s.fasta --corpus other --jobs 0

# --json agrees with the FASTA
"$pipeline" corpus c --json >json 2>/dev/null
[ "$(wc -l <json)" -eq 1 ] || fail "--json is not one line"
[ "$(jq '[.splits[].documents] | add' json)" -eq 2000 ] || fail "documents"
[ "$(jq '[.splits[].residues] | add' json)" -eq "$(grep -v '>' s.fasta | tr -d '\n' | wc -c)" ] ||
  fail "residues"
entropy=$(grep -v '>' s.fasta | fold -w 1 | sort | uniq -c |
  awk '{c[NR]=$1;n+=$1} END {for(i in c)h-=c[i]/n*log(c[i]/n);printf "%.4f",h}')
[ "$(jq '(.entropy * 10000 | round) / 10000' json)" = "$(jq -n "$entropy")" ] ||
  fail "entropy $(jq .entropy json), awk says $entropy"
succeeds corpus c
grep -q '^split  *without clusters: homologues may be shared$' out || fail "no word about homologues"
grep -q 'split valid has only .* documents' err || fail "no warning of a small split"
grep -q '####' out || fail "no bars"

# ---- splits -------------------------------------------------------------------------------------
rm -rf c
succeeds ingest s.fasta s.fasta --corpus c --split train=0.5,valid=0.25,test=0.25
for split in train valid test; do
  "$pipeline" corpus c --fasta --split $split 2>/dev/null | sequences | uniq >$split.set
done
[ -z "$(comm -12 train.set valid.set)$(comm -12 train.set test.set)$(comm -12 valid.set test.set)" ] ||
  fail "a sequence is in two splits"
n=$(wc -l <train.set)
[ "$n" -gt 900 ] && [ "$n" -lt 1100 ] || fail "train=0.5 gave $n of 2000"
fails 2 'sum to 0.9' ingest s.fasta --corpus d --split train=0.9
fails 2 'no split is called "x"' ingest s.fasta --corpus d --split x=1
rm -rf c
succeeds ingest s.fasta --corpus c --split test=1
[ "$("$pipeline" corpus c --json 2>/dev/null | jq .splits.test.documents)" -eq 2000 ] || fail "test=1"

# clusters of ten, found by the accession; each is in one split
rm -rf c
grep '^>' s.fasta | awk '{sub(/^>/,"",$1); split($1,p,"|"); id=p[2]
  if((NR-1)%10==0)rep=id; printf "%s\t%s\n",rep,id}' | gzip >clusters.tsv.gz
succeeds ingest s.fasta --corpus c --clusters clusters.tsv.gz --split train=0.5,valid=0.5
grep -q 'in no cluster' err && fail "members were not found"
for split in train valid; do
  "$pipeline" corpus c --fasta --split $split 2>/dev/null | grep '^>' | cut -c2- >$split.names
done
grep '^>' s.fasta | awk '{print substr($1,2)}' >s.names
awk 'FILENAME=="s.names"{c[$1]=int((FNR-1)/10);next} {k=c[$1] FILENAME; if(!(k in seen)){seen[k]=1;n[c[$1]]++}}
  END{for(i in n){t++; if(n[i]>1)bad++}; exit !(t==200 && !bad)}' s.names train.names valid.names ||
  fail "a cluster is in two splits"
"$pipeline" corpus c 2>/dev/null | grep 'by clusters' >/dev/null || fail "clusters are not mentioned"
printf 'a\tb\nc\tb\n' >twice.tsv
fails 1 'twice.tsv:2: .*another cluster' ingest s.fasta --corpus d --clusters twice.tsv --strict
printf 'a b\n' >notab.tsv
fails 1 'notab.tsv:1: .*no tab' ingest s.fasta --corpus d --clusters notab.tsv

# ---- duplicates, lengths ------------------------------------------------------------------------
rm -rf c
succeeds ingest s.fasta s.fasta --corpus c
[ "$("$pipeline" corpus c --json 2>/dev/null | jq '[.splits[].documents]|add')" -eq 4000 ] ||
  fail "repeated names are not kept"
rm -rf c
succeeds ingest s.fasta s.jsonl --corpus c --deduplicate
grep -q 'bytes of memory for each sequence' err || fail "--deduplicate says nothing of its memory"
distinct=$(sequences <s.fasta | uniq | wc -l)
[ "$("$pipeline" corpus c --json 2>/dev/null | jq '[.splits[].documents]|add')" -eq "$distinct" ] ||
  fail "--deduplicate"
rm -rf c
printf '>a\nLA\n>b\nLAGV\n>c\nLAGVSERT\n' >lengths.fasta
succeeds ingest lengths.fasta --corpus c --min-length 3 --max-residues 6
[ "$("$pipeline" corpus c --fasta 2>/dev/null | head -n 1)" = '>b' ] || fail "--min-length, --max-residues"
grep -q 'shorter than --min-length, dropped: 1' err && grep -q 'lengths.fasta:5: "c" has 8 residues' err ||
  fail "dropped sequences are not counted: $(cat err)"
rm -rf c
{ echo '>sp|Q8WZ42|TITIN_HUMAN'; yes LAGVSERTIDPKQNFYMHWC | head -n 1750; } >titin.fasta
succeeds ingest titin.fasta --corpus c
[ "$("$pipeline" corpus c --json 2>/dev/null | jq '[.splits[].length_max]|max')" -eq 35000 ] ||
  fail "titin"

# ---- bad input: the message names the file, nothing is left -------------------------------------
rm -rf c
: >empty.fasta
fails 1 'empty.fasta is empty' ingest empty.fasta --corpus c
nothing_left empty
gzip -c empty.fasta >empty.fasta.gz
fails 1 'empty.fasta.gz is empty' ingest empty.fasta.gz --corpus c
head -c 300000 "$sample" >cut.fasta.gz
fails 1 'cut.fasta.gz is cut off' ingest s.fasta cut.fasta.gz --corpus c
nothing_left "a truncated gzip"
head -c 300000 s.fa.zst >cut.fa.zst
fails 1 'cut.fa.zst is cut off' ingest cut.fa.zst --corpus c
cp s.fasta s.gz
fails 1 's.gz is not a gzip file' ingest s.gz --corpus c
echo 'Dear colleague,' >letter.fasta
fails 1 "letter.fasta:1: not FASTA: the first line begins with 'D'" ingest letter.fasta --corpus c
printf '>a\n1\n>b\n2\n' >digits.fasta
fails 1 'digits.fasta has no good record, 2 bad' ingest digits.fasta --corpus c
fails 1 'nowhere.fasta' ingest nowhere.fasta --corpus c
fails 1 'is a folder' ingest "$PLM_TMP" --corpus c
nothing_left "bad input"
printf '>a\nLA\n>b\n>c\nL7\n>c\nG\n' >mixed.fasta
succeeds ingest mixed.fasta --corpus c
grep -q 'mixed.fasta:3: record "b": empty sequence: skipped' err || fail "empty sequence: $(cat err)"
grep -q "mixed.fasta:5: record \"c\": character '7' is not a residue: skipped" err ||
  fail "illegal character: $(cat err)"
grep -q 'bad records skipped: 2' err || fail "bad records are not counted"
rm -rf c
fails 1 'mixed.fasta:3: record "b": empty sequence' ingest mixed.fasta --corpus c --strict
nothing_left --strict
fails 1 'no sequence is left' ingest lengths.fasta --corpus c --min-length 100
fails 2 'nothing to ingest' ingest --corpus c
fails 2 '--corpus DIR' ingest s.fasta
fails 2 '--corpus - does not name a folder' ingest s.fasta --corpus -
grep -q 'name a folder, or --corpus ./-' err || fail "what to do instead of --corpus -: $(cat err)"
[ ! -e - ] || fail "--corpus - made a folder"
fails 2 'did you mean "--deduplicate"' ingest s.fasta --corpus c --deduplicat

# ---- an existing folder -------------------------------------------------------------------------
succeeds ingest lengths.fasta --corpus c
before=$(md5sum c/*)
fails 1 'c exists' ingest s.fasta --corpus c
fails 1 'empty.fasta is empty' ingest empty.fasta --corpus c --force
[ "$(md5sum c/*)" = "$before" ] || fail "a failed --force touched the corpus"
succeeds ingest s.fasta --corpus c/ --force
[ "$("$pipeline" corpus c --json 2>/dev/null | jq '[.splits[].documents]|add')" -eq 2000 ] || fail "--force"
compgen -G 'c.tmp*' >/dev/null && fail "--force left $(echo c.tmp*)"
mkdir d && echo precious >d/file
fails 1 'd exists and is not a corpus' ingest s.fasta --corpus d --force
[ -e d/file ] || fail "--force removed what is no corpus"
fails 1 'd is not a corpus' corpus d
rm -rf c

# ---- names of files that are not UTF-8 --------------------------------------------------------------
cp lengths.fasta $'\xff\xe2\x82 \\ \xe2\x82\xac.fasta'
succeeds ingest $'\xff\xe2\x82 \\ \xe2\x82\xac.fasta' lengths.fasta --corpus c
iconv -f utf-8 -t utf-8 c/corpus.json >/dev/null || fail "corpus.json is not UTF-8"
[ "$(jq -c '[.sources[].name]' c/corpus.json)" = '["\\xff\\xe2\\x82 \\ €.fasta","lengths.fasta"]' ] ||
  fail "names that are not UTF-8: $(jq -c .sources c/corpus.json)"
succeeds corpus c --verify
rm -rf c

# ---- the byte tokenizer keeps the text ----------------------------------------------------------
printf 'One line, as it is.\r\n\n  Another *\n' >prose.txt
succeeds ingest prose.txt --corpus c --tokenizer byte --split train=1
"$pipeline" corpus c --fasta 2>/dev/null |
  cmp -s - <(printf '>prose.txt:1\nOne line, as it is.\n>prose.txt:3\n  Another *\n') || fail "byte"
rm -rf c

# ---- signals: 130 and 143, and nothing is left; after SIGKILL the next start removes the rest ----
stop_with() { # SIGNAL CODE
  mkfifo pipe
  # the reader must not hold the pipe's writing end itself
  env --default-signal=INT,TERM "$pipeline" ingest - --corpus c <pipe >out 2>err &
  local child=$! status
  exec 3>pipe
  cat s.fasta >&3
  until compgen -G 'c.tmp-*/build/data.mdb' >/dev/null; do
    kill -0 "$child" || { fail "ingest ended before $1: $(cat err)"; break; }
    sleep 0.05
  done
  kill "-$1" "$child"
  wait "$child"
  status=$?
  exec 3>&-
  rm pipe
  [ "$status" -eq "$2" ] || fail "$1 ended with $status instead of $2: $(cat err)"
  [ -e c ] && fail "$1 left a corpus"
}
stop_with INT 130
compgen -G 'c.tmp*' >/dev/null && fail "Ctrl-C left $(echo c.tmp*)"
stop_with TERM 143
compgen -G 'c.tmp*' >/dev/null && fail "SIGTERM left $(echo c.tmp*)"
stop_with KILL 137 2>/dev/null
compgen -G 'c.tmp*' >/dev/null || fail "SIGKILL is expected to leave its folder"
succeeds ingest lengths.fasta --corpus c
compgen -G 'c.tmp*' >/dev/null && fail "the next ingest left $(echo c.tmp*)"
rm -rf c

# ---- a full disk --------------------------------------------------------------------------------
# in a separate mount namespace: full while groups are written, and full while they are compacted
full='mount -t tmpfs -o size=$2 none full && "$0" ingest "$1" --corpus full/c "${@:3}" 2>err >out'
full+='; code=$?; ls -A full >left; exit $code'
mkdir full
if unshare -rm mount -t tmpfs none full 2>/dev/null; then
  for size in 400k 900k; do
    unshare -rm bash -c "$full" "$pipeline" s.fasta $size
    status=$?
    [ "$status" -eq 1 ] || fail "a full disk ($size) ended with $status"
    grep -q 'No space left on device' err || fail "a full disk ($size) says: $(cat err)"
    [ -s left ] && fail "a full disk ($size) left $(cat left)"
  done
  # also while the clusters are read, and while documents are collected
  for size in 200k 700k; do
    unshare -rm bash -c "$full" "$pipeline" s.fasta $size --clusters clusters.tsv.gz
    status=$?
    [ "$status" -eq 1 ] || fail "a full disk ($size) with clusters ended with $status"
    grep -q 'No space left on device' err || fail "a full disk ($size) with clusters: $(cat err)"
    grep -q 'sequences as text' err || fail "a full disk ($size) with clusters gives no hint: $(cat err)"
    [ -s left ] && fail "a full disk ($size) with clusters left $(cat left)"
  done
  unshare -rm bash -c "$full" "$pipeline" s.fasta 900k
  grep -q 'twice the size of the finished corpus' err || fail "a full disk gives no hint: $(cat err)"
else
  echo "no mount namespaces here: the full disk was not tried"
fi

# ---- damage -------------------------------------------------------------------------------------
succeeds ingest s.fasta --corpus c
cp c/data.mdb whole.mdb
for at in 0 5000 300000 400000; do
  cp whole.mdb c/data.mdb
  printf '\xa5' | dd of=c/data.mdb bs=1 seek=$at conv=notrunc status=none
  cmp -s whole.mdb c/data.mdb && continue
  fails 1 'c/data.mdb is not the file that ingest wrote' corpus c --verify
  fails 1 'c/data.mdb' corpus c --fasta
done
truncate -s -4096 c/data.mdb
fails 1 'c/data.mdb' corpus c --verify
fails 1 'c/data.mdb has [0-9]* bytes instead of' corpus c # a half-copied one is found at once
cp whole.mdb c/data.mdb
sed -i 's/"clustered": false/"clustered": true/' c/corpus.json
fails 1 'c/corpus.json is not what ingest wrote' corpus c --verify

# A summary looks at a mebibyte at either end of the file, --verify at every byte.
head -c 6000000 /dev/urandom | base64 -w0 | tr a-z A-Z | tr -dc LAGVSERTIDPKQNFYMHWC | fold -w 400 >big.txt
succeeds ingest big.txt --corpus big
at=$(($(stat -c %s big/data.mdb) / 2))
byte=$(od -An -tu1 -j $at -N 1 big/data.mdb)
printf "\\x$(printf %02x $((byte ^ 1)))" | dd of=big/data.mdb bs=1 seek=$at conv=notrunc status=none
succeeds corpus big
fails 1 'big/data.mdb is not the file that ingest wrote' corpus big --verify
