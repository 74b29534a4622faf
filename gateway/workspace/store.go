package workspace

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/lua"
)

// Redis runs scripts; redisstore.Store is one. All keys of a call are in one
// slot. Errors wrap limiter.ErrUnavailable where Redis cannot be asked.
type Redis interface {
	Eval(ctx context.Context, script lua.Script, keys []string, args ...string) ([]any, error)
}

const (
	headKey     = "hw:{hw-ws}:head"
	documentKey = "hw:{hw-ws}:d:"
	changesKey  = "hw:{hw-ws}:c:"
	// keptChanges is how many changes of a workspace can be asked for.
	keptChanges = 100
	// perCall bounds the documents of one call: 128 of at most about 1 KiB.
	perCall = 128
	// anyHead is no head: documents are read whatever it is.
	anyHead = "-"
)

// store reads and writes documents.
type store struct{ redis Redis }

// errReply is a reply that no script of ours gives.
func errReply(what string) error {
	return fmt.Errorf("workspace: an unexpected reply to %s: %w", what, limiter.ErrUnavailable)
}

// head asks whether anything has changed.
func (s store) head(ctx context.Context) (string, error) {
	head, _, err := s.read(ctx, nil)
	return head, err
}

// read returns the stored texts of documents, empty for one that is not there,
// and the head that they stood under. At most perCall ids.
func (s store) read(ctx context.Context, ids []string) (head string, texts []string, err error) {
	keys := []string{headKey}
	for _, id := range ids {
		keys = append(keys, documentKey+id)
	}
	reply, err := s.redis.Eval(ctx, lua.WorkspaceRead, keys, anyHead)
	if err != nil {
		return "", nil, fmt.Errorf("workspace: read %d documents: %w", len(ids), err)
	}
	if texts = stringsOf(reply); len(texts) != len(keys) {
		return "", nil, errReply("ws_read")
	}
	return texts[0], texts[1:], nil
}

// write replaces a document whose stored text is before, empty for none. It
// returns what is stored then, which with ok false is what somebody else wrote.
func (s store) write(ctx context.Context, before string, after Document, change Change) (stored string, ok bool, err error) {
	keys := []string{headKey, documentKey + after.ID, changesKey + after.ID}
	reply, err := s.redis.Eval(ctx, lua.WorkspaceWrite, keys, before, after.encode(), marshal(change), fmt.Sprint(keptChanges), rand.Text())
	if err != nil {
		return "", false, fmt.Errorf("workspace: write document %q: %w", after.ID, err)
	}
	if len(reply) != 2 {
		return "", false, errReply("ws_write")
	}
	status, isNumber := reply[0].(int64)
	stored, isText := reply[1].(string)
	if !isNumber || !isText {
		return "", false, errReply("ws_write")
	}
	return stored, status == 1, nil
}

// changes lists the last changes of a workspace, the latest first. Lines that
// cannot be read are left out.
func (s store) changes(ctx context.Context, id string) ([]Change, error) {
	reply, err := s.redis.Eval(ctx, lua.WorkspaceChanges, []string{changesKey + id}, fmt.Sprint(keptChanges))
	if err != nil {
		return nil, fmt.Errorf("workspace: read changes of %q: %w", id, err)
	}
	list := []Change{}
	for _, line := range stringsOf(reply) {
		at, text, err := stamped(line)
		c := Change{}
		if err == nil && json.Unmarshal([]byte(text), &c) == nil {
			c.At = at
			list = append(list, c)
		}
	}
	return list, nil
}

// stringsOf takes the texts of a reply; nil and whatever else is empty.
func stringsOf(reply []any) []string {
	out := make([]string, len(reply))
	for i, v := range reply {
		out[i], _ = v.(string)
	}
	return out
}
