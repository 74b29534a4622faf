package batch

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"time"

	"github.com/headway-limiter/headway/gateway"
)

const (
	// maxLine bounds one line of a file, so one request, in bytes: lines travel to
	// and from Redis whole, and delay what comes behind them.
	maxLine = 1 << 20
	// A call adds at most so many bytes (or one line) and lines to a file.
	maxPutBytes = 64 << 10
	maxPutLines = 500
	// maxField bounds the other fields of a form, in bytes.
	maxField = 1 << 10
	// arriving is how long a file lives that is still on its way, after each part.
	arriving = 10 * time.Minute
)

// upload is a file on its way into the store.
type upload struct {
	tenant, id, name string
	life             time.Duration // from the next part on
	most             int           // files of its tenant
}

// createFile takes a file in, line by line. Fields may come before or behind it.
func (s *Service) createFile(w http.ResponseWriter, r *http.Request, owner gateway.Owner) {
	form, err := r.MultipartReader()
	if err != nil {
		s.refuse(w, r, &trouble{http.StatusBadRequest, "invalid_form", "Send the file as multipart/form-data, with the fields purpose and file."})
		return
	}
	c := s.opts.Config()
	f := upload{tenant: string(owner.Tenant), id: "file-" + newID(), life: arriving, most: c.MaxFilesPerTenant}
	t := &taker{service: s, upload: f, most: int64(c.MaxFile)}
	purpose, err := t.form(r.Context(), form)
	switch {
	case err != nil:
	case !t.seen:
		err = &trouble{http.StatusBadRequest, "missing_file", "The form has no field file."}
	case purpose != "batch":
		err = &trouble{http.StatusBadRequest, "invalid_purpose", "The only purpose that files are kept for here is batch."}
	default:
		t.upload.life = c.Retention
		err = t.flush(r.Context(), true)
	}
	if err != nil {
		t.discard()
		s.refuse(w, r, err)
		return
	}
	answer(w, newFileObject(f.id, record{
		"bytes": number(t.bytes), "created": number(time.Now().Unix()), "name": t.upload.name, "purpose": "batch", "state": "processed",
	}))
}

// taker collects lines and puts them into the store.
type taker struct {
	service *Service
	upload  upload
	most    int64 // bytes of the file
	seen    bool  // there was a file
	begun   bool  // some of it is in the store
	lines   []string
	held    int   // bytes in lines
	first   int64 // number of lines[0]
	bytes   int64 // of all lines so far, each with its end
}

// form reads the parts of a form and returns its purpose.
func (t *taker) form(ctx context.Context, form *multipart.Reader) (purpose string, err error) {
	for {
		part, err := form.NextPart()
		switch {
		case errors.Is(err, io.EOF):
			return purpose, nil
		case err != nil:
			return "", unreadable(err)
		case part.FormName() == "file" && t.seen:
			return "", &trouble{http.StatusBadRequest, "invalid_form", "The form has more than one file."}
		case part.FormName() == "file":
			t.seen, t.upload.name = true, shorten(part.FileName())
			if err := t.file(ctx, part); err != nil {
				return "", err
			}
		default:
			text, err := io.ReadAll(io.LimitReader(part, maxField+1))
			if err != nil {
				return "", unreadable(err)
			}
			if len(text) > maxField {
				return "", &trouble{http.StatusBadRequest, "invalid_form", fmt.Sprintf("A field of the form is longer than %d bytes.", maxField)}
			}
			if part.FormName() == "purpose" {
				purpose = string(text)
			}
		}
	}
}

// byteOrderMark is what some editors put in front of a file. It is no part of the
// first line.
const byteOrderMark = "\ufeff"

// file reads the lines of a file. Empty ones are left out.
func (t *taker) file(ctx context.Context, from io.Reader) error {
	in := bufio.NewReaderSize(from, 64<<10)
	if head, _ := in.Peek(len(byteOrderMark)); string(head) == byteOrderMark { // an error is met again below
		_, _ = in.Discard(len(head))
	}
	for {
		line, err := readLine(in)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(line) > 0 {
			if t.bytes += int64(len(line)) + 1; t.bytes > t.most {
				return &trouble{http.StatusRequestEntityTooLarge, "file_too_large",
					fmt.Sprintf("The file is larger than %d bytes, the largest that is kept here.", t.most)}
			}
			t.lines, t.held = append(t.lines, string(line)), t.held+len(line)
		}
		if t.held >= maxPutBytes || len(t.lines) >= maxPutLines {
			if err := t.flush(ctx, false); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
	}
}

// readLine returns the next line without its end, and io.EOF with the last one.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			return nil, &trouble{http.StatusBadRequest, "line_too_long",
				fmt.Sprintf("A line of the file is longer than %d bytes, the longest that is kept here.", maxLine)}
		}
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err == nil || errors.Is(err, io.EOF):
			for len(line) > 0 && (line[len(line)-1] == '\n' || line[len(line)-1] == '\r') {
				line = line[:len(line)-1]
			}
			return line, err
		default:
			return nil, unreadable(err)
		}
	}
}

// flush puts what was collected into the store; last ends the file.
func (t *taker) flush(ctx context.Context, last bool) error {
	size := int64(-1)
	if last {
		size = t.bytes
	}
	said, err := t.service.store.put(ctx, t.upload, t.first, t.lines, size)
	if err != nil { // once more: running twice is running once
		said, err = t.service.store.put(ctx, t.upload, t.first, t.lines, size)
	}
	if err != nil {
		return err
	}
	switch said {
	case "ok":
	case "full":
		t.service.metrics.refused.WithLabelValues("files").Inc()
		return &trouble{http.StatusTooManyRequests, "too_many_files",
			fmt.Sprintf("There are %d files already, results included, as many as one tenant may keep. Delete some.", t.upload.most)}
	default:
		return fmt.Errorf("batch: file %s: the store says %q", t.upload.id, said)
	}
	t.begun, t.first = true, t.first+int64(len(t.lines))
	t.lines, t.held = t.lines[:0], 0
	return nil
}

// discard deletes what is in the store of a file that was not wanted in the end.
// What cannot be deleted now does not live for long.
func (t *taker) discard() {
	if t.begun {
		ctx, cancel := context.WithTimeout(t.service.ctx, time.Second)
		defer cancel()
		_, _ = t.service.store.drop(ctx, t.upload.tenant, t.upload.id)
	}
}

// unreadable is a body that did not arrive.
func unreadable(error) error {
	return &trouble{http.StatusBadRequest, "invalid_body", "The request body could not be read."}
}

// shorten bounds a name that is kept.
func shorten(name string) string { return name[:min(len(name), 256)] }

// newID is 120 random bits in hex.
func newID() string {
	var b [15]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
