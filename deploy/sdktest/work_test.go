package sdktest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// recorded is a process that the fleet's script has started: its number and when it
// began.
func recorded(t *testing.T, name string) (pid int, since string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(os.Getenv("FLEET_DIR"), name+".pid"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(text), &pid, &since); err != nil {
		t.Fatalf("%s.pid: %v", name, err)
	}
	return pid, since
}

// born is when a process began, as the script records it.
func born(t *testing.T, pid int) string {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+2:]))[19]
}

// killed ends a replica with SIGKILL and returns what starts it again, in the care of
// the script.
func killed(t *testing.T, name string) (again func()) {
	pid, since := recorded(t, name)
	if got := born(t, pid); got != since {
		t.Fatalf("%s has ended, and its number belongs to another process", name)
	}
	list := func(file string) []string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
	}
	command, environ := list("cmdline"), list("environ")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	return func() {
		dir := os.Getenv("FLEET_DIR")
		log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close() // the process has its own handle
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Env, cmd.Stdout, cmd.Stderr = environ, log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%d %s\n", cmd.Process.Pid, born(t, cmd.Process.Pid))
		if err := os.WriteFile(filepath.Join(dir, name+".pid"), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBatchSurvivesAKilledReplica: a thousand jobs, uploaded, run and downloaded by the
// SDK, while a replica is killed and comes back. There are a thousand results, none
// twice and none missing.
func TestBatchSurvivesAKilledReplica(t *testing.T) {
	const jobs, patience = 1000, 2 * time.Minute
	c, _, ctx := client(t, "sk-local-importer", option.WithMaxRetries(5))
	var file bytes.Buffer
	for i := range jobs {
		fmt.Fprintf(&file, `{"custom_id":"job-%d","method":"POST","url":"/v1/chat/completions","body":{"model":"sim-batch","max_tokens":8,"messages":[{"role":"user","content":"Hello"}]}}`+"\n", i)
	}
	input, err := c.Files.New(ctx, openai.FileNewParams{File: &file, Purpose: openai.FilePurposeBatch})
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Batches.New(ctx, openai.BatchNewParams{
		InputFileID: input.ID, Endpoint: openai.BatchNewParamsEndpointV1ChatCompletions,
		CompletionWindow: openai.BatchNewParamsCompletionWindow24h,
	})
	if err != nil {
		t.Fatal(err)
	}
	var again func()
	back := false
	begin := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for b.Status != openai.BatchStatusCompleted {
		<-tick.C
		if b, err = c.Batches.Get(t.Context(), b.ID); err != nil {
			t.Fatal(err)
		}
		switch done := b.RequestCounts.Completed + b.RequestCounts.Failed; {
		case again == nil && done >= jobs/4:
			again = killed(t, "replica-2")
		case again != nil && !back && done >= jobs/2:
			back = true
			again()
		}
		if time.Since(begin) > patience {
			t.Fatalf("not completed within %v: %s", patience, b.RawJSON())
		}
	}
	if !back {
		t.Error("it was over before the replica came back: let it have more jobs")
	}
	res, err := c.Files.Content(t.Context(), b.OutputFileID)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		var out struct {
			CustomID string `json:"custom_id"`
			Response struct {
				StatusCode int `json:"status_code"`
				Body       openai.ChatCompletion
			}
		}
		if err := json.Unmarshal([]byte(line), &out); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if seen[out.CustomID] || out.Response.StatusCode != 200 || len(out.Response.Body.Choices) != 1 {
			t.Errorf("a result twice, or none: %s", line)
		}
		seen[out.CustomID] = true
	}
	for i := range jobs {
		if !seen[fmt.Sprintf("job-%d", i)] {
			t.Errorf("job-%d has no result", i)
		}
	}
	t.Logf("%d jobs, %d results in %v", jobs, len(seen), time.Since(begin).Round(time.Millisecond))
	if deleted, err := c.Files.Delete(t.Context(), input.ID); err != nil || !deleted.Deleted {
		t.Errorf("delete: %v, %v", deleted, err)
	}
}
