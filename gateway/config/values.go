package config

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

var (
	durationType = reflect.TypeFor[time.Duration]()
	sizeType     = reflect.TypeFor[Size]()
	secretType   = reflect.TypeFor[Secret]()
)

// Masked is what a non-empty [Secret] prints as.
const Masked = "********"

// Secret is text that must not reach logs, errors or output. Formatting it
// with any verb yields [Masked], or nothing when it is empty; Reveal is the one
// way to the text.
type Secret string

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return string(s) }

// String implements fmt.Stringer.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return Masked
}

// Format implements fmt.Formatter, so that %q, %x and %#v do not leak either.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.String()) }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText implements encoding.TextMarshaler, for JSON and the like.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Size is a number of bytes, ≥ 0, written with a unit: 64KiB, 10MiB, 1GiB, or
// decimal 500kB, 10MB, 1GB, or 512B.
type Size int64

// sizeUnits are tried in order: longer suffixes before those they end in, so
// that B comes last. The first three are what String writes.
var sizeUnits = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
	{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1},
}

// ParseSize reads a size with its unit.
func ParseSize(text string) (Size, error) {
	for _, u := range sizeUnits {
		number, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		switch {
		case err != nil:
			return 0, fmt.Errorf("%q is not a whole number of %s", number, u.suffix)
		case n < 0 || n > math.MaxInt64/u.bytes:
			return 0, fmt.Errorf("%s is out of range", text)
		}
		return Size(n * u.bytes), nil
	}
	return 0, errors.New("a size needs a unit, such as 64KiB or 10MiB")
}

// String writes the size with the largest binary unit that divides it.
func (s Size) String() string {
	for _, u := range []int{2, 1, 0} {
		if b := sizeUnits[u].bytes; s != 0 && int64(s)%b == 0 {
			return strconv.FormatInt(int64(s)/b, 10) + sizeUnits[u].suffix
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// digestPrefix names the hash in a digest field.
const digestPrefix = "sha256:"

// Digest returns the digest field of a raw key, as printf %s KEY | sha256sum
// would with sha256: in front.
func Digest(raw string) string {
	sum := sha256.Sum256([]byte(raw))
	return digestPrefix + hex.EncodeToString(sum[:])
}

// Sum returns the SHA-256 of the key, whichever way it was configured. A plain
// hash is enough for keys that are random and long; it is what the gateway
// looks keys up by, for each request.
func (k Key) Sum() ([sha256.Size]byte, error) {
	if k.Key != "" {
		return sha256.Sum256([]byte(k.Key)), nil
	}
	var sum [sha256.Size]byte
	digits, ok := strings.CutPrefix(k.Digest, digestPrefix)
	if n, err := hex.Decode(sum[:], []byte(digits[:min(len(digits), 2*len(sum))])); !ok || err != nil || n != len(sum) || len(digits) != 2*n {
		return sum, fmt.Errorf("config: key %q: digest is not sha256: and 64 hex digits", k.ID)
	}
	return sum, nil
}

// TeamID returns the team as an identity, or nothing where the field is one of the
// placeholders that systems write for "no team": an identity shared by
// strangers would make them share limits.
func (k Key) TeamID() string {
	switch strings.ToLower(strings.TrimSpace(k.Team)) {
	case "", "-", "none", "default":
		return ""
	}
	return k.Team
}

// DecodedKeys returns the gossip keys as bytes.
func (f Fleet) DecodedKeys() ([][]byte, error) {
	var out [][]byte
	for i, key := range f.Keys {
		raw, err := base64.StdEncoding.DecodeString(key.Reveal())
		if err != nil {
			return nil, fmt.Errorf("config: fleet.keys[%d] is not base64", i)
		}
		out = append(out, raw)
	}
	return out, nil
}

// Hash is a short digest of what all replicas of a fleet should have in
// common, for spotting one that runs another configuration. Addresses, names
// and the content of secrets are left out.
func (c *Config) Hash() string {
	shared := *c
	shared.Server.Listen, shared.Server.AdminListen, shared.Fleet = "", "", Fleet{}
	shared.Server.TLS, shared.Server.AdminTLS, shared.RateLimitService.TLS = ListenerTLS{}, ListenerTLS{}, ListenerTLS{}
	text, err := shared.Show()
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:4])
}
