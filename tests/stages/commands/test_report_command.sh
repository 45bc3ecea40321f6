#!/usr/bin/env bash
# `plm-pipeline report`: one well-formed page that loads nothing, with the metrics, the configuration and
# the machine of one run or several.
. "$PLM_ROOT/tests/support/shell/lib.sh"

# make_run NAME LOSS: a folder as a run of 200 steps leaves it; its training loss is LOSS throughout
make_run() {
  mkdir -p "$1/checkpoints/step_00000200"
  plm-pipeline config --run "$1" --set trainer.steps=200 --set "trainer.optimizer.lr_hidden=$2" >"$1/pipeline.yaml"
  for ((step = 1; step <= 200; step++)); do
    printf '{"v":1,"step":%d,"loss":%s,"lr_hidden":0.5,"lr_embed":0.25,"lr_head":0.25,"lr_scalar":0.25,"grad_norm":1,' \
      "$step" "$2"
    printf '"tokens":%d,"padding_fraction":0.125,"tokens_per_second":%d,"step_ms":100,"data_wait_ms":25,"checkpoint_ms":1,' \
      "$((step * 10000))" "$((1000 + step))"
    printf '"memory_bytes":5e8,"mfu":0.5}\n'
  done >"$1/trainer.jsonl"
  cat >"$1/evaluator.jsonl" <<'END'
{"v":1,"step":100,"split":"valid","loss":2.25,"accuracy":0.25,"mcc":0.2,"baseline_entropy":2.875}
{"v":1,"step":200,"split":"valid","loss":2.5,"accuracy":0.375,"mcc":0.3,"baseline_entropy":2.875}
{"v":1,"step":200,"split":"test","loss":2.6,"accuracy":0.3,"mcc":0.3,"baseline_entropy":2.875}
END
  cat >"$1/checkpoints/step_00000200/trainer.json" <<'END'
{"resolved":{"device":"cpu","precision":"bf16","threads":3,"ranks":2,"processor":"6, 143, A Processor, 8",
 "level":"amx","products":"oneDNN 2.6.3","product_flops_per_second":2.5e11,"version":"9.8.7","build":"b-u-i-l-d"}}
END
}

# well_formed FILE: every element is closed, in order; nothing refers to anything outside of the file
well_formed() {
  python3 - "$1" <<'END'
import html.parser, sys

class Page(html.parser.HTMLParser):
    open = []
    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            assert name not in ("src", "href", "srcset", "data", "action") and not name.startswith("on"), (tag, name)
            assert "url(" not in (value or ""), value
        assert tag not in ("script", "link", "img", "iframe", "object", "embed", "use", "image"), tag
        if tag != "meta":
            self.open.append(tag)
    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()
    def handle_endtag(self, tag):
        assert self.open.pop() == tag, (tag, self.getpos())

page = Page()
text = open(sys.argv[1], encoding="utf-8").read()
page.feed(text)
page.close()
assert not page.open, page.open
assert "://" not in text.replace("tcp://127.0.0.1", "") and "@import" not in text and "url(" not in text
END
}

make_run runs/first 2.5
make_run runs/second 3.5

# ---- one run: the default place, every chart, the figures ---------------------------------------------
expect 0 plm-pipeline report runs/first
says err 'runs/first/report\.html is written'
page=runs/first/report.html
well_formed "$page" || fail "the page of one run is not well-formed"
for chart in 'Training loss' 'Validation loss' 'Validation accuracy' 'Training accuracy' 'Learning rate' Throughput Padding Stalls 'Gradient norm'; do
  says "$page" "aria-label=\"$chart\""
done
says "$page" 'prefers-color-scheme: dark'
says "$page" '<th scope="row">steps</th><td>200 of 200</td>'
says "$page" 'tokens, without padding</th><td>2,000,000</td>'
says "$page" 'time in steps</th><td>20 s</td>'
says "$page" 'loss of the last step</th><td>2\.5000</td>'
says "$page" 'lowest validation loss</th><td>2\.2500 \(valid, step 100\)</td>'
says "$page" 'last validation accuracy</th><td>37\.5 %</td>'
says "$page" 'tokens/s \(median\)</th><td>1,101</td>'
says "$page" 'padding</th><td>12\.50 %</td>'
says "$page" 'time spent waiting</th><td>24\.75 % for data, 0\.99 % for checkpoints</td>'
says "$page" 'processor</th><td>A Processor</td>'
says "$page" 'threads</th><td>3 in each of 2 ranks</td>'
says "$page" 'matrix products</th><td>oneDNN 2\.6\.3; 250 GFLOP/s</td>'
says "$page" 'plm-pipeline</th><td>9\.8\.7, build b-u-i-l-d</td>'
says "$page" '<th scope="row">trainer\.steps</th><td>200</td><td class="default">300</td>'
[ "$(grep -c 'trainer.batch_tokens</th>' "$page")" = 1 ] || fail "a default is among what differs from the defaults"
says "$page" '^<p class="legend">.*hidden matrices.*embeddings' # the head and the scalars have the embeddings' rate
grep -q 'scalars</span>' "$page" && fail "equal learning rates are drawn twice"

# the run of --run, and that of the configuration
expect 0 plm-pipeline report --run runs/second --output named.html
says named.html '<h1>second</h1>'
echo 'run: runs/second' >pipeline.yaml
expect 0 plm-pipeline report
says err "^plm-pipeline: $PLM_TMP/runs/second/report\.html is written$"
says runs/second/report.html "<footer>plm-pipeline [0-9.]+ report, [0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2} [+-][0-9]{4}</footer>"
rm pipeline.yaml runs/second/report.html

# ---- two runs are overlaid, and what differs is marked ------------------------------------------------
expect 0 plm-pipeline report runs/first runs/second --output both.html
well_formed both.html || fail "the page of two runs is not well-formed"
says both.html 'loss of the last step</th><td>2\.5000</td><td>3\.5000</td>'
says both.html '<tr class="differs"><th scope="row">trainer\.optimizer\.lr_hidden</th><td>2\.5</td><td>3\.5</td>'
says both.html 'class="line c0 d0"'
says both.html 'class="line c1 d0"'
says both.html '^second: 3\.5'
expect 0 plm-pipeline report runs/first --output -
cp out stdout.html
grep -v '<footer>' stdout.html >here && grep -v '<footer>' "$page" | diff - here >/dev/null || fail "--output - differs from the file"

# runs of one name are told apart by their folders
cp -r runs/second other && mkdir elsewhere && mv other elsewhere/first
expect 0 plm-pipeline report runs/first elsewhere/first --output both.html
says both.html "<h1>$PLM_TMP/runs/first, $PLM_TMP/elsewhere/first</h1>"
expect 0 plm-pipeline report runs/first runs/second elsewhere/first --output both.html
says both.html "<h1>$PLM_TMP/runs/first, second, $PLM_TMP/elsewhere/first</h1>"

# ---- foreign text is text; a run without metrics has a page -------------------------------------------
name='runs/<script>alert(1)<'
make_run "$name" 2.5
rm "$name"/*.jsonl
rm -r "$name/checkpoints"
expect 0 plm-pipeline report "$name" --output foreign.html
well_formed foreign.html || fail "the page of a run with a hostile name is not well-formed"
says foreign.html '<h1>&lt;script&gt;alert\(1\)&lt;</h1>'
says foreign.html 'no values yet'
grep -q 'class="level"' foreign.html && fail "a level without values"
printf '{"resolved":{"threads":-1e300,"ranks":"two","processor":["x"]}}' >runs/second/checkpoints/step_00000200/trainer.json
expect 0 plm-pipeline report runs/second -q
says runs/second/report.html 'threads</th><td>–</td>'

# ---- what is refused ----------------------------------------------------------------------------------
expect 1 plm-pipeline report runs
says err "$PLM_TMP/runs is not a run folder"
expect 2 plm-pipeline report 1 2 3 4 5 6 7 8 9
says err 'unexpected argument "9"'
expect 2 plm-pipeline report runs/first --run runs/second
says err 'as operands or with --run'
