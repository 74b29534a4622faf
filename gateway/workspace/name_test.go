package workspace

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/headway-limiter/headway/gateway/config"
)

// TestNamesCanBeShown: names that show nothing, or change how others are shown, or
// cannot be read, are mistakes in the field.
func TestNamesCanBeShown(t *testing.T) {
	for name, value := range map[string]string{
		"empty": `""`, "only spaces": `"  "`, "only other spaces": `"\u00a0\u2003"`, "only joiners": `"\u200d\u200c"`,
		"half a surrogate pair": `"a\ud800b"`, "invalid UTF-8": "\"a\xffb\"", "a character in place of one": `"a\ufffd"`,
		"a control character": `"a\u0007"`, "a line": `"a\nb"`, "text that runs backwards": `"a\u202eb"`, "isolated text": `"\u2066a\u2069"`,
		"a line separator": `"a\u2028b"`, "a byte order mark": `"\ufeffa"`, "a zero width space": `"a\u200bb"`,
		"too long": `"` + strings.Repeat("x", config.MaxWorkspaceName+1) + `"`, "a number": `1`,
	} {
		_, err := ParsePatch([]byte(`{"name":` + value + `}`))
		var m *Mistake
		if !errors.As(err, &m) || m.Code != "invalid_field" || m.Field != FieldName {
			t.Errorf("%s: %v, want invalid_field", name, err)
		}
	}
	for _, name := range []string{"a", " a b ", "Büro 7", "研究", "می\u200cخواهم", "👩\u200d💻", strings.Repeat("ü", config.MaxWorkspaceName)} {
		text, err := json.Marshal(map[string]string{"name": name})
		if err != nil {
			t.Fatal(err)
		}
		p, err := ParsePatch(text)
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if d, _ := p.apply(Document{ID: "w"}); d.Name != name {
			t.Errorf("%q became %q", name, d.Name)
		}
	}
}
