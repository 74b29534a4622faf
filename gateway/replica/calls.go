package replica

// AdmitCalls counts those of StoreCalls that asked for admission. Per grant it
// is what contention costs: 1 when no request is ever refused.
func (r *Replica) AdmitCalls() int64 { return int64(r.store.Calls().Admit) }
