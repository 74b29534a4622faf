package workspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

// oracle applies a merge patch the other way: by maps, as RFC 7396 has it.
func oracle(d Document, patch map[string]any) Document {
	flag := func(name string, missing bool) bool {
		b, ok := patch[name].(bool)
		return ok && b || !ok && missing
	}
	for name, value := range patch {
		switch name {
		case FieldName:
			if d.Name = d.ID; value != nil {
				d.Name = value.(string)
			}
		case FieldQueueing:
			if d.Queueing = nil; value != nil {
				d.Queueing = pointer(value.(bool))
			}
		case FieldRetention:
			d.Retention = flag(name, false)
		case FieldPublished:
			d.Published = flag(name, false)
		}
	}
	return d
}

// settings are what can be changed, as text, to compare by.
func settings(d Document) string {
	return fmt.Sprintf("%q %v %v %v", d.Name, optional(d.Queueing), d.Retention, d.Published)
}

// FuzzPatch looks for patches that are taken and mean something else than JSON
// says, and for errors without a code.
func FuzzPatch(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"name": "x", "inference_queueing_enabled": null}`, `{"published": true, "zero_data_retention": false}`, `{"a": {"b": [1]}}`,
		`{"name": "\u0000"}`, `{"name": "\ud800"}`, `{"name":null}`, `{"published":1}`, `{"published":true,"published":true}`, `[]`, `{"id":""} x`,
		`{"inference_queueing_enabled":false,"` + "\xff" + `":1}`,
	} {
		f.Add([]byte(text))
	}
	before := Document{ID: "w", Name: "before", Queueing: pointer(false), Retention: true, Version: 4}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ParsePatch(text)
		if err != nil {
			var m *Mistake
			if !errors.As(err, &m) || m.Code == "" || !utf8.ValidString(m.What) {
				t.Fatalf("%q: %#v", text, err)
			}
			return
		}
		var plain map[string]any
		if err := json.Unmarshal(text, &plain); err != nil || plain == nil {
			t.Fatalf("%q is taken, and is no object: %v", text, err)
		}
		got, fields := p.apply(before)
		want := oracle(before, plain)
		if settings(got) != settings(want) || (len(fields) > 0) != (settings(before) != settings(want)) {
			t.Fatalf("%q: %s and %v, want %s", text, settings(got), fields, settings(want))
		}
		back, err := decode("w", "12 "+got.encode())
		if err != nil || settings(back) != settings(got) || back.Version != got.Version {
			t.Fatalf("%q: stored and read: %s, %v", text, settings(back), err)
		}
	})
}

// A tape of random changes on two replicas, against a model: what is there, what
// is refused, and what is told of it.
func TestTape(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	synctest.Test(t, func(t *testing.T) {
		defer func() {
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		}()
		sets, _, b := bubbled(t, 2)
		model, err := sets[0].Get(t.Context(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		tags, told, lost := []string{model.ETag()}, 1, 0
		for step := range 200 {
			patch := randomPatch(rng)
			text, _ := json.Marshal(patch)
			tag := tags[rng.IntN(len(tags))]
			match := []func(Document) bool{nil, unchanged(tag), unchanged(tags[len(tags)-1])}[rng.IntN(3)]
			want := oracle(model, patch)
			d, fields, err := sets[rng.IntN(2)].Patch(t.Context(), "acme", parse(t, string(text)), fmt.Sprint("key:", step), match)
			stale := match != nil && !match(model)
			changes := !stale && settings(want) != settings(model)
			switch {
			case stale && !errors.Is(err, ErrStale), !stale && err != nil:
				t.Fatalf("step %d: %s: %v, stale %v", step, text, err, stale)
			case !stale && (settings(d) != settings(want) || (len(fields) > 0) != changes):
				t.Fatalf("step %d: %s gives %s and %v, want %s", step, text, settings(d), fields, settings(want))
			case changes && (d.Version != model.Version+1 || d.By != fmt.Sprint("key:", step) || slices.Contains(tags, d.ETag())):
				t.Fatalf("step %d: %+v after %+v", step, d, model)
			}
			if changes {
				model, tags, told = d, append(tags, d.ETag()), told+1
			}
			time.Sleep(time.Duration(rng.Int64N(int64(interval / 2))))
			if rng.IntN(50) == 0 { // the fleet puts it back, as one more version
				time.Sleep(time.Second)
				b.Redis.FlushAll()
				time.Sleep(time.Second)
				told, lost = 1, lost+1
				d, err := sets[rng.IntN(2)].Get(t.Context(), "acme")
				if err != nil || settings(d) != settings(model) || d.Version != model.Version+1 {
					t.Fatalf("step %d: lost, and back as %+v, %v", step, d, err)
				}
				model, tags = d, append(tags, d.ETag())
			}
		}
		time.Sleep(time.Second)
		for i, s := range sets {
			d, err := s.Get(t.Context(), "acme")
			known, _ := s.Known("acme")
			if err != nil || settings(d) != settings(model) || known.ETag() != model.ETag() || s.Queues("acme") != model.Queues() || keeps(s, "acme") == model.Retention {
				t.Errorf("replica %d: %s, known %s, want %s, %v", i, settings(d), settings(known), settings(model), err)
			}
		}
		list, err := sets[0].Changes(t.Context(), "acme")
		if err != nil || len(list) != min(told, keptChanges) || list[0].Version != model.Version {
			t.Errorf("%d changes, want %d, %v", len(list), told, err)
		}
		t.Logf("%d versions, everything lost %d times", model.Version, lost)
	})
}

// randomPatch is one to four fields.
func randomPatch(rng *rand.Rand) map[string]any {
	p := map[string]any{}
	for range 1 + rng.IntN(4) {
		flag := []any{true, false, nil}[rng.IntN(3)]
		switch rng.IntN(4) {
		case 0:
			p[FieldName] = []any{nil, "Acme", "ö <&> \"", fmt.Sprint(rng.IntN(5))}[rng.IntN(4)]
		case 1:
			p[FieldQueueing] = flag
		case 2:
			p[FieldRetention] = flag
		case 3:
			p[FieldPublished] = flag
		}
	}
	return p
}
