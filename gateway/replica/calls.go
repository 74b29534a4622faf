package replica

// AdmissionCalls counts those of StoreCalls that asked for admission. Per
// grant it is what contention costs: 1 when no request is ever refused.
func (r *Replica) AdmissionCalls() int64 {
	c := r.store.Calls()
	return int64(c.Admit + c.Pool)
}
