package cost

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer/codec"
)

// ready returns an estimator that has loaded the vocabularies of the models.
func ready(t testing.TB, models ...string) *Estimator {
	e := New(true)
	t.Cleanup(e.Close)
	for _, m := range models {
		e.Prepare(m)
	}
	return e
}

// prompt is one piece of text, as JSON has it.
func prompt(text string) (t Text) {
	raw, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	t.Add(raw[1 : len(raw)-1])
	return t
}

// TestGoldenCounts has the examples of OpenAI's cookbook and of tiktoken's tests, and
// texts whose tokens can be told by hand.
func TestGoldenCounts(t *testing.T) {
	e := ready(t, "gpt-4", "gpt-4o")
	for _, c := range []struct {
		text        string
		gpt4, gpt4o int64
	}{
		{"hello world", 2, 2},
		{"tiktoken is great!", 6, 6},
		{"antidisestablishmentarianism", 6, 6},
		{"2 + 2 = 4", 7, 7},
		{"お誕生日おめでとう", 9, 8},
		{"rer", 1, 1},
		{"'rer", 2, 2},
		{"today\n ", 3, 3},
		{"This is a test.\nIt has lines.\n", 9, 9},
		{strings.Repeat("a", 400), 50, 50},
	} {
		for model, want := range map[string]int64{"gpt-4": c.gpt4, "gpt-4o": c.gpt4o} {
			got := e.Estimate(Query{Model: model, Text: prompt(c.text)})
			if got.Input != want || got.How != Counted {
				t.Errorf("%s: %.30q: %+v, want %d", model, c.text, got, want)
			}
		}
	}
}

func TestModels(t *testing.T) {
	for model, want := range map[string]string{
		"gpt-4": "cl100k_base", "gpt-4-turbo-2024-04-09": "cl100k_base", "gpt-3.5-turbo": "cl100k_base", "ft:gpt-3.5-turbo:acme::x": "cl100k_base",
		"text-embedding-3-small": "cl100k_base", "gpt-4o": "o200k_base", "gpt-4o-mini": "o200k_base", "openai/gpt-4o": "o200k_base",
		"ft:gpt-4o-mini-2024-07-18:acme::x": "o200k_base", "gpt-4.1-nano": "o200k_base", "gpt-5": "o200k_base", "gpt-5.1-codex": "o200k_base",
		"o1": "o200k_base", "o3-mini": "o200k_base", "o4-mini": "o200k_base", "gpt-oss-120b": "o200k_base",
		"": "", "claude-opus-4": "", "llama-3": "", "gpt-4chan": "", "o10": "", "GPT-4": "", "ft:": "",
	} {
		got := ""
		if v := vocabularyOf(model); v != nil {
			got = v.name
		}
		if got != want {
			t.Errorf("%q: vocabulary %q, want %q", model, got, want)
		}
	}
}

// prose is text of about the given size, of words that repeat now and then.
func prose(bytes int, seed uint64) string {
	words := strings.Fields("the quick brown fox jumps over a lazy dog while replicas of one limiter share what is left fairly, tokenization notwithstanding; `code()` 42 costs 3.14 and Straße, naïve")
	rng := rand.New(rand.NewPCG(seed, 1))
	var b strings.Builder
	for b.Len() < bytes {
		b.WriteString(words[rng.IntN(len(words))])
		if b.WriteByte(' '); rng.IntN(12) == 0 {
			b.WriteString("\n\n\"So\t\\\" ")
		}
	}
	return b.String()
}

// TestWindowsAddUp compares the sum over windows with one count of the whole.
func TestWindowsAddUp(t *testing.T) {
	c := codec.NewO200kBase()
	e := ready(t, "gpt-4o")
	for seed := range uint64(20) {
		text := prose(1800, seed)[:1800] // and its escapes
		want, err := c.Count(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.exact(Query{Model: "gpt-4o", Text: prompt(text)}); math.Abs(got-float64(want)) > 1 {
			t.Errorf("seed %d: %v in windows, %d at once", seed, got, want)
		}
	}
}

// exact counts like Estimate, however long it takes.
func (e *Estimator) exact(q Query) float64 {
	tokens, seen := 0, 0
	c := e.counter(vocabularyOf(q.Model))
	q.Text.windows(func(part []byte) bool {
		n, err := c.Count(string(part))
		tokens, seen = tokens+n, seen+len(part)
		return err == nil
	})
	return float64(tokens) * float64(q.Text.bytes) / float64(seen)
}

func TestSamplesAreNear(t *testing.T) {
	c := codec.NewO200kBase()
	e := ready(t, "gpt-4o")
	chinese := strings.Repeat("今天的天气非常好，我们一起去公园散步吧。分布式限流器需要公平。", 300)
	for name, text := range map[string]string{"prose": prose(100_000, 1), "chinese": chinese, "base64": strings.Repeat("iVBORw0KGgoAAAANSUhEUgAAAAUA", 1000)} {
		want, err := c.Count(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.exact(Query{Model: "gpt-4o", Text: prompt(text)}) / float64(want); got < 0.88 || got > 1.12 {
			t.Errorf("%s: %.3f of the true count", name, got)
		}
	}
	var many Text // of many pieces
	total := 0
	for i := range 5000 {
		part := prose(20+i%50, uint64(i))
		n, err := c.Count(part)
		if err != nil {
			t.Fatal(err)
		}
		piece := prompt(part)
		many.Add(piece.pieces[0])
		total += n
	}
	if got := e.exact(Query{Model: "gpt-4o", Text: many}) / float64(total); got < 0.88 || got > 1.12 || len(many.pieces) > maxPieces {
		t.Errorf("pieces: %.3f of the true count, of %d pieces", got, len(many.pieces))
	}
}

func TestParts(t *testing.T) {
	e := New(false)
	e.Close()
	four := prompt("1234")
	for _, c := range []struct {
		q             Query
		input, output int64
		how           string
	}{
		{Query{}, 0, 0, None},
		{Query{Fixed: 7, Choices: 9}, 7, 0, None},
		{Query{Text: prompt("12345"), Completion: 10, Choices: 3}, 2, 30, Assumed},
		{Query{Text: four, Completion: Max}, 1, Max - 1, Assumed},
		{Query{Text: four, Completion: 3, Choices: math.MaxInt64, Fixed: math.MaxInt64}, Max, 0, Assumed},
		{Query{Text: four, Completion: -3, Choices: -1, Fixed: -1, Messages: -1}, 1, 0, Assumed},
		{Query{Model: "gpt-4o", Text: four, Messages: 2}, 1, 0, Assumed}, // not loaded
	} {
		if got := e.Estimate(c.q); got.Input != c.input || got.Output != c.output || got.How != c.how {
			t.Errorf("%+v: %+v", c.q, got)
		}
	}
	e = ready(t, "gpt-4o")
	if got := e.Estimate(Query{Model: "gpt-4o", Text: prompt("hello world"), Messages: 2, Fixed: 10}); got.Input != 2+2*3+3+10 {
		t.Errorf("a chat: %+v", got)
	}
	if got := e.Estimate(Query{Model: "gpt-4o", Text: prompt("hello world"), Messages: 2, Bytes: true}); got.Input != 3 || got.How != Assumed {
		t.Errorf("by bytes: %+v", got)
	}
}

// TestLoadsBehindRequests: the first request does not wait for its vocabulary, and
// later ones have it.
func TestLoadsBehindRequests(t *testing.T) {
	e := New(true)
	q := Query{Model: "gpt-4", Text: prompt("tiktoken is great!")}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { e.Estimate(q) })
	}
	all.Wait()
	e.group.Wait()
	if got := e.Estimate(q); got.How != Counted || got.Input != 6 {
		t.Errorf("once loaded: %+v", got)
	}
	e.Close()
	q.Model = "gpt-4o"
	e.Estimate(q)
	e.group.Wait()
	if got := e.Estimate(q); got.How != Assumed {
		t.Errorf("after Close something was loaded: %+v", got)
	}
	if got := e.Estimate(Query{Model: "gpt-4", Text: q.Text}); got.How != Counted {
		t.Errorf("after Close what was loaded is gone: %+v", got)
	}
}

// learned is what the estimator takes a token of the model to have.
func learned(e *Estimator, model string) float64 {
	per, _ := e.ratios.of(model)
	return per
}

func TestCalibrationConverges(t *testing.T) {
	for _, truth := range []float64{1.5, 2.5, 4, 6, 9} {
		e, rng := New(false), rand.New(rand.NewPCG(7, uint64(truth*10)))
		for i := range 200 {
			bytes := 256 + rng.Int64N(20_000)
			e.Learn("m", bytes, int64(float64(bytes)/(truth*math.Exp(0.2*rng.NormFloat64()))))
			if i == 19 || i == 199 {
				if off := math.Abs(math.Log(learned(e, "m") / truth)); off > map[int]float64{19: 0.2, 199: 0.12}[i] {
					t.Errorf("truth %v after %d reports: %.3f", truth, i+1, learned(e, "m"))
				}
			}
		}
		if got := e.Estimate(Query{Model: "m", Text: prompt(strings.Repeat("x", 10_000))}); got.How != Learned || math.Abs(float64(got.Input)*truth/10_000-1) > 0.15 {
			t.Errorf("truth %v: %+v", truth, got)
		}
	}
}

// TestCalibrationIsNotPoisoned reports absurd usage, alone and among good reports.
func TestCalibrationIsNotPoisoned(t *testing.T) {
	e := New(false)
	for _, absurd := range [][2]int64{{1000, 0}, {1000, -5}, {1000, 1}, {1000, math.MaxInt64}, {math.MaxInt64, 1}, {-1, 1}, {0, 0}, {255, 255}, {1000, 20_000}} {
		e.Learn("m", absurd[0], absurd[1])
	}
	e.Learn(strings.Repeat("m", maxModelName+1), 1000, 500)
	e.Learn("", 1000, 500)
	if len(e.ratios.models) != 0 {
		t.Errorf("something was learned: %+v", e.ratios.models)
	}
	for _, absurd := range [][2]int64{{1000, 1900}, {31_000, 1000}} { // the worst that passes
		e, rng := New(false), rand.New(rand.NewPCG(3, 4))
		var worst float64
		for i := range 4000 {
			if rng.IntN(20) == 0 {
				e.Learn("m", absurd[0], absurd[1])
			} else {
				e.Learn("m", 4000, 1000)
			}
			if i > 100 {
				worst = max(worst, math.Abs(math.Log(learned(e, "m")/4)))
			}
		}
		if worst > 0.2 {
			t.Errorf("a twentieth of %v moves it by a factor of %.3f", absurd, math.Exp(worst))
		}
		for range 10_000 {
			e.Learn("m", absurd[0], absurd[1])
		}
		if per := learned(e, "m"); per < minBytesPerToken || per > maxBytesPerToken {
			t.Errorf("nothing but %v: %v bytes per token", absurd, per)
		}
	}
}

func TestModelsAreBounded(t *testing.T) {
	e := New(false)
	for i := range 10 * maxModels {
		e.Learn("kept", 3000, 1000)
		e.Learn(fmt.Sprint("model-", i), 3000, 1000)
	}
	_, kept := e.ratios.of("kept")
	_, last := e.ratios.of(fmt.Sprint("model-", 10*maxModels-1))
	_, first := e.ratios.of("model-0")
	if len(e.ratios.models) != maxModels || !kept || !last || first {
		t.Errorf("%d models; the busy one kept: %v, the last: %v, the first: %v", len(e.ratios.models), kept, last, first)
	}
}

func TestEscapes(t *testing.T) {
	for _, text := range []string{"", "plain", "a\"b\\c/\n\t\r\b\f", "é漢😀", "\u2028<&>", "\x00\x1f", strings.Repeat("\\\"", 40), strings.Repeat("😀漢", 40)} {
		for _, ascii := range []bool{false, true} {
			raw, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			if ascii {
				raw = escapeAll(text)
			}
			piece := raw[1 : len(raw)-1]
			if got := string(unescape(nil, piece)); got != text || plainLength(piece) != int64(len(text)) {
				t.Errorf("%q: %q of %d bytes, want %d", piece, got, plainLength(piece), len(text))
			}
			for n := range len(piece) {
				n = cut(piece, n)
				parts := string(unescape(unescape(nil, piece[:n]), piece[n:]))
				if strings.ReplaceAll(parts, "\ufffd\ufffd", "😀") != text {
					t.Fatalf("%q cut at %d: %q", piece, n, parts)
				}
			}
		}
	}
}

// escapeAll writes a string as programs do that write ASCII only.
func escapeAll(text string) []byte {
	out := []byte{'"'}
	for _, r := range text {
		if r > 0xffff {
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		} else {
			out = fmt.Appendf(out, `\u%04X`, r)
		}
	}
	return append(out, '"')
}

func TestMedia(t *testing.T) {
	if Recording(0) != 100 || Recording(640<<10) != 640 || File(10) != Picture || File(70<<10) != 2240 {
		t.Errorf("recordings %d, %d, files %d, %d", Recording(0), Recording(640<<10), File(10), File(70<<10))
	}
}

// hard are texts that are slow to count.
var hard = map[string]string{
	"letters": strings.Repeat("a", 10_000), "mixed": strings.Repeat("x1", 5000), "spaces": strings.Repeat(" ", 10_000),
	"lines": strings.Repeat("\n", 10_000), "quotes": strings.Repeat("'", 10_000), "broken": strings.Repeat("\xff", 10_000),
	"han": strings.Repeat("漢字かな交じり文", 420), "marks": strings.Repeat("\u0301", 5000), "prose": prose(10_000, 1),
}

// FuzzEstimate: whatever the text, an estimate is no negative number, no more than a
// token a byte, and soon there.
func FuzzEstimate(f *testing.F) {
	for _, text := range hard {
		f.Add([]byte(text), "gpt-4o", int64(100), int64(1), int64(1))
	}
	f.Add([]byte(`\ud83d\ude00\u00`), "m", int64(-1), int64(math.MaxInt64), int64(math.MinInt64))
	e := ready(f, "gpt-4", "gpt-4o")
	f.Fuzz(func(t *testing.T, piece []byte, model string, completion, choices, fixed int64) {
		q := Query{Model: model, Fixed: fixed, Completion: completion, Choices: choices, Messages: fixed}
		for i := range 3 {
			q.Text.Add(piece[len(piece)*i/3:])
		}
		begin := time.Now()
		got := e.Estimate(q)
		if took := time.Since(begin); took > time.Second {
			t.Errorf("%d bytes took %v", len(piece), took)
		}
		if got.Input < 0 || got.Output < 0 || got.Total() > Max {
			t.Errorf("%+v", got)
		}
		if text := got.Input - max(min(fixed, Max), 0); fixed <= 0 && text > q.Text.Bytes() && utf8.Valid(piece) && !strings.Contains(string(piece), `\`) {
			t.Errorf("%d tokens of %d bytes", text, q.Text.Bytes())
		}
	})
}

// processorTime is what this process has used: other work on the machine does not count.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkEstimate estimates prompts of 10 kB and more.
func BenchmarkEstimate(b *testing.B) {
	e := ready(b, "gpt-4", "gpt-4o")
	run := func(name, model string, text Text) {
		b.Run(name, func(b *testing.B) {
			begin := processorTime(b)
			for b.Loop() {
				e.Estimate(Query{Model: model, Text: text, Completion: 100, Messages: 1})
			}
			b.ReportMetric(float64((processorTime(b)-begin).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
	for _, size := range []int{1_000, 10_000, 1_000_000} {
		run(fmt.Sprintf("prose/%d", size), "gpt-4o", prompt(prose(size, 1)[:size]))
	}
	run("prose/10000/gpt-4", "gpt-4", prompt(prose(10_000, 1)[:10_000]))
	for name, text := range hard {
		if name != "prose" {
			run("worst/"+name, "gpt-4o", prompt(text))
		}
	}
	run("bytes/10000", "unknown", prompt(prose(10_000, 1)[:10_000]))
}
