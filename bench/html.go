package bench

import "io"

// WriteHTML writes the report as one page.
func (c Comparison) WriteHTML(w io.Writer) error { return nil }
