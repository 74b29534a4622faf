package bench

import (
	"encoding/json"
	"fmt"
	"io"
)

// PacedTable are runs to be shown together.
type PacedTable []Paced

// WriteJSON writes one line per run.
func (t PacedTable) WriteJSON(w io.Writer) error {
	for _, r := range t {
		if err := json.NewEncoder(w).Encode(r); err != nil {
			return fmt.Errorf("bench: write report: %w", err)
		}
	}
	return nil
}

// WriteMarkdown writes a table, a run a line.
func (t PacedTable) WriteMarkdown(w io.Writer) error {
	text := "| replicas | quota | throttle | 429s/min | interactive refused | interactive p99 | first second after a reset | utilisation |\n|---:|---|---|---:|---:|---:|---:|---:|\n"
	for _, r := range t {
		first := "–"
		if r.Quota == "fixed" {
			first = fmt.Sprintf("%.1f %%", 100*r.FirstSecond)
		}
		text += fmt.Sprintf("| %d | %s | %s | %.1f | %.2f %% of %d | %.0f ms | %s | %.3f |\n",
			r.Replicas, r.Quota, r.Throttle, r.Provider429PerMin, 100*r.InteractiveRefused, r.Interactive, r.InteractiveP99, first, r.Utilisation)
	}
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("bench: write report: %w", err)
	}
	return nil
}
