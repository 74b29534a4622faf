package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/gateway/cost"
)

// byBytes estimates what a costs with default settings and no vocabulary.
func byBytes(a ask, path string) cost.Estimate {
	return cost.New(false).Estimate(a.query(path, config.Default()))
}

func TestCost(t *testing.T) {
	text := strings.Repeat("x", 400) // 100 tokens
	for _, test := range []struct {
		name, path, body string
		want             int64
	}{
		{"completion", "/v1/completions", `{"model":"m","prompt":"` + text + `","max_tokens":50}`, 150},
		{"rounded up", "/v1/completions", `{"model":"m","prompt":"12345","max_tokens":0}`, 2},
		{"default completion", "/v1/completions", `{"model":"m","prompt":"` + text + `"}`, 612},
		{"null bound", "/v1/completions", `{"model":"m","prompt":"` + text + `","max_tokens":null}`, 612},
		{"negative bound", "/v1/completions", `{"model":"m","prompt":"` + text + `","max_tokens":-1}`, 612},
		{"chat", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"` + text[:396] + `"}],"max_completion_tokens":7}`, 107},
		{"parts", "/v1/chat/completions", `{"model":"m","messages":[{"role":"u","content":[{"type":"t","text":"` + text[:399] + `"}]}],"max_tokens":1}`, 101},
		{"picture", "/v1/chat/completions", `{"model":"m","messages":[{"content":[{"image_url":{"url":"data:image/png;base64,` + text + `"}}]}],"max_tokens":1}`, 1001},
		{"recording", "/v1/chat/completions", `{"model":"m","messages":[{"content":[{"type":"input_audio","input_audio":{"format":"wav","data":"` + strings.Repeat(text, 1024) + `"}}]}],"max_tokens":1}`, 402},
		{"spoken", "/v1/responses", `{"model":"m","input":[{"audio":"data:audio/mp3;base64,` + text + `"}],"max_output_tokens":1}`, 101},
		{"linked picture", "/v1/responses", `{"model":"m","input":[{"content":[{"type":"input_image","image_url":"https://example.com/` + text + `"}]}],"max_output_tokens":1}`, 1001},
		{"small pictures", "/v1/chat/completions", `{"model":"m","messages":[{"content":[{"image_url":{"url":"https://e.com/1","detail":"low"}},{"image_url":{"detail":"low","url":"https://e.com/2"}}]}],"max_tokens":1}`, 171},
		{"small without a picture", "/v1/chat/completions", `{"model":"m","messages":[{"detail":"low","content":"1234"}],"max_tokens":1}`, 2},
		{"Anthropic's picture", "/v1/messages", `{"model":"m","messages":[{"content":[{"type":"image","source":{"type":"base64","media_type":"","data":"` + text + `"}}]}],"max_tokens":1}`, 1001},
		{"file", "/v1/responses", `{"model":"m","input":[{"content":[{"type":"input_file","file_data":"` + strings.Repeat(text, 160) + `"}]}],"max_output_tokens":1}`, 2001},
		{"text that looks like data", "/v1/completions", `{"model":"m","prompt":"data: ` + text[:394] + `","max_tokens":1}`, 101},
		{"escapes", "/v1/completions", `{"model":"m","prompt":"\u0041\n\"\u00e9\ud83d\ude00","max_tokens":1}`, 4},
		{"responses", "/v1/responses", `{"model":"m","instructions":"` + text + `","input":"` + text + `","max_output_tokens":9}`, 209},
		{"tools", "/v1/chat/completions", `{"model":"m","tools":[{"name":"` + text[:387] + `"}],"max_tokens":1}`, 101},
		{"token ids", "/v1/completions", `{"model":"m","prompt":[1,22,-3,4e5],"max_tokens":1}`, 5},
		{"prompt once whatever n", "/v1/completions", `{"model":"m","prompt":"` + text + `","max_tokens":50,"n":3}`, 250},
		{"best_of", "/v1/completions", `{"model":"m","prompt":"` + text + `","max_tokens":50,"n":2,"best_of":4}`, 300},
		{"largest bound", "/v1/completions", `{"model":"m","max_tokens":5,"max_completion_tokens":50}`, 50},
		{"embeddings", "/v1/embeddings", `{"model":"m","input":["` + text + `","` + text + `"]}`, 200},
		{"moderations", "/v1/moderations", `{"model":"m","input":"` + text + `"}`, 100},
		{"no model", "/v1/batches", `{"input_file_id":"x"}`, 0},
		{"absurd", "/v1/completions", `{"model":"m","max_tokens":1e300,"n":1e300}`, maxEstimate},
		{"absurd n", "/v1/completions", `{"model":"m","max_tokens":3,"n":1e300}`, maxEstimate},
		{"last prompt holds", "/v1/completions", `{"model":"m","prompt":"` + text + `","prompt":"1234","max_tokens":1}`, 2},
		{"nested members are not the request's", "/v1/completions", `{"model":"m","metadata":{"prompt":"` + text + `","max_tokens":99},"max_tokens":1}`, 1},
	} {
		a, ok := readAsk([]byte(test.body))
		if got := byBytes(a, test.path).Total(); !ok || got != test.want {
			t.Errorf("%s: %d, %v; want %d", test.name, got, ok, test.want)
		}
	}
}

func TestReadAskRefuses(t *testing.T) {
	for _, body := range []string{"", " ", "null", "[]", `"x"`, "{", `{"a":1}x`, `{"a":1}{"b":2}`, `{"a":}`, "\x00"} {
		if _, ok := readAsk([]byte(body)); ok {
			t.Errorf("%q is taken for an object", body)
		}
	}
	for body, bad := range map[string]bool{`{"model":1}`: true, `{"model":{}}`: true, `{"model":null}`: false, `{"model":"x"}`: false, `{"model":1,"model":"x"}`: false} {
		if a, ok := readAsk([]byte(body)); !ok || a.badModel != bad {
			t.Errorf("%s: badModel %v, %v", body, a.badModel, ok)
		}
	}
}

func TestOpaque(t *testing.T) {
	for kind, want := range map[string]bool{
		"": false, "application/json": false, "application/json; charset=utf-8": false, "text/plain": false,
		"application/x-www-form-urlencoded": false, "multipart/form-data; boundary=x": true, "audio/wav": true,
		"image/png": true, "video/mp4": true, "application/octet-stream": true, "Multipart/Form-Data; boundary=x": true,
		"nonsense;;": false,
	} {
		if got := opaque(http.Header{"Content-Type": {kind}}); got != want {
			t.Errorf("%q: opaque %v, want %v", kind, got, want)
		}
	}
}

// FuzzMembers compares the walk over an object with encoding/json.
func FuzzMembers(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":1}`, ` { "a" : [ 1 , {"b":"}"} ] , "c" : "\\\"" } `, `{"\u0061":1,"a":{"x":[[]]}}`, `{"a":-1.5e+3,"":true,"b":null}`,
		`{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		readAsk(data) // must not panic, whatever it is
		var want map[string]json.RawMessage
		if json.Unmarshal(data, &want) != nil || want == nil {
			return
		}
		got := map[string]json.RawMessage{}
		eachMember(data, func(name string, value []byte) {
			// A name is text, which encoding/json repairs where it is not UTF-8.
			got[strings.ToValidUTF8(name, "\ufffd")] = json.RawMessage(value)
			(&walk{q: &cost.Query{}}).value(value)
		})
		for name, value := range want {
			if g := got[name]; !reflect.DeepEqual(g, value) && strings.ToValidUTF8(name, "") == name && !strings.Contains(name, "\ufffd") {
				t.Fatalf("member %q of %q: %q, want %q", name, data, g, value)
			}
		}
	})
}

const usageAnswer = `{"id":"x","usages":{"total_tokens":1},"choices":[{"usage":{"total_tokens":2},"text":"\"usage\":{\"total_tokens\":3}"}],` +
	`"message":"text","response":[{"usage":{"total_tokens":4}}],"usage":{"prompt_tokens":10,"completion_tokens":20,"total_tokens":31,"details":{"total_tokens":999}}}`

// TestUsageInPieces cuts an answer at every place.
func TestUsageInPieces(t *testing.T) {
	for cut := range len(usageAnswer) {
		var s usageScanner
		s.scan([]byte(usageAnswer[:cut]))
		s.scan([]byte(usageAnswer[cut:]))
		if got, ok := s.usage.total(); got != 31 || !ok {
			t.Fatalf("cut at %d: %d, %v", cut, got, ok)
		}
	}
	for body, want := range map[string]int64{
		`{"message":{"usage":{"input_tokens":7,"output_tokens":1}}}`:               8,
		`{"response":{"x":{"usage":{"total_tokens":5}}}}`:                          -1,
		`{"other":{"usage":{"total_tokens":5}}}`:                                   -1,
		`{"usage":[{"total_tokens":5}]}`:                                           -1,
		`{"usage":{"total_tokens":"5"}}`:                                           -1,
		`{"usage":{"total_tokens":5`:                                               -1,
		`{"usage":{"total_tokens":99999999999999}}`:                                -1,
		`[{"usage":{"total_tokens":5}}]`:                                           -1,
		`}}}{"usage":{"total_tokens":5}}`:                                          -1,
		`{"usage":{"x":"` + strings.Repeat("y", maxUsage) + `","total_tokens":5}}`: -1,
	} {
		var s usageScanner
		s.scan([]byte(body))
		got, ok := s.usage.total()
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%.60s: %d, want %d", body, got, want)
		}
	}
}

func TestFrames(t *testing.T) {
	big := `"text":"` + strings.Repeat("{[", 50_000) + `"`
	stream := ": comment\n\nevent: x\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"usage\"}}]}\r\n\r\n" +
		"usage: {\"total_tokens\":77}\n\n" + // not a data line
		"data: not json {\n\n" +
		"data:{" + big + ",\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1}}\n\n" +
		"data: {\"choices\":[],\r\ndata: \"usage\":{\"prompt_tokens\":5,\"completion_tokens\":40}}\r\n\r\n" +
		"data: {\"usage\":{\"completion_tokens\":2}}\n\n" + // counts never fall
		"data: [DONE]\r\r"
	for _, piece := range []int{1, 2, 3, 7, 1000, len(stream)} {
		var f frameScanner
		for at := 0; at < len(stream); at += piece {
			f.scan([]byte(stream[at:min(at+piece, len(stream))]))
		}
		if got, ok := f.usage.total(); got != 45 || !ok {
			t.Errorf("in pieces of %d: %d, %v", piece, got, ok)
		}
	}
}

// FuzzUsage compares the scanner with encoding/json, in two pieces.
func FuzzUsage(f *testing.F) {
	f.Add([]byte(usageAnswer), 17)
	f.Add([]byte(`{"response":{"usage":{"total_tokens":3}},"usage":{"input_tokens":9}}`), 3)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		cut = min(max(cut, 0), len(data))
		var s, frames = usageScanner{}, frameScanner{}
		s.scan(data[:cut])
		s.scan(data[cut:])
		frames.scan(data)
		var plain struct {
			Usage struct {
				Total int64 `json:"total_tokens"`
			} `json:"usage"`
		}
		var names map[string]json.RawMessage
		if len(data) > maxUsage || json.Unmarshal(data, &plain) != nil || json.Unmarshal(data, &names) != nil {
			return
		}
		raw := string(data)
		if strings.Contains(raw, `\`) || strings.Count(raw, "usage") > 1 || strings.Count(raw, "total_tokens") > 1 ||
			names["usage"] == nil || !strings.Contains(raw, `"total_tokens"`) {
			return // names in other spellings, or more than one report
		}
		want := plain.Usage.Total
		if got, _ := s.usage.total(); want > 0 && want <= maxEstimate && got < want {
			t.Fatalf("%q cut at %d: %d, want %d", data, cut, got, want)
		}
	})
}

func BenchmarkReadAsk(b *testing.B) {
	for _, size := range []int{1 << 10, 100 << 10, 10 << 20} {
		body := []byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("word ", size/5) + `"}]}`)
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				readAsk(body)
			}
		})
	}
}

func BenchmarkUsage(b *testing.B) {
	frame := "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"}}]}\n\n"
	piece := []byte(strings.Repeat(frame, 100))
	b.SetBytes(int64(len(piece)))
	b.ReportAllocs()
	var f frameScanner
	for b.Loop() {
		f.scan(piece)
	}
}
