package gossip

import (
	"bytes"
	"context"
	"log/slog"
)

// logWriter turns memberlist's lines ("2026/01/01 00:00:00 [WARN] memberlist:
// text") into records of a structured log.
type logWriter struct{ log *slog.Logger }

// levels maps memberlist's tags. Its errors are of peers and packets, nothing
// that this process must be woken up for: they are warnings.
var levels = map[string]slog.Level{
	"DEBUG": slog.LevelDebug, "INFO": slog.LevelInfo, "WARN": slog.LevelWarn,
	"ERR": slog.LevelWarn, "ERROR": slog.LevelWarn,
}

// Write implements io.Writer for one line.
func (w logWriter) Write(line []byte) (int, error) {
	level, text := slog.LevelInfo, line
	if _, rest, ok := bytes.Cut(line, []byte("[")); ok {
		if tag, after, ok := bytes.Cut(rest, []byte("] ")); ok {
			if l, known := levels[string(tag)]; known {
				level, text = l, after
			}
		}
	}
	text = bytes.TrimPrefix(bytes.TrimSpace(text), []byte("memberlist: "))
	w.log.Log(context.Background(), level, "gossip: memberlist: "+string(text))
	return len(line), nil
}
